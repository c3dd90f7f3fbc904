"""What hurt the users of others, asked at a node's door: each is named after what went wrong there."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from every_api_check import E
from every_txn_api import added, begun, described, find
from fencepost.chaos.checkers.txn_history import Polled, Txn
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.chaos.workloads.cluster_client import ClusterClient
from fencepost.chaos.workloads.txn_client import TransactionalProducer
from fencepost.chaos.workloads.txn_keys import payload
from fencepost.chaos.workloads.txn_reader import CommittedReader
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.batch import headers_of
from sim_cluster import Cluster
from sim_node import SimNode, batch
from txn_talk import Producer, position, records

TOPIC = "topic"
COMMITTED, UNCOMMITTED = 1, 0
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "flush.policy": "ack",
}


@pytest.fixture
def node() -> Iterator[SimNode]:
    simulated = SimNode(seed="regressions", **SETTINGS)
    simulated.start()
    simulated.create_topic(TOPIC)
    find(simulated, "g", 0)
    yield simulated
    simulated.close()


def write(node: SimNode, who: Producer, version: int = 12) -> E:
    data = [{"index": 0, "records": records(b"x", who)}]
    reply = node.ask(
        ApiKey.produce,
        version,
        transactional_id=who.transactional_id,
        acks=-1,
        timeout=5_000,
        topic_data=[{"name": TOPIC, "partition_data": data}],
    )
    who.sequence += 1
    error: E = reply.responses[0].partition_responses[0].error_code
    return error


def store(node: SimNode, who: Producer, offset: int) -> E:
    """The position of group `g`, by a client that adds it itself."""
    topics = [{"name": TOPIC, "partitions": [position(0, offset)]}]
    fields = {**who.fields, "group_id": "g", "topics": topics}
    error: E = node.ask(ApiKey.txn_offset_commit, 5, **fields).topics[0].partitions[0].error_code
    return error


def end(node: SimNode, who: Producer, *, commit: bool) -> None:
    who.became(node.ask(ApiKey.end_txn, 5, **who.fields, committed=commit))


def fetched(node: SimNode) -> Any:
    wanted = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    reply = node.ask(ApiKey.offset_fetch, 9, groups=[wanted], require_stable=True)
    return reply.groups[0].topics[0].partitions[0]


def end_offset(node: SimNode, isolation: int) -> int:
    partitions = [{"partition_index": 0, "timestamp": -1}]
    topics = [{"name": TOPIC, "partitions": partitions}]
    reply = node.ask(ApiKey.list_offsets, isolation_level=isolation, topics=topics)
    return int(reply.topics[0].partitions[0].offset)


def read(node: SimNode, offset: int) -> Any:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    reply = node.ask(
        ApiKey.fetch,
        max_wait=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        isolation_level=COMMITTED,
        topics=[{"topic_id": node.topic_ids[TOPIC], "partitions": [part]}],
    )
    return reply.responses[0].partitions[0]


def test_kafka_12671_a_producer_that_is_gone_does_not_hold_readers_back_for_ever(
    node: SimNode,
) -> None:
    who = begun(node, "gone", transaction_timeout=2_000)
    assert write(node, who) is E.none
    node.produce(TOPIC, batch(b"of somebody else"))
    assert (end_offset(node, COMMITTED), end_offset(node, UNCOMMITTED)) == (0, 2)
    node.sleep(15)
    assert described(node, "gone").transaction_state == "CompleteAbort"
    assert end_offset(node, COMMITTED) == end_offset(node, UNCOMMITTED) == 3


def test_franz_go_581_a_position_of_a_producer_that_is_gone_becomes_stable_again(
    node: SimNode,
) -> None:
    """UNSTABLE_OFFSET_COMMIT for ever; the user made the group anew to escape."""
    first = begun(node, "first")
    assert store(node, first, 5) is E.none
    end(node, first, commit=True)
    who = begun(node, "gone", transaction_timeout=2_000)
    assert store(node, who, 9) is E.none
    assert fetched(node).error_code is E.unstable_offset_commit
    node.sleep(15)
    assert (fetched(node).error_code, fetched(node).committed_offset) == (E.none, 5)


def test_redpanda_5442_a_coordinator_that_comes_back_goes_on_where_it_was(node: SimNode) -> None:
    """It blocked ongoing transactions for a minute. Here it has lost its power, too."""
    who = begun(node, "pay")
    assert write(node, who) is E.none
    assert store(node, who, 9) is E.none
    node.world.crash("node")
    node.start()
    began = node.world.loop.time()
    while described(node, "pay").error_code is E.coordinator_load_in_progress:
        node.sleep(0.01)
    assert node.world.loop.time() - began < 1
    assert described(node, "pay").transaction_state == "Ongoing"
    assert write(node, who) is E.none
    end(node, who, commit=True)
    node.sleep(0.5)
    assert end_offset(node, COMMITTED) == end_offset(node, UNCOMMITTED) == 3
    assert fetched(node).committed_offset == 9


def test_redpanda_17966_a_reader_reaches_an_end_that_is_nothing_but_a_marker(node: SimNode) -> None:
    """What is behind the last record is a marker, which no reader shows: its end is reached all the same."""
    who = begun(node, "pay")
    assert write(node, who) is E.none
    end(node, who, commit=False)
    node.sleep(0.5)
    last = end_offset(node, COMMITTED)
    assert last == 2
    answer = read(node, 0)
    assert (answer.last_stable_offset, answer.high_watermark) == (2, 2)
    assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [
        (who.producer_id, 0)
    ]
    behind = read(node, last)
    assert (behind.error_code, bytes(behind.records or b"")) == (E.none, b"")
    node.world.crash("node")
    node.start()
    behind = read(node, last)  # it said OFFSET_OUT_OF_RANGE after a restart
    assert (behind.error_code, behind.last_stable_offset) == (E.none, 2)


def test_redpanda_10671_what_is_aborted_is_hidden_from_the_first_moment_on(node: SimNode) -> None:
    """The stable offset was computed ahead of what was applied, and readers saw aborted records."""
    who = begun(node, "pay")
    place = shown = 0
    for _ in range(20):
        assert added(node, who, 3, (TOPIC, 0)) == [E.none]
        assert write(node, who) is E.none
        end(node, who, commit=False)
        answer = read(node, place)  # at once: the marker may be on its way
        headers = [header for _, header in headers_of(bytes(answer.records or b""))]
        seen = {each.base_offset for each in headers if not each.is_control}
        assert all(each < answer.last_stable_offset for each in seen)
        assert seen <= {each.first_offset for each in answer.aborted_transactions or ()}
        place = headers[-1].base_offset + 1 if headers else place
        shown += len(seen)
        node.sleep(0.05)
    assert shown >= 18


def test_klag_exporter_104_what_a_committed_reader_waits_for_is_told_from_what_is_not_there_yet(
    node: SimNode,
) -> None:
    """By the high watermark it lags, for ever; risingwave#24720 and kafka-flow#857 waited for an end that they could not
    reach, or took it for reached. Both ends are told, and whose transaction lies between them."""
    who = begun(node, "slow")
    assert added(node, who, 3, (TOPIC, 0)) == [E.none]
    assert write(node, who, 11) is E.none
    node.produce(TOPIC, batch(b"of somebody else"))
    assert (end_offset(node, COMMITTED), end_offset(node, UNCOMMITTED)) == (0, 2)
    answer = read(node, 0)
    assert (answer.last_stable_offset, answer.high_watermark) == (0, 2)
    assert bytes(answer.records or b"") == b""
    asked = {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    (row,) = node.ask(ApiKey.describe_producers, **asked).topics[0].partitions[0].active_producers
    assert (row.producer_id, row.current_txn_start_offset) == (who.producer_id, 0)
    end(node, who, commit=True)
    node.sleep(0.5)
    # The end itself is a marker, which nobody is shown: whoever reads comes past it all the same.
    assert end_offset(node, COMMITTED) == end_offset(node, UNCOMMITTED) == 3
    place = 0
    while place < 3:
        headers = [header for _, header in headers_of(bytes(read(node, place).records))]
        place = headers[-1].next_offset
    assert headers[-1].is_control


def test_librdkafka_5497_whoever_speaks_the_protocol_sees_a_hanging_transaction_and_ends_it(
    node: SimNode,
) -> None:
    """Tools were Java's alone, and others' showed what hung without a way to end it (Dekaf#1383)."""
    who = begun(node, "hangs")
    assert added(node, who, 3, (TOPIC, 0)) == [E.none]
    assert write(node, who, 11) is E.none
    listed = node.ask(ApiKey.list_transactions, state_filters=["Ongoing"], producer_id_filters=[])
    assert [each.transactional_id for each in listed.transaction_states] == ["hangs"]
    asked = {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    (row,) = node.ask(ApiKey.describe_producers, **asked).topics[0].partitions[0].active_producers
    marker = {
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "transaction_result": False,
        "coordinator_epoch": max(0, row.coordinator_epoch),
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
    }
    node.ask(ApiKey.write_txn_markers, 1, markers=[marker])
    assert end_offset(node, COMMITTED) == end_offset(node, UNCOMMITTED) == 2
    # Its producer did not hear of it: what it ends is over, and ends nothing else.
    end(node, who, commit=True)
    assert [each.first_offset for each in read(node, 0).aborted_transactions] == [0]


def test_redpanda_5356_a_retry_of_what_was_deleted_meanwhile_is_not_written_again(
    node: SimNode,
) -> None:
    """The memory of batches and the log parted ways at eviction (KAFKA-14034): duplicates."""
    drawn = node.ask(ApiKey.init_producer_id, 4, transactional_id=None, transaction_timeout=60_000)
    who = {"producer_id": drawn.producer_id, "producer_epoch": drawn.producer_epoch}
    first = batch(b"x", base_sequence=0, **who)
    assert node.produce(TOPIC, first).error_code is E.none
    wanted = {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 1}]}
    reply = node.ask(ApiKey.delete_records, topics=[wanted], timeout=5_000)
    assert reply.topics[0].partitions[0].error_code is E.none
    again = node.produce(TOPIC, first)
    assert (again.error_code, again.base_offset) == (E.none, 0)
    assert end_offset(node, UNCOMMITTED) == 1
    assert node.produce(TOPIC, batch(b"y", base_sequence=1, **who)).base_offset == 1


def test_redpanda_5090_a_new_leader_hides_from_its_first_answer_on_what_was_aborted() -> None:
    """Whoever was elected was taken for ready, before it had applied what it had: aborted records were read."""
    cluster = Cluster(seed="regressions", config=("transaction.state.log.num.partitions=1",))
    env = cluster.world.node("client")
    client = ClusterClient(env, cluster.nodes.addresses, name="client")

    async def aborts() -> None:
        producer = TransactionalProducer(client, "pay", new_protocol=False)
        await producer.init()
        for number in range(20):

            async def work(number: int = number) -> None:
                await producer.send("t", 0, [payload(number, number)])

            await producer.transact(Txn("txn", "fail", "pay", number), work, commit=False)

    async def look() -> list[Polled] | None:
        try:
            client.forget("t", 0, await client.leader_now("t", 0))
        except Trouble:
            return None
        return await CommittedReader(client).poll("t", 0)

    async def scenario() -> None:
        await cluster.create("t")
        await cluster.world.on(env, aborts())
        for _ in range(3):
            leader = cluster.partition().leader
            cluster.world.kill(node_name(leader))
            seen = None
            while seen is None:
                await asyncio.sleep(0.01)
                seen = await cluster.world.on(env, look())
            assert seen == []
            assert cluster.partition().leader != leader
            cluster.nodes.start(leader)
            await cluster.until(lambda: len(cluster.partition().isr) == 3)

    cluster.play(scenario)
