"""A coordinator that takes over, one whose log takes nothing, transactions that take too long or fit no record."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from transaction_node import NODE, TransactionNode, later, on_node, ready

E = ErrorCode
T0 = TopicPartition("t", 0)


def test_a_transaction_that_times_out_is_aborted_at_its_partitions() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        await node.add(who)
        await asyncio.sleep(60.1)
        assert (await node.state()).transaction_state == "CompleteAbort"
        ((_, marker),) = node.door.written
        assert (marker.commit, marker.producer_epoch) == (False, 1)

    on_node(scenario)


def test_a_coordinator_that_takes_over_finishes_what_it_finds_decided() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        await node.add(who)
        node.door.open.clear()
        assert (await node.end(who)).error_code is E.none
        for partition in range(3):
            node.lead(TRANSACTION_STATE_TOPIC, partition, 2)
        node.door.open.set()
        await asyncio.sleep(1)
        node.door.written.clear()
        for partition in range(3):
            node.lead(TRANSACTION_STATE_TOPIC, partition, 1, epoch=5)
        await asyncio.sleep(1)
        ((_, marker),) = node.door.written
        assert (marker.commit, marker.coordinator_epoch, marker.partitions) == (True, 5, (T0,))
        assert (await node.state()).transaction_state == "CompleteCommit"

    on_node(scenario)


def test_what_is_decided_goes_on_before_the_other_ids_have_been_read() -> None:
    """redpanda#5442: a coordinator that moved held up running transactions until all its log was read."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        for n in range(1_200):
            await node.init(f"idle {n}")
        who = await node.init()
        await node.add(who)
        node.door.open.clear()
        await node.end(who)
        node.lead(TRANSACTION_STATE_TOPIC, 0, 2)
        node.door.open.set()
        await asyncio.sleep(1)
        node.door.written.clear()
        node.lead(TRANSACTION_STATE_TOPIC, 0, 1, epoch=5)
        while not node.door.written:
            await asyncio.sleep(0.001)
        (shard,) = node.service.coordinator.shards().values()
        assert not isinstance(shard, ErrorCode)
        assert len(shard.machine.transactions) < 500  # type: ignore[attr-defined]
        assert (await node.state()).transaction_state == "CompleteCommit"

    on_node(scenario, partitions=1)


def test_an_end_that_can_not_be_written_down_yet_is_written_later() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        await node.add(who)
        node.door.open.clear()
        assert (await node.end(who)).error_code is E.none
        for log in node.logs.values():
            log.refuse = E.not_enough_replicas
        node.door.open.set()
        await asyncio.sleep(5)
        assert (await node.state()).transaction_state == "PrepareCommit"
        for log in node.logs.values():
            log.refuse = E.none
        await asyncio.sleep(2)
        assert (await node.state()).transaction_state == "CompleteCommit"
        assert len(node.door.written) == 1

    on_node(scenario)


@pytest.mark.slow
def test_a_transaction_that_fits_no_record_holds_up_no_other() -> None:
    """1. The markers of two transactions are written, and noted together.  2. The client of one has asked meanwhile for more
    partitions than a record holds: that is decided in the very turn that notes both ends, and nothing of it could be
    written. The clients' next transactions waited, for as long as the one asked again."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        names = [f"{number:04}".ljust(249, "x") for number in range(4_300)]
        for name in names:
            node.make_topic(name, [NODE])
        whos = {each: await node.init(each) for each in ("large", "small")}
        node.door.open.clear()
        for each, who in whos.items():
            for api, version, fields in (
                ("add_partitions_to_txn", 3, _first_partition(each, who)),
                ("end_txn", 4, _end(each, who)),
            ):
                await node.ask(api, version, **fields)

        fields = _first_partition("large", whos["large"])
        fields["v3_and_below_topics"] = [{"name": name, "partitions": [0]} for name in names]
        asking = later(node.ask("add_partitions_to_txn", 3, **fields))
        await asyncio.sleep(0.1)
        node.door.open.set()
        await asyncio.sleep(2)  # less than it would wait for its markers
        assert (await node.state("small")).transaction_state == "CompleteCommit"
        assert (await node.state("large")).transaction_state == "CompleteCommit"
        (answered, *_) = (await asking).results_by_topic_v3_and_below
        assert answered.results_by_partition[0].partition_error_code is E.unknown_server_error

    on_node(scenario, partitions=1)


def _first_partition(transactional_id: str, who: Any) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": who.producer_id,
        "v3_and_below_producer_epoch": who.producer_epoch,
        "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
    }


def _end(transactional_id: str, who: Any) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": who.producer_id,
        "producer_epoch": who.producer_epoch,
        "committed": True,
    }
