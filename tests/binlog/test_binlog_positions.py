"""Positions in a compacted topic that many share."""

import threading
import time

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from fencepost.clients.binlog import Settings, reading
from fencepost.clients.binlog.kept_positions import COMPACT, KeptPositions, latest_by_key
from fencepost.clients.binlog.reading import NotReadable, read_to_end
from fencepost.clients.binlog.transactions import Transactions
from fencepost.clients.transactional.kept_topics import ensure_topic

pytestmark = pytest.mark.slow


def producer_of(bootstrap: str, name: str) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    made.init_transactions(20)
    return made


def keep(producer: Producer, positions: KeptPositions, name: str, text: str) -> None:
    producer.begin_transaction()
    positions.write(producer, name, text)
    assert producer.flush(20) == 0


def seen(positions: KeptPositions, name: str) -> str | None:
    """By who only looks."""
    found = positions.find(name, 0)
    return None if found is None else found.position


def test_a_position_behind_an_open_transaction_is_waited_for(bootstrap: str) -> None:
    """1. Another source writes its position and does not commit yet.  2. Ours is committed behind it.
    3. Ours is read: the last stable offset is before both."""
    positions = KeptPositions({"bootstrap.servers": bootstrap}, "positions-shared")
    positions.prepare()
    other, ours = producer_of(bootstrap, "other"), producer_of(bootstrap, "ours")
    keep(ours, positions, "ours", "1")
    ours.commit_transaction(30)
    keep(other, positions, "other", "7")
    keep(ours, positions, "ours", "2")
    ours.commit_transaction(30)
    is_reading = threading.Event()
    found: list[str | None] = []

    def read() -> None:
        is_reading.set()
        found.append(seen(positions, "ours"))

    reading = threading.Thread(target=read)
    reading.start()
    is_reading.wait(30)
    reading.join(1.0)
    assert reading.is_alive(), f"it did not wait, and found {found}"
    other.commit_transaction(30)
    reading.join(30)
    assert found == ["2"] and seen(positions, "other") == "7"


def test_an_aborted_position_was_never_kept(bootstrap: str) -> None:
    positions = KeptPositions({"bootstrap.servers": bootstrap}, "positions-aborted")
    positions.prepare()
    assert seen(positions, "s") is None
    producer = producer_of(bootstrap, "aborts")
    keep(producer, positions, "s", "1")
    producer.commit_transaction(30)
    keep(producer, positions, "s", "2")
    producer.abort_transaction(30)
    assert seen(positions, "s") == "1"
    assert positions.read(producer, "s") == "1"


def test_a_topic_that_would_forget_positions_is_refused(bootstrap: str) -> None:
    client = {"bootstrap.servers": bootstrap}
    ensure_topic(client, "positions-deleted", 1)
    with pytest.raises(NotReadable, match=r"positions-deleted has cleanup\.policy=delete"):
        KeptPositions(client, "positions-deleted").prepare()
    assert latest_by_key(client, "positions-deleted", 0) == {}


def add_partitions(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
    deadline = time.monotonic() + 30
    while len(admin.list_topics(topic, 30).topics[topic].partitions) < partitions:
        assert time.monotonic() < deadline, (
            f"{topic} has no {partitions} partitions in thirty seconds"
        )
        time.sleep(0.05)


def test_a_later_position_is_found_though_partitions_were_added(bootstrap: str) -> None:
    """Ten names: by their keys most belong in another partition then. What lies in those has no order with partition 0."""
    topic, names = "positions-spread", [f"source-{number}" for number in range(10)]
    client = {"bootstrap.servers": bootstrap}
    positions = KeptPositions(client, topic)
    positions.prepare()
    for position in ("1", "2"):
        producer = producer_of(bootstrap, "spreads")  # which sees the partitions there are now
        for name in names:
            keep(producer, positions, name, position)
            producer.commit_transaction(30)
        if position == "1":
            add_partitions(bootstrap, topic, 3)
    assert {each.partition() for each in read_to_end(client, topic)} == {0}
    producer.begin_transaction()
    for partition in (1, 2):
        for name in names:
            producer.produce(topic, key=name, value="0", partition=partition)
    producer.commit_transaction(30)
    assert [seen(positions, name) for name in names] == ["2"] * len(names)


def test_a_topic_with_positions_in_several_partitions_is_refused(bootstrap: str) -> None:
    client = {"bootstrap.servers": bootstrap}
    ensure_topic(client, "positions-several", 3, config=COMPACT)
    with pytest.raises(
        NotReadable,
        match=r"positions-several has 3 partitions, .* must have 1: .*Create a compacted",
    ):
        KeptPositions(client, "positions-several").prepare()


def deposed(ends: list[int]) -> type[Consumer]:
    """Clients that are told of the old leader: one for each of these ends."""

    class Deposed(Consumer):  # type: ignore[misc]
        def get_watermark_offsets(self, *asked: object) -> tuple[int, int]:
            first, end = super().get_watermark_offsets(*asked)
            return first, ends.pop() if ends else end

        def consume(self, *asked: object) -> list[Message]:
            found = super().consume(*asked)
            return [each for each in found if each.error() or not ends or each.offset() < ends[0]]

    return Deposed


def test_a_position_is_read_though_a_deposed_leader_has_an_older_one(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Kafka: 1. a leader is cut off at position 1 and deposed; 2. position 2 is committed at the new one; 3. a source is
    started again, and the first clients that it makes find the old leader."""
    settings = Settings(source="deposed", bootstrap=bootstrap, position_topic="positions-deposed")
    positions = KeptPositions({"bootstrap.servers": bootstrap}, settings.position_topic)
    positions.prepare()
    before = Transactions(settings, positions)
    before.start()
    before.commit("1")
    ends = [before.end_of(positions.topic)] * 3
    before.commit("2")

    monkeypatch.setattr(reading, "Consumer", deposed(ends))
    after = Transactions(settings, positions)
    after.start()
    found = positions.find("deposed", after.end_of(positions.topic))
    assert found is not None and found.position == "2" and not ends
    keys = {each.key() for each in read_to_end({"bootstrap.servers": bootstrap}, positions.topic)}
    assert keys == {b"deposed"}, "nothing else is left there for who reads what is committed"


def test_any_producer_reads_its_position_though_a_deposed_leader_has_an_older_one(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, of the outbox's relay in examples/order_service: it would have relayed the second message once more."""
    positions = KeptPositions({"bootstrap.servers": bootstrap}, "positions-relayed")
    positions.prepare()
    before = producer_of(bootstrap, "relays")
    keep(before, positions, "relay", "1")
    before.commit_transaction(30)
    keep(before, positions, "relay", "2")
    ends = [2] * 3  # behind the first one and its marker
    before.commit_transaction(30)
    after = producer_of(bootstrap, "relays")
    monkeypatch.setattr(reading, "Consumer", deposed(ends))
    assert positions.read(after, "relay") == "2" and not ends
