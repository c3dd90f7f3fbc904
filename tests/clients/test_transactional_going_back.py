"""A loop that is sent back behind its group's position, by a leader that was deposed and has not heard of it, or rightly."""

from typing import Any

import loop_broker
import pytest
from brokers import calm
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from fencepost.clients.transactional import Output, TransactionalLoop, asking_others, going_back
from librdkafka import create, producer_of, send, until
from loop_broker import Log

AWAY = None


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Ends:
    """What new clients are told one after the other, the last for ever."""

    def __init__(self, *ends: int | None) -> None:
        self._ends = list(ends)
        self.asked = self.closed = 0

    def __call__(self, settings: dict[str, Any]) -> "Ends":
        assert settings["isolation.level"] == "read_uncommitted"
        return self

    def get_watermark_offsets(self, _place: TopicPartition, _timeout: float) -> tuple[int, int]:
        end = self._ends[min(self.asked, len(self._ends) - 1)]
        self.asked += 1
        if end is AWAY:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return 0, end

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(asking_others, "time", made)
    return made


def loop_on(
    log: Log, patch: pytest.MonkeyPatch, *ends: int | None
) -> tuple[TransactionalLoop, Ends]:
    log.give_to(patch)
    told = Ends(*ends)
    patch.setattr(going_back, "Consumer", told)
    loop = TransactionalLoop(
        bootstrap="nowhere:1",
        topics=["in"],
        group_id="billing",
        transform=lambda message: [Output("out", value=message.offset())],
    )
    return loop, told


@pytest.mark.parametrize("ends", [[15], [10, AWAY, 10, 15]], ids=["the next knows", "a later one"])
def test_a_position_behind_one_brokers_end_is_no_reason_to_begin_anew(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, ends: list[int | None]
) -> None:
    """All of the topic would be in the outputs twice, and the group's position where it was long ago."""
    log = Log(15)
    log.position, log.resets = 12, 2
    loop, told = loop_on(log, monkeypatch, *ends)
    assert [loop.step() for _ in range(3)] == [0, 0, 3]
    assert log.outputs == [12, 13, 14] and log.position == 15
    assert told.closed == told.asked >= 2


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(3)
    log.position, log.resets = 12, 1
    loop, told = loop_on(log, monkeypatch, AWAY, 3)
    assert loop.step() == 3 and log.outputs == [0, 1, 2]
    assert told.asked >= asking_others.ASKED_MIN and clock.now_s >= 100 + asking_others.GONE_S
    assert "in-0: it was sent to offset 0, and its group is at 12. The partition ends at 3" in (
        caplog.text
    )


def test_who_can_ask_nobody_processes_nothing(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    log = Log(15)
    log.position, log.resets = 12, 1
    loop, _ = loop_on(log, monkeypatch, AWAY)
    assert [loop.step() for _ in range(2)] == [0, 3] and log.outputs == [12, 13, 14]


def test_whoever_reads_on_asks_nobody(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    log = Log(15)
    loop, told = loop_on(log, monkeypatch, AWAY)
    assert loop.step() == 15
    log.inputs = 20
    assert loop.step() == 5 and told.asked == 0
    log.position = 7  # an operator's
    loop._seek({("in", 0): 7})
    assert loop.step() == 13 and told.asked == 0


def test_what_another_member_has_committed_meanwhile_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """1. The loop has committed 10, and loses the partition. 2. Another one commits 30. 3. The loop has it back, and a deposed leader,
    whose log begins at 15 and ends at 20."""
    log = Log(10)
    loop, told = loop_on(log, monkeypatch, 32)
    assert loop.step() == 10
    log.position, log.inputs = 30, 32
    loop._onward.is_taken(loop._consumer, [TopicPartition("in", 0)])
    loop._consumer.seek(TopicPartition("in", 0, 15))
    assert [loop.step(), loop.step()] == [0, 2] and told.asked == 1
    assert log.outputs == [*range(10), 30, 31]


def test_a_position_that_a_deposed_coordinator_tells_is_not_gone_back_to(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """1. The loop's producer has found the group's new coordinator, its consumer has not. 2. It commits 10.
    3. The next transaction fails. 4. The old coordinator tells the position of before 2."""
    log = Log(10)
    loop, _ = loop_on(log, monkeypatch, AWAY)
    assert loop.step() == 10
    log.inputs = 12

    class Deposed(loop_broker.Reads):
        def committed(self, *_: Any) -> list[TopicPartition]:
            return [TopicPartition("in", 0, 4)]

    loop._consumer.__class__ = Deposed
    log.epoch += 1  # it is fenced, and begins anew
    assert loop.step() == 0
    until(lambda: loop.step() == 2, what="the rest is committed")
    assert log.outputs == list(range(12))


@calm
@pytest.mark.slow
def test_a_real_client_goes_on_where_its_group_is(bootstrap: str, fresh, monkeypatch) -> None:
    """Ten records are there, and the group is at 15: a deposed leader's end looks so. New clients are told 15 for a while."""
    source, group = fresh("in"), fresh("group")
    create(bootstrap, source)
    producer = producer_of(bootstrap)
    send(producer, source, [b"v"] * 10)
    with Consumer({"bootstrap.servers": bootstrap, "group.id": group}) as consumer:
        consumer.commit(offsets=[TopicPartition(source, 0, 15)], asynchronous=False)
    monkeypatch.setattr(going_back, "Consumer", Ends(15))
    seen: list[int] = []

    def transform(message: Any) -> list[Output]:
        seen.append(message.offset())
        return []

    with TransactionalLoop(
        bootstrap=bootstrap, topics=[source], group_id=group, transform=transform
    ) as loop:
        asked = going_back.Consumer
        until(lambda: loop.step() == 0 and asked.asked > 0, what="it was sent to the beginning")
        send(producer, source, [b"v"] * 10)
        until(lambda: loop.step() == 5, what="it reads on")
    assert seen == list(range(15, 20))
