"""Records, offsets and the cluster's metadata: what each version answers. See `test_every_version.py`."""

from typing import Any, Final

from every_api_check import EMPTY, MISSING, TOPIC, UNKNOWN_ID, E, check, codes
from fencepost.cluster.wire.api import SUPPORTED, ApiKey
from fencepost.node.handlers import APIS
from sim_node import Asker, batch

NO_EPOCH: Final = -1


def produced(node: Asker, version: int, name: str, *partitions: Any, acks: int = -1) -> list[Any]:
    named = {"topic_id": node.topic_ids.get(name, UNKNOWN_ID)} if version >= 13 else {"name": name}
    data = [{"index": index, "records": records} for index, records in partitions]
    reply = node.ask(
        ApiKey.produce,
        version,
        transactional_id=None,
        acks=acks,
        timeout=1_000,
        topic_data=[{**named, "partition_data": data}],
    )
    # Kafka's order is not the request's: what it refuses at once comes last.
    return sorted(reply.responses[0].partition_responses, key=lambda each: each.index)


@check(ApiKey.produce)
def produce(node: Asker, version: int) -> None:
    key, good = ApiKey.produce, batch(b"x", b"y")
    reply = node.ask(key, version, transactional_id=None, acks=1, timeout=0, topic_data=[])
    assert len(reply.responses) == 0
    for acks in (1, -1):
        (answer,) = produced(node, version, TOPIC, (1, good), acks=acks)
        assert answer.error_code is E.none
        assert answer.base_offset >= 0
    unknown = E.unknown_topic_id if version >= 13 else E.unknown_topic_or_partition
    assert codes(produced(node, version, MISSING, (0, good))) == [unknown]
    answers = produced(node, version, TOPIC, (0, good[:-1]), (1, good), (9, good))
    assert codes(answers)[:2] == [E.invalid_record, E.none]
    assert answers[2].error_code is E.unknown_topic_or_partition
    assert codes(produced(node, version, TOPIC, (1, good), acks=2)) == [E.invalid_required_acks]
    node.ask(  # acks=0 has no answer, and the connection lives on
        key,
        version,
        transactional_id=None,
        acks=0,
        timeout=0,
        topic_data=[],
    )


def fetched(node: Asker, version: int, *wanted: tuple[str, int, int], **fields: Any) -> Any:
    topics = []
    for name, partition, offset in wanted:
        topic_id = node.topic_ids.get(name, UNKNOWN_ID)
        named = {"topic_id": topic_id} if version >= 13 else {"topic": name}
        each = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics.append({**named, "partitions": [each]})
    return node.ask(
        ApiKey.fetch,
        version,
        **{"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics, **fields},
    )


def parts(reply: Any) -> list[Any]:
    return [each for topic in reply.responses for each in topic.partitions]


@check(ApiKey.fetch)
def fetch(node: Asker, version: int) -> None:
    assert len(fetched(node, version).responses) == 0
    for isolation in (0, 1):
        (answer,) = parts(fetched(node, version, (TOPIC, 0, 0), isolation_level=isolation))
        assert answer.error_code is E.none
        assert answer.high_watermark == 3
        assert len(answer.records) == len(batch(b"a", b"b", b"c"))
    unknown = E.unknown_topic_id if version >= 13 else E.unknown_topic_or_partition
    reply = fetched(node, version, (MISSING, 0, 0), (TOPIC, 0, 99), (TOPIC, 9, 0), (EMPTY, 0, 0))
    # Kafka gathers what it refuses before it reads; a client takes them by name.
    assert sorted(codes(parts(reply))) == sorted(
        [unknown, E.offset_out_of_range, E.unknown_topic_or_partition, E.none]
    )
    (empty,) = parts(fetched(node, version, (EMPTY, 0, 0), max_wait=50))
    assert not empty.records
    if version >= 7:
        fetch_session(node, version)


def fetch_session(node: Asker, version: int) -> None:
    full = fetched(node, version, (TOPIC, 0, 3), (EMPTY, 0, 0), session_id=0, session_epoch=0)
    session = full.session_id
    assert full.error_code is E.none
    assert session > 0
    assert len(parts(full)) == 2
    nothing_new = fetched(node, version, session_id=session, session_epoch=1)
    assert (nothing_new.session_id, len(nothing_new.responses)) == (session, 0)
    rewound = fetched(node, version, (TOPIC, 0, 0), session_id=session, session_epoch=2)
    assert codes(parts(rewound)) == [E.none]
    named = {"topic_id": node.topic_ids[TOPIC]} if version >= 13 else {"topic": TOPIC}
    forgotten = fetched(
        node,
        version,
        session_id=session,
        session_epoch=3,
        forgotten_topics_data=[{**named, "partitions": [0]}],
    )
    assert forgotten.error_code is E.none
    assert len(forgotten.responses) == 0
    again = fetched(node, version, session_id=session, session_epoch=3)
    assert again.error_code is E.invalid_fetch_session_epoch
    unknown = fetched(node, version, session_id=session ^ 1, session_epoch=1)
    assert unknown.error_code is E.fetch_session_id_not_found
    closed = fetched(node, version, (TOPIC, 0, 0), session_id=session, session_epoch=-1)
    assert (closed.error_code, closed.session_id) == (E.none, 0)
    gone = fetched(node, version, session_id=session, session_epoch=4)
    assert gone.error_code is E.fetch_session_id_not_found


@check(ApiKey.list_offsets)
def list_offsets(node: Asker, version: int) -> None:
    key = ApiKey.list_offsets
    assert len(node.ask(key, version, replica_id=-1, topics=[]).topics) == 0

    def ask(name: str, timestamp: int, partition: int = 0) -> Any:
        wanted = {"partition_index": partition, "timestamp": timestamp}
        wanted["current_leader_epoch"] = NO_EPOCH
        topic = {"name": name, "partitions": [wanted]}
        reply = node.ask(key, version, replica_id=-1, isolation_level=0, timeout=0, topics=[topic])
        return reply.topics[0].partitions[0]

    # Special timestamp -> since which version, the offset in a log of three records, in an empty one.
    special = {
        -1: (1, 3, 0),
        -2: (1, 0, 0),
        -3: (7, 2, -1),
        -4: (8, 0, 0),
        -5: (9, -1, -1),
        -6: (11, -1, -1),
    }
    for timestamp, (since, in_topic, in_empty) in special.items():
        for name, expected in ((TOPIC, in_topic), (EMPTY, in_empty)):
            answer = ask(name, timestamp)
            wanted = (E.none, expected) if version >= since else (E.unsupported_version, -1)
            assert (answer.error_code, answer.offset) == wanted, (name, timestamp)
    assert ask(TOPIC, -7).error_code is E.unsupported_version
    found = ask(TOPIC, 1_001)
    assert (found.offset, found.timestamp) == (1, 1_001)
    late = ask(TOPIC, 5_000)
    assert (late.error_code, late.offset, late.timestamp) == (E.none, -1, -1)
    assert ask(MISSING, -1).error_code is E.unknown_topic_or_partition
    assert ask(TOPIC, -1, partition=9).error_code is E.unknown_topic_or_partition


@check(ApiKey.offset_for_leader_epoch)
def offset_for_leader_epoch(node: Asker, version: int) -> None:
    key = ApiKey.offset_for_leader_epoch
    assert len(node.ask(key, version, replica_id=-1, topics=[]).topics) == 0

    def ask(name: str, current: int, wanted: int) -> Any:
        part = {"partition": 0, "current_leader_epoch": current, "leader_epoch": wanted}
        reply = node.ask(
            key, version, replica_id=-1, topics=[{"topic": name, "partitions": [part]}]
        )
        return reply.topics[0].partitions[0]

    found = ask(TOPIC, NO_EPOCH, 0)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (E.none, 0, 3)
    assert ask(TOPIC, 0, 0).error_code is E.none
    assert ask(TOPIC, 7, 0).error_code is E.unknown_leader_epoch
    beyond = ask(TOPIC, NO_EPOCH, 7)
    assert (beyond.error_code, beyond.leader_epoch, beyond.end_offset) == (E.none, -1, -1)
    assert ask(MISSING, NO_EPOCH, 0).error_code is E.unknown_topic_or_partition


@check(ApiKey.delete_records)
def delete_records(node: Asker, version: int) -> None:
    key, name = ApiKey.delete_records, f"deleted-{version}"
    assert len(node.ask(key, version, timeout=1_000, topics=[]).topics) == 0
    node.create_topic(name)
    node.produce(name, batch(b"a", b"b", b"c"))

    def ask(name: str, offset: int) -> Any:
        part = {"partition_index": 0, "offset": offset}
        topic = {"name": name, "partitions": [part]}
        return node.ask(key, version, timeout=1_000, topics=[topic]).topics[0].partitions[0]

    for offset, low_watermark in ((1, 1), (0, 1), (-1, 3)):
        answer = ask(name, offset)
        assert (answer.error_code, answer.low_watermark) == (E.none, low_watermark)
    assert ask(name, 4).error_code is E.offset_out_of_range
    assert ask(MISSING, 0).error_code is E.unknown_topic_or_partition


@check(ApiKey.init_producer_id)
def init_producer_id(node: Asker, version: int) -> None:
    key = ApiKey.init_producer_id
    first, second = (
        node.ask(key, version, transactional_id=None, transaction_timeout=60_000) for _ in range(2)
    )
    assert (first.error_code, first.producer_epoch) == (E.none, 0)
    assert second.producer_id == first.producer_id + 1
    if version >= 3:
        half = node.ask(
            key,
            version,
            transactional_id=None,
            transaction_timeout=60_000,
            producer_id=5,
            producer_epoch=-1,
        )
        assert half.error_code is E.invalid_request


@check(ApiKey.describe_producers)
def describe_producers(node: Asker, version: int) -> None:
    key, name = ApiKey.describe_producers, "producers"
    assert len(node.ask(key, version, topics=[]).topics) == 0
    node.create_topic(name)
    node.produce(name, batch(b"a", b"b", producer_id=77, producer_epoch=3, base_sequence=0))
    topics = [
        {"name": name, "partition_indexes": [0, 9]},
        {"name": MISSING, "partition_indexes": [0]},
    ]
    reply = node.ask(key, version, topics=topics)
    known, no_partition = reply.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 1)
    assert no_partition.error_code is E.unknown_topic_or_partition
    assert codes(reply.topics[1].partitions) == [E.unknown_topic_or_partition]


# The cluster.


@check(ApiKey.api_versions)
def api_versions(node: Asker, version: int) -> None:
    def ask(name: str) -> Any:
        return node.ask(
            ApiKey.api_versions,
            version,
            client_software_name=name,
            client_software_version="1.0",
        )

    reply = ask("tests")
    assert reply.error_code is E.none
    told = {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys}
    assert told[ApiKey.fetch] == SUPPORTED[ApiKey.fetch]
    assert set(APIS) <= set(told)
    if version >= 3:
        assert ask("-no name-").error_code is E.invalid_request


@check(ApiKey.metadata)
def metadata(node: Asker, version: int) -> None:
    key = ApiKey.metadata

    def ask(topics: Any) -> Any:
        return node.ask(key, version, topics=topics, allow_auto_topic_creation=False)

    everything = ask(None if version >= 1 else [])
    assert {TOPIC, EMPTY} <= {each.name for each in everything.topics}
    assert [each.port for each in everything.brokers] == [node.port]
    if version >= 1:
        assert len(ask([]).topics) == 0
    # Before version 4 to ask for a topic was to create it.
    wanted = [{"name": name} for name in (TOPIC, MISSING, "not a name")[: 3 if version >= 4 else 1]]
    found = {each.name: each for each in ask(wanted).topics}
    assert found[TOPIC].error_code is E.none
    assert [each.leader_id for each in found[TOPIC].partitions] == [1, 1]
    if version >= 4:
        assert found[MISSING].error_code is E.unknown_topic_or_partition
        assert found["not a name"].error_code is E.invalid_topic_exception
    if version in (10, 11):
        assert codes(ask([{"name": None}]).topics) == [E.invalid_request]
    if version >= 12:
        by_id = [{"name": None, "topic_id": id_} for id_ in (node.topic_ids[TOPIC], UNKNOWN_ID)]
        assert sorted(codes(ask(by_id).topics)) == [E.none, E.unknown_topic_id]


@check(ApiKey.describe_cluster)
def describe_cluster(node: Asker, version: int) -> None:
    key = ApiKey.describe_cluster
    for endpoint_type, error in ((1, E.none), (2, E.mismatched_endpoint_type), (9, None)):
        if version == 0 and endpoint_type != 1:
            continue
        reply = node.ask(key, version, endpoint_type=endpoint_type)
        expected = E.unsupported_endpoint_type if error is None else error
        assert reply.error_code is expected
        assert len(reply.brokers) == (1 if expected is E.none else 0)


@check(ApiKey.describe_topic_partitions)
def describe_topic_partitions(node: Asker, version: int) -> None:
    def ask(names: list[str], limit: int = 2000, cursor: Any = None) -> Any:
        return node.ask(
            ApiKey.describe_topic_partitions,
            version,
            topics=[{"name": name} for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )

    assert TOPIC in {each.name for each in ask([]).topics}
    assert codes(ask([TOPIC, MISSING]).topics) == [E.unknown_topic_or_partition, E.none]
    page = ask([TOPIC], limit=1)
    assert (page.next_cursor.topic_name, page.next_cursor.partition_index) == (TOPIC, 1)
    rest = ask([TOPIC], cursor={"topic_name": TOPIC, "partition_index": 1})
    assert [each.partition_index for each in rest.topics[0].partitions] == [1]
    assert rest.next_cursor is None
    # The topic of the cursor has gone: the next one is told from its beginning.
    _, after = ask([MISSING, TOPIC], cursor={"topic_name": MISSING, "partition_index": 1}).topics
    assert [each.partition_index for each in after.partitions] == [0, 1]


@check(ApiKey.describe_log_dirs)
def describe_log_dirs(node: Asker, version: int) -> None:
    def ask(topics: Any) -> Any:
        reply = node.ask(ApiKey.describe_log_dirs, version, topics=topics)
        assert codes(reply.results) == [E.none]
        return {each.name: each.partitions for each in reply.results[0].topics}

    assert {TOPIC, EMPTY} <= set(ask(None))
    assert ask([]) == {}
    (partition,) = ask([{"topic": TOPIC, "partitions": [0, 9]}])[TOPIC]
    assert partition.partition_size >= len(batch(b"a", b"b", b"c"))
    assert ask([{"topic": MISSING, "partitions": [0]}]) == {}
