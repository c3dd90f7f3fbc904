"""Transactions. See `test_every_version.py`; all that goes wrong is in `txn_answers.py`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import every_data_api
from every_api_check import MISSING, TOPIC, E, also, check, codes
from every_group_api import TRANSACTION, find
from fencepost.cluster.wire.api import ApiKey
from sim_node import Asker
from txn_talk import Producer, position, records

NEW_CLIENT_SINCE: Final = 5  # EndTxn and TxnOffsetCommit; Produce 12 (KIP-890)
OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


def coordinated(node: Asker) -> None:
    """Ask until the coordinator is there, as clients do."""
    find(node, "any", TRANSACTION)
    asked = {"transactional_id": "warm", "transaction_timeout": 60_000}
    for _ in range(100):
        if node.ask(ApiKey.init_producer_id, 4, **asked).error_code is E.none:
            return
        node.sleep(0.1)
    raise AssertionError("the coordinator does not load")


def begun(node: Asker, transactional_id: str, version: int = 4, **more: Any) -> Producer:
    """A producer that has its id, and nothing open: what its last incarnation left is aborted."""
    coordinated(node)
    who = Producer(transactional_id)
    fields = {"transactional_id": transactional_id, "transaction_timeout": 60_000, **more}
    for _ in range(100):
        answer = node.ask(ApiKey.init_producer_id, version, **fields)
        if answer.error_code is not E.concurrent_transactions:
            break
        node.sleep(0.1)
    who.became(answer)
    return who


def described(node: Asker, transactional_id: str) -> Any:
    (row,) = node.ask(
        ApiKey.describe_transactions, transactional_ids=[transactional_id]
    ).transaction_states
    return row


@contextmanager
def ended_at_last(node: Asker, who: Producer) -> Iterator[None]:
    """A transaction that stays open holds back the stable offset of a topic that others read."""
    yield
    node.ask(ApiKey.end_txn, 4, **who.fields, committed=False)
    for _ in range(100):
        if described(node, who.transactional_id).transaction_state not in OPEN:
            return
        node.sleep(0.1)
    raise AssertionError("it does not end")


def added(node: Asker, who: Producer, version: int = 3, *topics: tuple[str, int]) -> list[E]:
    rows = [{"name": name, "partitions": [index]} for name, index in topics or [(TOPIC, 1)]]
    key = ApiKey.add_partitions_to_txn
    if version >= 4:
        asked = {**who.fields, "verify_only": False, "topics": rows}
        (found,) = node.ask(key, version, transactions=[asked]).results_by_transaction
        answers = found.topic_results
    else:
        old = {f"v3_and_below_{name}": value for name, value in who.fields.items()}
        reply = node.ask(key, version, **old, v3_and_below_topics=rows)
        answers = reply.results_by_topic_v3_and_below
    by_name = {each.name: each.results_by_partition[0].partition_error_code for each in answers}
    return [by_name[row["name"]] for row in rows]


@check(ApiKey.add_partitions_to_txn)
def add_partitions_to_txn(node: Asker, version: int) -> None:
    who = begun(node, f"adds-{version}")
    with ended_at_last(node, who):
        found = added(node, who, version, (TOPIC, 1), (MISSING, 0))
        assert found == [E.operation_not_attempted, E.unknown_topic_or_partition]
        assert added(node, who, version) == [E.none]
        assert added(node, who, version) == [E.none]
        assert described(node, who.transactional_id).transaction_state == "Ongoing"
        assert added(node, who.but(producer_id=4711), version) == [E.invalid_producer_id_mapping]
        fenced = E.invalid_producer_epoch if version < 2 else E.producer_fenced
        assert added(node, who.but(producer_epoch=9), version) == [fenced]


@check(ApiKey.add_offsets_to_txn)
def add_offsets_to_txn(node: Asker, version: int) -> None:
    key, who = ApiKey.add_offsets_to_txn, begun(node, f"adds-offsets-{version}")
    find(node, "g")
    with ended_at_last(node, who):
        assert node.ask(key, version, **who.fields, group_id="g").error_code is E.none
        row = described(node, who.transactional_id)
        assert [each.topic for each in row.topics] == ["__consumer_offsets"]
        stranger = who.but(producer_id=4711).fields
        answer = node.ask(key, version, **stranger, group_id="g")
        assert answer.error_code is E.invalid_producer_id_mapping


def stored(node: Asker, who: Producer, version: int, group: str, *topics: str) -> list[E]:
    rows = [{"name": name, "partitions": [position(0)]} for name in topics]
    fields = {**who.fields, "group_id": group, "topics": rows}
    reply = node.ask(ApiKey.txn_offset_commit, version, **fields)
    by_name = {each.name: each.partitions[0].error_code for each in reply.topics}
    return [by_name[name] for name in topics]


@check(ApiKey.txn_offset_commit)
def txn_offset_commit(node: Asker, version: int) -> None:
    group, is_new = f"txn-commits-{version}", version >= NEW_CLIENT_SINCE
    who = begun(node, group)
    find(node, group)
    with ended_at_last(node, who):
        assert stored(node, who, version, group) == []
        if not is_new:
            outside = E.transaction_abortable if version >= 4 else E.invalid_txn_state
            assert stored(node, who, version, group, TOPIC) == [outside]
            asked = {**who.fields, "group_id": group}
            assert node.ask(ApiKey.add_offsets_to_txn, 3, **asked).error_code is E.none
        found = stored(node, who, version, group, TOPIC, MISSING)
        assert found == [E.none, E.unknown_topic_or_partition]
        assert stored(node, who, version, "", TOPIC) == [E.invalid_group_id]


@check(ApiKey.end_txn)
def end_txn(node: Asker, version: int) -> None:
    key, who = ApiKey.end_txn, begun(node, f"ends-{version}", 5)

    def ask(who: Producer, *, committed: bool) -> Any:
        return node.ask(key, version, **who.fields, committed=committed)

    assert ask(who, committed=True).error_code is E.invalid_txn_state
    assert ask(who.but(producer_id=4711), committed=True).error_code is (
        E.invalid_producer_id_mapping
    )
    for committed, state in ((True, "CompleteCommit"), (False, "CompleteAbort")):
        assert added(node, who) == [E.none]
        before = who.but()
        answer = ask(who, committed=committed)
        assert answer.error_code is E.none
        if version >= NEW_CLIENT_SINCE:
            who.became(answer)
            assert who.producer_epoch == before.producer_epoch + 1
        for _ in range(100):
            if described(node, who.transactional_id).transaction_state == state:
                break
            node.sleep(0.1)
        row = described(node, who.transactional_id)
        assert (row.transaction_state, row.producer_epoch) == (state, who.producer_epoch)
        assert ask(before, committed=committed).error_code is E.none  # the answer was lost
        assert ask(before, committed=not committed).error_code is E.invalid_txn_state


@check(ApiKey.describe_transactions)
def describe_transactions(node: Asker, version: int) -> None:
    key, who = ApiKey.describe_transactions, begun(node, "described")
    assert len(node.ask(key, version, transactional_ids=[]).transaction_states) == 0
    with ended_at_last(node, who):
        added(node, who)
        asked = ["described", "nobody", ""]
        rows = node.ask(key, version, transactional_ids=asked).transaction_states
        found = {row.transactional_id: row for row in rows}
        assert codes(found[name] for name in asked) == [
            E.none,
            E.transactional_id_not_found,
            E.invalid_request,
        ]
        row = found["described"]
        assert (row.transaction_state, row.producer_id) == ("Ongoing", who.producer_id)
        assert [(each.topic, list(each.partitions)) for each in row.topics] == [(TOPIC, [1])]


@check(ApiKey.list_transactions)
def list_transactions(node: Asker, version: int) -> None:
    name = f"listed-{version}"
    key, who = ApiKey.list_transactions, begun(node, name)

    def ask(**filters: Any) -> list[str]:
        asked = {"state_filters": [], "producer_id_filters": [], **filters}
        reply = node.ask(key, version, **asked)
        assert reply.error_code is E.none
        return [each.transactional_id for each in reply.transaction_states]

    assert name in ask()
    with ended_at_last(node, who):
        added(node, who)
        assert name in ask(state_filters=["Ongoing"])
        assert name not in ask(state_filters=["Empty"])
        assert ask(producer_id_filters=[who.producer_id]) == [name]
        if version >= 1:
            assert name not in ask(duration_filter=1_000_000)
        if version >= 2:
            assert ask(transactional_id_pattern=f"list.*{version}") == [name]
    reply = node.ask(key, version, state_filters=["Asleep"], producer_id_filters=[])
    assert list(reply.unknown_state_filters) == ["Asleep"]


def written(node: Asker, who: Producer) -> E:
    """A record of the transaction, by a client that adds partitions itself."""
    data = records(b"x", who)
    reply = node.ask(
        ApiKey.produce,
        11,
        transactional_id=who.transactional_id,
        acks=-1,
        timeout=5_000,
        topic_data=[{"name": TOPIC, "partition_data": [{"index": 1, "records": data}]}],
    )
    error: E = reply.responses[0].partition_responses[0].error_code
    return error


@check(ApiKey.write_txn_markers)
def write_txn_markers(node: Asker, version: int) -> None:
    key, who = ApiKey.write_txn_markers, begun(node, f"marked-{version}")
    assert len(node.ask(key, version, markers=[]).markers) == 0

    def ask(topic: str, partition: int) -> E:
        marker = {
            "producer_id": who.producer_id,
            "producer_epoch": who.producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
        }
        (answer,) = node.ask(key, version, markers=[marker]).markers
        assert answer.producer_id == who.producer_id
        error: E = answer.topics[0].partitions[0].error_code
        return error

    with ended_at_last(node, who):
        assert added(node, who) == [E.none]
        assert written(node, who) is E.none
        assert ask(MISSING, 0) is E.unknown_topic_or_partition
        assert ask(TOPIC, 9) is E.unknown_topic_or_partition
        assert ask(TOPIC, 1) is E.none


@also(ApiKey.init_producer_id)
def begins_transactionally(node: Asker, version: int) -> None:
    """The part of InitProducerId that asks a coordinator."""
    key, name = ApiKey.init_producer_id, f"begins-{version}"
    first, second = begun(node, name, version), begun(node, name, version)
    assert second.producer_id == first.producer_id
    assert second.producer_epoch == first.producer_epoch + 1

    def ask(**more: Any) -> E:
        fields = {"transactional_id": name, "transaction_timeout": 60_000, **more}
        error: E = node.ask(key, version, **fields).error_code
        return error

    assert ask(transactional_id="") is E.invalid_request
    for timeout in (0, -1, 2**31 - 1):
        assert ask(transaction_timeout=timeout) is E.invalid_transaction_timeout
    if version >= 3:
        fenced = E.producer_fenced if version >= 4 else E.invalid_producer_epoch
        had = {"producer_id": second.producer_id, "producer_epoch": second.producer_epoch}
        assert ask(**{**had, "producer_epoch": 99}) is fenced
        assert ask(**had) is E.none


@also(ApiKey.find_coordinator)
def finds_transactionally(node: Asker, version: int) -> None:
    find(node, "any", TRANSACTION)
    key = ApiKey.find_coordinator
    if version >= 4:
        reply = node.ask(key, version, coordinator_keys=["a", "b"], key_type=TRANSACTION)
        assert [(each.key, each.error_code, each.port) for each in reply.coordinators] == [
            ("a", E.none, node.port),
            ("b", E.none, node.port),
        ]
    elif version >= 1:
        reply = node.ask(key, version, key="any", key_type=TRANSACTION)
        assert (reply.error_code, reply.node_id, reply.port) == (E.none, 1, node.port)


__all__ = ["begun", "coordinated", "every_data_api"]
