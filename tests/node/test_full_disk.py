"""A disk without room: reads go on, writes get a clear error, and writing goes on by itself when there is room."""

from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.metrics.health import Health
from scraping import samples, value_of
from sim_node import NODE, SimNode, batch

E = ErrorCode
TOPIC = "stream"
VALUE = b"v" * 1000


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[SimNode]:
    simulated = SimNode(seed=request.node.name)
    simulated.start()
    simulated.create_topic(TOPIC, 2)
    yield simulated
    simulated.close()


def fill_up(node: SimNode, room: int = 0) -> None:
    files = node.world.disk(NODE).files
    files.capacity = files.used + room


def make_room(node: SimNode) -> None:
    node.world.disk(NODE).files.capacity = None


def count(node: SimNode, partition: int = 0) -> int:
    """How many records a reader finds."""
    found, offset = 0, 0
    while True:
        answer = node.fetch(TOPIC, offset, partition=partition)
        assert answer.error_code is E.none
        if offset == answer.high_watermark:
            return found
        data = memoryview(answer.records)
        assert len(data) > 0
        position = 0
        while position < len(data):
            size = 12 + int.from_bytes(data[position + 8 : position + 12])
            last = int.from_bytes(data[position + 23 : position + 27])
            first = int.from_bytes(data[position : position + 8])
            found += last + 1
            offset = first + last + 1
            position += size


def write_until_full(node: SimNode) -> tuple[int, ErrorCode]:
    for acknowledged in range(100):
        error = node.produce(TOPIC, batch(VALUE)).error_code
        if error is not E.none:
            return acknowledged, error
    raise AssertionError("the disk did not fill up")


@pytest.mark.parametrize("room", [0, 1, 60, 1_100, 5_000, 20_000])
def test_a_full_disk_refuses_writes_serves_reads_and_goes_on_by_itself(
    node: SimNode, room: int
) -> None:
    assert node.produce(TOPIC, batch(VALUE)).error_code is E.none
    fill_up(node, room)
    acknowledged, error = write_until_full(node)
    assert error is E.kafka_storage_error
    assert count(node) == 1 + acknowledged
    for _ in range(3):  # and stays so, however often it is tried
        assert node.produce(TOPIC, batch(VALUE, VALUE)).error_code is E.kafka_storage_error
    node.sleep(60.0)  # checkpoints and retention meet the full disk too
    assert count(node) == 1 + acknowledged
    make_room(node)
    node.sleep(5.0)
    assert node.produce(TOPIC, batch(VALUE)).error_code is E.none
    assert count(node) == 2 + acknowledged


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("room", [0, 700, 4_000])
def test_a_crash_on_a_full_disk_loses_nothing_acknowledged(
    node: SimNode, room: int, *, power: bool
) -> None:
    assert node.produce(TOPIC, batch(VALUE)).error_code is E.none
    fill_up(node, room)
    acknowledged, _ = write_until_full(node)
    (node.world.crash if power else node.world.kill)(NODE)
    make_room(node)
    node.start()
    assert count(node) == 1 + acknowledged
    assert node.produce(TOPIC, batch(VALUE)).error_code is E.none


def test_an_idempotent_producer_goes_on_with_its_sequence_when_there_is_room(
    node: SimNode,
) -> None:
    def send(sequence: int) -> Any:
        data = batch(VALUE, producer_id=5_000, producer_epoch=0, base_sequence=sequence)
        return node.produce(TOPIC, data)

    assert send(0).error_code is E.none
    fill_up(node)
    assert send(1).error_code is E.kafka_storage_error
    make_room(node)
    node.sleep(5.0)
    again = send(1)
    assert (again.error_code, again.base_offset) == (E.none, 1)
    assert send(1).base_offset == 1
    assert count(node) == 2


def test_acks_1_and_0_on_a_full_disk_are_refused_too(node: SimNode) -> None:
    fill_up(node)
    assert node.produce(TOPIC, batch(VALUE), acks=1).error_code is E.kafka_storage_error
    make_room(node)
    node.sleep(5.0)
    assert node.produce(TOPIC, batch(VALUE), acks=1).error_code is E.none


@pytest.mark.parametrize("room", [0, 30, 200])
def test_a_topic_that_finds_no_room_is_refused_with_an_error_and_made_later(
    node: SimNode, room: int
) -> None:
    def create(name: str) -> Any:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        reply = node.ask(ApiKey.create_topics, timeout=2_000, topics=[topic])
        return reply.topics[0]

    assert node.produce(TOPIC, batch(VALUE)).error_code is E.none
    fill_up(node, room)
    refused = [create(f"late-{number}") for number in range(5)]
    assert refused[-1].error_code is E.kafka_storage_error
    assert "No space left on device" in refused[-1].error_message
    assert count(node) == 1
    make_room(node)
    node.sleep(10.0)
    for number, earlier in enumerate(refused):
        error = create(f"late-{number}").error_code
        allowed = {E.topic_already_exists} if earlier.error_code is E.none else {E.none}
        if earlier.error_code is E.request_timed_out:  # it may have happened
            allowed |= {E.topic_already_exists}
        assert error in allowed, (number, earlier)
    node.topic_ids["late-4"] = (
        node.ask(ApiKey.metadata, topics=[{"name": "late-4"}], allow_auto_topic_creation=False)
        .topics[0]
        .topic_id
    )
    assert node.produce("late-4", batch(VALUE)).error_code is E.none


def test_offsets_are_refused_on_a_full_disk_and_committed_when_there_is_room(
    node: SimNode,
) -> None:
    def commit(offset: int) -> ErrorCode:
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
        reply = node.ask(
            ApiKey.offset_commit,
            9,
            group_id="group",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": TOPIC, "partitions": [part]}],
        )
        error: ErrorCode = reply.topics[0].partitions[0].error_code
        return error

    def fetch() -> int:
        wanted = {"group_id": "group", "topics": None, "member_id": None, "member_epoch": -1}
        (found,) = node.ask(ApiKey.offset_fetch, 9, groups=[wanted]).groups
        assert found.error_code is E.none
        offset: int = found.topics[0].partitions[0].committed_offset
        return offset

    for _ in range(50):
        if node.ask(ApiKey.find_coordinator, 3, key="group", key_type=0).error_code is E.none:
            break
        node.sleep(0.1)
    assert commit(1) is E.none
    fill_up(node)
    # Kafka's coordinator makes this of a storage error: the client looks for it anew and tries again.
    assert commit(2) in (E.not_coordinator, E.coordinator_not_available)
    make_room(node)
    node.sleep(10.0)
    assert fetch() == 1
    assert commit(3) is E.none
    assert fetch() == 3


def test_a_node_that_starts_on_a_full_disk_says_so_once_and_serves_when_there_is_room(
    node: SimNode,
) -> None:
    assert node.produce(TOPIC, batch(VALUE)).error_code is E.none
    node.world.kill(NODE)
    node.world.machine(NODE).events.clear()
    fill_up(node)
    with pytest.raises(AssertionError, match="did not start"):
        node.start()
    assert node.events == ["metadata_disk_full"]
    said = node.run(lambda: Health(node.broker).verdict())
    assert said.state.value == "disk_full" and "Make room there" in said.why
    make_room(node)
    node.sleep(5.0)
    assert count(node) == 1
    assert node.produce(TOPIC, batch(VALUE)).error_code is E.none


def test_a_disk_that_only_the_metadata_has_found_full_is_told_as_the_state_of_the_node(
    node: SimNode,
) -> None:
    """Nobody produces, so no batch is refused: FencepostDiskFull asks for this as well."""
    fill_up(node)
    topic = {"name": "late", "num_partitions": 1, "replication_factor": 1}
    refused = node.ask(ApiKey.create_topics, timeout=2_000, topics=[topic]).topics[0]
    assert refused.error_code is not E.none
    node.sleep(60.0)
    found = samples(node.run(node.broker.metrics.scrape.text).decode())
    assert value_of(found, "fencepost_node_state", state="disk_full") == 1
    assert value_of(found, "fencepost_disk_full") == 0


def test_producer_ids_and_missing_topics_are_refused_on_a_full_disk_and_given_later(
    node: SimNode,
) -> None:
    def take() -> ErrorCode:
        reply = node.ask(ApiKey.init_producer_id, transactional_id=None, transaction_timeout=1_000)
        error: ErrorCode = reply.error_code
        return error

    def look() -> ErrorCode:
        reply = node.ask(ApiKey.metadata, topics=[{"name": "auto"}])
        error: ErrorCode = reply.topics[0].error_code
        return error

    def find() -> ErrorCode:
        reply = node.ask(ApiKey.find_coordinator, 3, key="group", key_type=0)
        error: ErrorCode = reply.error_code
        return error

    fill_up(node)
    for _ in range(2):  # the first finds the disk full, the second knows it
        assert take() is E.coordinator_load_in_progress
        assert look() is E.unknown_topic_or_partition
        assert find() is E.coordinator_not_available
    make_room(node)
    node.sleep(10.0)
    assert (take(), look()) == (E.none, E.none)
    find()
    node.sleep(1.0)
    assert find() is E.none
    assert "client_request_failed" not in node.events
