"""What producers, brokers and partition leaders ask of a coordinator: every version's own messages, and what makes no sense."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC, TopicPartition
from fencepost.txn.runtime.ownership import partition_for
from fencepost.txn.transactions.config import TransactionConfig
from transaction_node import ID, TransactionNode, later, on_node, ready

E = ErrorCode
T0 = TopicPartition("t", 0)

# -- a transaction in every version ------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_a_producer_of_every_version_begins(version: int) -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init(version=version)
        assert (who.error_code, who.producer_id, who.producer_epoch) == (E.none, 101, 0)
        assert (await node.state()).transaction_state == "Empty"

    on_node(scenario)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_in_every_version_of_clients(version: int) -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        assert await node.add(who, version=version) is E.none
        fenced = SimpleNamespace(producer_id=who.producer_id, producer_epoch=7)
        code = await node.add(fenced, version=version)
        assert code is (E.producer_fenced if version >= 2 else E.invalid_producer_epoch)

    on_node(scenario)


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_is_ended_in_every_version(version: int) -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        await node.add(who)
        ended = await node.end(who, version=version)
        assert ended.error_code is E.none
        if version >= 5:
            assert (ended.producer_id, ended.producer_epoch) == (101, 1)
        await asyncio.sleep(0.01)
        assert (await node.state()).transaction_state == "CompleteCommit"
        zombie = SimpleNamespace(producer_id=101, producer_epoch=9)
        code = (await node.end(zombie, version=version)).error_code
        assert code is (E.producer_fenced if version >= 2 else E.invalid_producer_epoch)

    on_node(scenario)


def test_the_answer_to_an_end_leaves_before_the_markers_are_written() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        await node.add(who)
        node.door.open.clear()
        assert (await node.end(who)).error_code is E.none
        assert (await node.state()).transaction_state == "PrepareCommit"
        added = later(node.add(who, partition=1))
        await asyncio.sleep(0.1)
        assert not added.done()
        node.door.open.set()
        assert await added is E.none
        assert (await node.state()).transaction_state == "Ongoing"

    on_node(scenario)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify_partitions_of_several_transactions_at_once(version: int) -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        first, second = await node.init("x"), await node.init("y")
        rows: list[dict[str, Any]] = [
            {
                "transactional_id": name,
                "producer_id": who.producer_id,
                "producer_epoch": who.producer_epoch,
                "verify_only": verify_only,
                "topics": [{"name": "t", "partitions": [0, 1]}],
            }
            for name, who, verify_only in [("x", first, False), ("y", second, True)]
        ]
        reply = await node.ask("add_partitions_to_txn", version, transactions=rows)
        codes = {
            result.transactional_id: [
                row.partition_error_code for row in result.topic_results[0].results_by_partition
            ]
            for result in reply.results_by_transaction
        }
        assert codes == {"x": [E.none] * 2, "y": [E.transaction_abortable] * 2}

    on_node(scenario)


def test_one_unknown_partition_keeps_all_others_out() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        topics = [{"name": "t", "partitions": [0]}, {"name": "nowhere", "partitions": [0]}]
        reply = await node.ask(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.producer_epoch,
            v3_and_below_topics=topics,
        )
        codes = {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in reply.results_by_topic_v3_and_below
        }
        assert codes == {"t": E.operation_not_attempted, "nowhere": E.unknown_topic_or_partition}
        assert (await node.state()).transaction_state == "Empty"

    on_node(scenario)


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added_as_the_partition_of_their_group(version: int) -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        reply = await node.ask(
            "add_offsets_to_txn",
            version,
            transactional_id=ID,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            group_id="readers",
        )
        assert reply.error_code is E.none
        (topic,) = (await node.state()).topics
        assert (topic.topic, topic.partitions) == (
            GROUP_OFFSETS_TOPIC,
            (partition_for("readers", 3),),
        )

    on_node(scenario)


# -- what partition leaders ask ----------------------------------------------------------------------


def test_a_leader_adds_its_partition_for_a_new_client() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        identity = (ID, who.producer_id, who.producer_epoch)
        assert await node.service.verify(*identity, [T0], add=False) == {
            T0: E.transaction_abortable
        }
        assert await node.service.verify(*identity, [T0], add=True) == {T0: E.none}
        assert await node.service.verify(*identity, [T0], add=False) == {T0: E.none}
        ended = await node.end(who, version=5)
        assert (ended.producer_id, ended.producer_epoch) == (101, 1)

    on_node(scenario)


# -- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, E.invalid_request),
        ({"transaction_timeout_ms": 0}, E.invalid_transaction_timeout),
        ({"transaction_timeout_ms": -1}, E.invalid_transaction_timeout),
        ({"transaction_timeout_ms": 900_001}, E.invalid_transaction_timeout),
        ({"producer_id": 5}, E.invalid_request),
        ({"producer_epoch": 5}, E.invalid_request),
        ({"transactional_id": "x" * 40_000}, E.unknown_server_error),
    ],
)
def test_a_beginning_that_makes_no_sense_is_refused(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        assert (await node.init(**fields)).error_code is code

    on_node(scenario)


@pytest.mark.parametrize("version", [3, 4])
def test_a_fenced_producer_is_told_in_the_words_of_its_version(version: int) -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        await node.init()
        reply = await node.init(version=version, producer_id=101, producer_epoch=7)
        assert reply.error_code is (E.producer_fenced if version >= 4 else E.invalid_producer_epoch)

    on_node(scenario)


def test_without_ids_a_producer_is_asked_to_come_again() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        node.no_ids = True
        assert (await node.init()).error_code is E.coordinator_load_in_progress
        node.no_ids = False
        assert (await node.init()).error_code is E.none

    on_node(scenario)


def test_a_controller_that_does_not_answer_for_ids_is_named_as_the_cause() -> None:
    """The end of a time says nothing of itself: the line would name no cause."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        node.id_takes_s = 60.0
        assert (await node.init()).error_code is E.coordinator_load_in_progress
        assert "'cause': 'no controller answers'" in node.world.trace.tail(100)

    on_node(scenario)


# -- two-phase commit (KIP-939) ----------------------------------------------------------------------


def test_two_phase_commit_is_for_those_who_may() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        for field in ("enable2_pc", "keep_prepared_txn"):
            reply = await node.init(version=6, **{field: True})
            assert reply.error_code is E.transactional_id_authorization_failed

    on_node(scenario, config=TransactionConfig())


def test_a_prepared_transaction_is_told_of_and_kept() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init(version=6, enable2_pc=True)
        await node.add(who)
        kept = await node.init(version=6, enable2_pc=True, keep_prepared_txn=True)
        assert (kept.producer_id, kept.producer_epoch) == (101, 1)
        assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == (101, 0)
        assert (await node.state()).transaction_state == "Prepared"
        await asyncio.sleep(10_000)
        assert (await node.state()).transaction_state == "Prepared"
        assert (await node.end(kept)).error_code is E.none

    on_node(scenario)
