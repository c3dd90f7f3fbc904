"""A bit that flipped on a broker's disk is no record: who keeps something in Kafka, or acts on what is there, looks at checksums.

The broker is librdkafka's own, which serves what it was given. librdkafka looks at no checksum unless it is told to.
"""

import socket
from collections.abc import Iterator
from struct import pack, unpack
from typing import Any

import pytest
from confluent_kafka import Producer
from fencepost.clients.binlog import reading
from fencepost.clients.binlog.kept_positions import KeptPositions
from fencepost.clients.spark import task_decisions
from fencepost.clients.transactional import TransactionalLoop
from fencepost.clients.transactional.inputs import InputRefused
from fencepost.cluster.wire.records import Record, build_batch

PRODUCE, VERSION = 0, 7


@pytest.fixture
def broker() -> Iterator[str]:
    owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused", "log_level": 0})
    (found,) = owner.list_topics(timeout=10).brokers.values()
    for topic in ("in", "positions"):
        owner.list_topics(topic, timeout=10)
    yield f"{found.host}:{found.port}"
    owner.flush(0)  # it ends with its broker


def batch(key: bytes, value: bytes, *, flip: bool = False) -> bytes:
    whole = bytes(build_batch([Record(0, 1_700_000_000_000, key, value, ())]))
    assert whole.count(key) == 1
    return whole.replace(key, bytes([key[0] ^ 4]) + key[1:]) if flip else whole


def give(broker: str, topic: str, data: bytes) -> None:
    """As it is: no client of ours would send it."""
    host, _, port = broker.rpartition(":")
    name = pack(">h", len(topic)) + topic.encode()
    asked = pack(">hhih", PRODUCE, VERSION, 1, -1) + pack(">hhi", -1, -1, 5_000)
    asked += pack(">i", 1) + name + pack(">iii", 1, 0, len(data)) + data
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        plain.sendall(pack(">i", len(asked)) + asked)
        plain.recv(unpack(">i", plain.recv(4, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)


def test_a_position_that_can_not_be_read_is_not_the_one_before(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All between them would be written once more."""
    monkeypatch.setattr(reading, "READ_S", 3.0)
    for number, flip in ((100, False), (200, True)):
        give(broker, "positions", batch(b"shop", b"0-1-%d" % number, flip=flip))
    positions = KeptPositions({"bootstrap.servers": broker}, "positions")
    with pytest.raises(TimeoutError, match="CRC"):
        positions.find("shop", 2)


def test_a_loop_ends_where_an_input_can_not_be_read(broker: str) -> None:
    give(broker, "in", batch(b"key-a", b"1"))
    give(broker, "in", batch(b"key-b", b"2", flip=True))
    seen = []

    def transform(message: Any) -> list[Any]:
        seen.append(message.key())
        return []

    with (
        TransactionalLoop(
            bootstrap=broker,
            topics=["in"],
            group_id="g",
            transform=transform,
            consumer_config={"log_level": 0},
            producer_config={"log_level": 0},
        ) as loop,
        pytest.raises(InputRefused, match=r"in can't be read on by group g: .*CRC"),
    ):
        loop.run()
    assert set(seen) == {b"key-a"}


def test_a_tasks_decision_is_read_with_its_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found(Exception):
        """What a consumer was made with."""

    def consumer(settings: dict[str, Any]) -> Any:
        raise Found(settings)

    monkeypatch.setattr(task_decisions, "Consumer", consumer)
    monkeypatch.setattr(task_decisions.DecisionRecords, "_ready", lambda _: 1)
    monkeypatch.setattr(task_decisions.DecisionRecords, "_acknowledged", lambda *_: {})
    monkeypatch.setattr(task_decisions.DecisionRecords, "_ends", lambda *_: {})
    records = task_decisions.DecisionRecords.__new__(task_decisions.DecisionRecords)
    for name, value in {"_key": b"k", "_keys": (), "_owners": None, "_owners_partition": -1, "_topic": "t", "_client": {}}.items():  # fmt: skip
        setattr(records, name, value)
    with pytest.raises(Found) as made:
        records.last()
    assert made.value.args[0]["check.crcs"] == "true"
