"""What leaders are told of a transaction before they ask: when it leaves, to whom, and what it says."""

import asyncio

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.runtime.ownership import partition_for
from fencepost.txn.transactions.word_sender import Place, Word
from transaction_node import ID, TransactionNode, on_node, ready

E = ErrorCode
T0 = TopicPartition("t", 0)


def test_a_word_leaves_when_its_record_is_committed() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        log = node.logs[partition_for(ID, len(node.logs))]
        log.commits_at_once = False
        adding = asyncio.get_running_loop().create_task(node.add(who))
        await asyncio.sleep(0.1)
        assert log.log_end_offset > log.high_watermark
        assert node.door.words == []
        log.commit()
        assert await adding is E.none
        assert len(node.door.words) == 1

    on_node(scenario)


def test_each_leader_hears_of_its_own_partitions_once() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        node.lead("t", 1, 2, epoch=7)
        who = await node.init()
        for partition in (0, 1, 1):
            assert await node.add(who, partition=partition) is E.none
        started = (await node.state()).transaction_start_time
        began_ms = round(started.timestamp() * 1000) if not isinstance(started, int) else started
        topic_id = node.image.topics["t"].topic_id
        said = {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
        assert node.door.words == [
            (1, Word(**said, started_ms=began_ms, places=(Place(topic_id, 0, 0),))),
            (2, Word(**said, started_ms=began_ms, places=(Place(topic_id, 1, 7),))),
        ]

    on_node(scenario)


def test_nobody_is_told_who_has_asked_himself() -> None:
    """Clients of transaction.version 2 leave it to the leaders to add their partitions."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        asked = who.producer_id, who.producer_epoch, [T0]
        assert await node.service.verify(ID, *asked, add=True) == {T0: E.none}
        assert node.door.words == []

    on_node(scenario)


def test_a_partition_without_a_leader_is_told_nothing() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        node.lead("t", 0, -1)
        assert await node.add(await node.init()) is E.none
        assert node.door.words == []

    on_node(scenario)
