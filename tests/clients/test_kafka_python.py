"""kafka-python: the oldest of Python's clients, with a wire implementation of its own."""

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from brokers import COPIES, NODES, WAIT_S, unsafe
from kafka_python_clients import (
    LEAVES_SOCKETS,
    consumer_of,
    reader_of,
    receive,
    sockets_left,  # noqa: F401 - a fixture
)
from librdkafka import until

with warnings.catch_warnings():  # it loads its schemas in a way that Python no longer likes
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import (
        KafkaAdminClient,
        KafkaProducer,
        OffsetAndMetadata,
        TopicPartition,
    )
    from kafka.admin import ConfigResource, OffsetSpec
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import (
        CommitFailedError,
        InvalidPartitionsError,
        MessageSizeTooLargeError,
        OffsetOutOfRangeError,
        TopicAlreadyExistsError,
    )

pytestmark = [
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    LEAVES_SOCKETS,
]
CODECS = [
    None,
    "gzip",
    pytest.param("snappy", marks=pytest.mark.needs("python:snappy")),
    pytest.param("lz4", marks=pytest.mark.needs("python:lz4")),
    pytest.param("zstd", marks=pytest.mark.needs("python:zstandard")),
]


@pytest.fixture
def admin(bootstrap) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


@pytest.fixture
def producer_of(bootstrap):
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            closing(KafkaProducer(bootstrap_servers=bootstrap, **options))
        )


def make(admin: KafkaAdminClient, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    wish = {"num_partitions": partitions, "replication_factor": COPIES, "configs": settings}
    admin.create_topics({topic: wish}, wait_for_metadata=True)


@pytest.mark.parametrize(
    "acks", [pytest.param(0, marks=unsafe), pytest.param(1, marks=unsafe), "all"]
)
def test_every_level_of_acks_writes_in_order(bootstrap, admin, producer_of, topic, acks) -> None:
    make(admin, topic)
    producer = producer_of(acks=acks, enable_idempotence=acks == "all")
    sent = [producer.send(topic, b"%d" % number) for number in range(300)]
    producer.flush(WAIT_S)
    if acks != 0:
        assert [future.get(WAIT_S).offset for future in sent] == list(range(300))
    with reader_of(bootstrap, topic) as consumer:
        assert [int(record.value) for record in receive(consumer, 300)] == list(range(300))


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_passes_through_untouched(bootstrap, producer_of, topic, codec) -> None:
    producer = producer_of(compression_type=codec, linger_ms=10)
    values = [b"words that repeat %d " % number * 30 for number in range(100)]
    headers = [("trace", b"\x01"), ("trace", b"\x02"), ("empty", b"")]
    options = {"key": b"k", "headers": headers, "timestamp_ms": 1_700_000_000_000}
    for value in values:
        producer.send(topic, value, **options)
    producer.flush(WAIT_S)
    with reader_of(bootstrap, topic) as consumer:
        got = receive(consumer, 100)
    assert [record.value for record in got] == values
    assert {record.key for record in got} == {b"k"}
    assert [tuple(header) for header in got[0].headers] == headers
    assert got[0].timestamp == 1_700_000_000_000


def test_null_and_empty_stay_different(bootstrap, producer_of, topic) -> None:
    pairs = [(None, b""), (b"", None), (b"k", None), (None, b"v")]
    producer = producer_of()
    for key, value in pairs:
        producer.send(topic, value, key=key).get(WAIT_S)
    with reader_of(bootstrap, topic) as consumer:
        got = receive(consumer, len(pairs))
    assert [(record.key, record.value) for record in got] == pairs


def test_a_record_over_the_limit_is_refused(admin, producer_of, topic) -> None:
    make(admin, topic, max_message_bytes="50000")
    # An idempotent one refuses to go on after any refusal, whatever the broker.
    producer = producer_of(enable_idempotence=False)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, bytes(60_000)).get(WAIT_S)
    assert producer.send(topic, b"small").get(WAIT_S).offset == 0


def test_seeks_and_times_find_their_offsets(bootstrap, producer_of, topic) -> None:
    base, part, producer = 1_700_000_000_000, TopicPartition(topic, 0), producer_of()
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp_ms=base + number * 10).get(WAIT_S)
    with reader_of(bootstrap, topic) as consumer:
        for offset in (7, 2, 9):
            consumer.seek(part, offset)
            assert receive(consumer, 1)[0].offset == offset
        consumer.seek_to_beginning(part)
        assert consumer.position(part) == 0
        consumer.seek_to_end(part)
        assert consumer.position(part) == 10
        assert consumer.beginning_offsets([part]) == {part: 0}
        assert consumer.end_offsets([part]) == {part: 10}
        found = consumer.offsets_for_times({part: base + 25})[part]
        assert (found.offset, found.timestamp) == (3, base + 30)
        assert consumer.offsets_for_times({part: base + 91}) == {part: None}


def test_an_offset_out_of_range_is_told(bootstrap, producer_of, topic) -> None:
    producer_of().send(topic, b"x").get(WAIT_S)
    with reader_of(bootstrap, topic, auto_offset_reset="none") as consumer:
        consumer.seek(TopicPartition(topic, 0), 99)
        with pytest.raises(OffsetOutOfRangeError):
            receive(consumer, 1)


class Member(threading.Thread):
    """A group's member on a thread of its own, as an application would run it."""

    def __init__(self, bootstrap: str, topic: str, group: str, **options) -> None:
        super().__init__(daemon=True)
        self.owns: set[TopicPartition] = set()
        self.failure: BaseException | None = None
        self._made = lambda: consumer_of(bootstrap, topic, group=group, **options)
        self._leaving = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            with self._made() as consumer:
                while not self._leaving.is_set():
                    # A poll that ends between SyncGroup and its answer forgets the answer (3.0.12).
                    consumer.poll(timeout_ms=600)
                    self.owns = set(consumer.assignment())
        except BaseException as failure:  # noqa: BLE001 - the test's own thread raises it
            self.failure = failure
        self.owns = set()

    def leave(self) -> None:
        self._leaving.set()
        self.join(WAIT_S)


def wait_for_sizes(members: list[Member], *sizes: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while [len(member.owns) for member in members] != list(sizes):
        for member in members:
            if member.failure is not None:
                raise member.failure
        assert time.monotonic() < deadline, [member.owns for member in members]
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor],
    ids=lambda kind: kind.name,
)
def test_members_share_partitions_as_they_come_and_go(
    bootstrap, admin, topic, group, assignor
) -> None:
    make(admin, topic, partitions=4)
    options = {"partition_assignment_strategy": (assignor,)}
    members = [Member(bootstrap, topic, group, **options)]
    wait_for_sizes(members, 4)
    members.append(Member(bootstrap, topic, group, **options))
    wait_for_sizes(members, 2, 2)
    assert not members[0].owns & members[1].owns
    members.pop(0).leave()
    wait_for_sizes(members, 4)
    members.pop().leave()


def test_a_group_goes_on_where_it_committed(bootstrap, producer_of, topic, group) -> None:
    part, producer = TopicPartition(topic, 0), producer_of()
    for number in range(10):
        producer.send(topic, b"%d" % number)
    producer.flush(WAIT_S)
    with consumer_of(bootstrap, topic, group=group) as first:
        receive(first, 6)
        first.commit()
        assert first.committed(part) == 6
        first.commit({part: OffsetAndMetadata(4, "a note", -1)})
        assert first.committed(part, metadata=True).metadata == "a note"
    with consumer_of(bootstrap, topic, group=group) as second:
        assert receive(second, 1)[0].offset == 4


def test_a_stranger_can_not_commit_for_a_group_with_members(
    bootstrap, producer_of, topic, group
) -> None:
    producer_of().send(topic, b"x").get(WAIT_S)
    with consumer_of(bootstrap, topic, group=group) as member:
        receive(member, 1)
        with consumer_of(bootstrap, group=group) as stranger:
            stranger.assign([TopicPartition(topic, 0)])
            with pytest.raises(CommitFailedError):
                stranger.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})


def test_topics_and_settings_are_administered(admin, topic) -> None:
    make(admin, topic, partitions=2, retention_ms="60000")
    assert topic in admin.list_topics()
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])
    admin.create_partitions({topic: 3})
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 1})

    def partitions() -> int:
        [described] = admin.describe_topics([topic])
        return len(described["partitions"])

    # Each question may go to another node, which may be behind by a moment.
    until(lambda: partitions() == 3, what="three partitions")

    def setting(name: str) -> str:
        shown = admin.describe_configs([ConfigResource("topic", topic)], config_filter="all")
        return shown["topic"][topic][name]["value"]

    assert setting("retention.ms") == "60000"
    admin.alter_configs([ConfigResource("topic", topic, {"segment.bytes": "2000000"})])
    until(lambda: setting("segment.bytes") == "2000000", what="the setting is in force")
    assert setting("retention.ms") == "60000"
    admin.reset_configs([ConfigResource("topic", topic, {"retention.ms": None})])
    until(lambda: setting("retention.ms") == "604800000", what="the default is in force")
    admin.delete_topics([topic])
    until(lambda: topic not in admin.list_topics(), what="the topic is gone")


def test_records_and_offsets_are_administered(admin, producer_of, topic) -> None:
    part, producer = TopicPartition(topic, 0), producer_of()
    for second in (1, 3, 2):
        producer.send(topic, b"x", timestamp_ms=1_700_000_000_000 + second * 1000).get(WAIT_S)
    for spec, offset in {
        OffsetSpec.EARLIEST: 0,
        OffsetSpec.LATEST: 3,
        OffsetSpec.MAX_TIMESTAMP: 1,
    }.items():
        assert admin.list_partition_offsets({part: spec})[part].offset == offset
    admin.delete_records({part: 2})
    assert admin.list_partition_offsets({part: OffsetSpec.EARLIEST})[part].offset == 2


def test_groups_are_administered(bootstrap, admin, producer_of, topic, group) -> None:
    part, producer = TopicPartition(topic, 0), producer_of()
    producer.send(topic, b"x").get(WAIT_S)
    with consumer_of(bootstrap, topic, group=group, client_id="its-name") as member:
        receive(member, 1)
        member.commit()
        described = admin.describe_groups([group])[group]
        assert described["members"][0]["client_id"] == "its-name"
    assert group in {listed["group_id"] for listed in admin.list_groups()}
    assert admin.list_group_offsets([group])[group][part].offset == 1
    admin.alter_group_offsets(group, {part: OffsetAndMetadata(0, "", -1)})
    assert admin.list_group_offsets([group])[group][part].offset == 0
    admin.delete_groups([group])
    assert group not in {listed["group_id"] for listed in admin.list_groups()}


def test_the_cluster_is_described(bootstrap, admin) -> None:
    described = admin.describe_cluster()
    there = {f"{node['host']}:{node['port']}" for node in described["brokers"]}
    assert len(described["brokers"]) == NODES and there == set(bootstrap.split(","))
    assert admin.describe_log_dirs()
