"""The transaction APIs as a handler calls them: every version's own messages in, every version's own messages out."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.txn.runtime.ownership import partition_for
from fencepost.txn.transactions.config import TransactionConfig
from fencepost.txn.transactions.ids import transactional_partition_key
from transaction_node import ID, NODE, TransactionNode, on_node, ready

E = ErrorCode
T0 = TopicPartition("t", 0)


def later(work: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


# -- where a transactional id is ---------------------------------------------------------------------


def test_the_first_who_asks_for_a_coordinator_has_the_topic_made_once() -> None:
    async def scenario(node: TransactionNode) -> None:
        found = await asyncio.gather(*(node.service.coordinator_of(f"t{i}") for i in range(5)))
        assert found == [1] * 5
        assert node.created == 1
        assert (await node.init()).error_code is E.none

    on_node(scenario)


def test_only_the_leader_of_its_partition_answers_for_a_transactional_id() -> None:
    async def scenario(node: TransactionNode) -> None:
        assert (await node.init()).error_code is E.not_coordinator
        await ready(node)
        assert (await node.init()).error_code is E.none
        for partition in range(3):
            node.lead(TRANSACTION_STATE_TOPIC, partition, 2)
        assert (await node.init()).error_code is E.not_coordinator
        assert await node.service.coordinator_of(ID) == 2

    on_node(scenario)


def test_while_the_topic_can_not_be_made_there_is_no_coordinator() -> None:
    async def scenario(node: TransactionNode) -> None:
        node.create_fails = True
        assert await node.service.coordinator_of(ID) is E.coordinator_not_available
        node.create_fails = False
        assert await node.service.coordinator_of(ID) == 1

    on_node(scenario)


@pytest.mark.parametrize(
    ("transactional_id", "key"),
    [
        ("pay", "pay"),
        ("job::w1", "job"),
        ("job::w1::x", "job"),
        ("::w1", "::w1"),
        ("job::", "job::"),
        ("::a::b", "::a::b"),
        ("a:b", "a:b"),
        ("", ""),
    ],
)
def test_the_members_of_a_transaction_group_live_together(transactional_id: str, key: str) -> None:
    assert transactional_partition_key(transactional_id) == key


def _deposed(node: TransactionNode, *, back: bool) -> None:
    """Another leads all ids: what it was told since is not here. `back`: this node does again, with what is in the log."""
    for partition in range(3):
        node.lead(TRANSACTION_STATE_TOPIC, partition, 2, epoch=1)
        if back:
            node.lead(TRANSACTION_STATE_TOPIC, partition, 1, epoch=2)


@pytest.mark.parametrize("becomes", ["deposed", "deposed and back", "not known"])
def test_a_coordinator_that_was_deposed_ends_no_producer(becomes: str) -> None:
    """It refuses by what it has in memory, and learns only then that another took over: a partition may have been added there."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()

        async def confirm() -> bool:
            if becomes != "not known":
                _deposed(node, back=becomes == "deposed and back")
            return becomes != "not known"

        node.service._confirm_image = confirm
        assert (await node.end(who, version=5)).error_code is E.not_coordinator

    on_node(scenario)


def test_a_coordinator_that_was_deposed_says_of_no_transaction_that_it_is_not_open() -> None:
    """aiokafka ends on it. The next one may have been opened at its successor."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        told = {}
        for is_of_now in (True, False):

            async def confirm(answer: bool = is_of_now) -> bool:
                return answer

            node.service._confirm_image = confirm
            identity = who.producer_id, who.producer_epoch
            told[is_of_now] = await node.service.age_ms(ID, *identity)
        assert told == {True: E.invalid_producer_epoch, False: E.not_coordinator}

    on_node(scenario)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_coordinator_that_was_deposed_takes_no_commit_for_the_last_one_s(commit: bool) -> None:
    """Up to EndTxn 4 both have the same epoch: the next transaction was opened where another coordinates by now, and its
    end, which comes here, looks like the last one's, sent again."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        assert await node.add(who) is E.none
        assert (await node.end(who, commit=commit, version=4)).error_code is E.none

        async def confirm() -> bool:
            _deposed(node, back=False)
            return True

        node.service._confirm_image = confirm
        assert (await node.end(who, commit=commit, version=4)).error_code is E.not_coordinator

    on_node(scenario)


def test_a_coordinator_that_was_deposed_says_of_nothing_that_it_was_added_before() -> None:
    """It may have been part of the last transaction, which its successor has ended."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        assert await node.add(who) is E.none

        async def confirm() -> bool:
            _deposed(node, back=False)
            return True

        node.service._confirm_image = confirm
        assert await node.add(who) is E.not_coordinator

    on_node(scenario)


def test_what_was_done_before_is_confirmed_and_said_again() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        for _ in range(2):
            assert await node.add(who) is E.none
        assert node.confirmed == 1
        for _ in range(2):
            assert (await node.end(who, version=4)).error_code is E.none
        assert node.confirmed == 2

    on_node(scenario)


def test_only_what_ends_a_producer_is_confirmed_first() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        assert await node.add(who) is E.none
        assert (await node.end(who)).error_code is E.none
        assert node.confirmed == 0
        old = SimpleNamespace(producer_id=who.producer_id, producer_epoch=who.producer_epoch - 1)
        assert await node.add(old) is E.producer_fenced
        assert (await node.end(old)).error_code is E.producer_fenced
        stranger = SimpleNamespace(producer_id=who.producer_id + 1, producer_epoch=0)
        assert await node.add(stranger) is E.invalid_producer_id_mapping
        assert node.confirmed == 3

    on_node(scenario)


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


# -- looking at transactions -------------------------------------------------------------------------


def test_transactions_are_described_and_what_is_not_known_is_said() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        await node.add(who)
        reply = await node.ask("describe_transactions", 0, transactional_ids=[ID, "nobody", ""])
        known, nobody, empty = reply.transaction_states
        assert (known.transaction_state, known.producer_id, known.producer_epoch) == (
            "Ongoing",
            101,
            0,
        )
        assert known.topics[0].topic == "t"
        assert nobody.error_code is E.transactional_id_not_found
        assert empty.error_code is E.invalid_request

    on_node(scenario)


def test_a_transaction_that_is_asked_for_again_is_described_once() -> None:
    """It may have 10,000 partitions. What is refused is told as often as it is asked for, as by Kafka 4.3."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        await node.add(await node.init())
        asked = ["nobody", ID, "", ID] * 2
        reply = await node.ask("describe_transactions", 0, transactional_ids=asked)
        told = [each.transactional_id for each in reply.transaction_states]
        assert told == ["nobody", ID, "", "nobody", ""]

    on_node(scenario)


def test_transactions_are_listed_by_state_producer_duration_and_pattern() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        ids = ["a1", "a2", "größe"]
        for each in ids:
            await node.init(each)
        await node.init()
        who = SimpleNamespace(producer_id=104, producer_epoch=0)
        await node.add(who)

        async def listed(version: int = 2, **filters: Any) -> list[str]:
            reply = await node.ask("list_transactions", version, **filters)
            assert reply.error_code is E.none
            return sorted(row.transactional_id for row in reply.transaction_states)

        assert await listed(0) == sorted([*ids, ID])
        assert await listed(state_filters=["Ongoing"]) == [ID]
        assert await listed(producer_id_filters=[101, 102]) == ["a1", "a2"]
        assert await listed(transactional_id_pattern="a.*") == ["a1", "a2"]
        assert await listed(transactional_id_pattern="gr..e") == ["größe"]
        assert ID not in await listed(duration_filter=5_000)
        await asyncio.sleep(6)
        assert ID in await listed(duration_filter=5_000)
        reply = await node.ask("list_transactions", 2, state_filters=["Sleeping"])
        assert (reply.unknown_state_filters, reply.transaction_states) == (("Sleeping",), ())
        reply = await node.ask("list_transactions", 2, transactional_id_pattern="(")
        assert reply.error_code is E.invalid_regular_expression

    on_node(scenario)


# -- faults ------------------------------------------------------------------------------------------


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
        (shard,) = node.service.shards()
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
