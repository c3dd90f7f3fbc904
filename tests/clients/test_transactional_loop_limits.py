"""Loops whose transformations are slow, whose id another loop has, and that may not read."""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator

import loop_broker
import pytest
from brokers import WAIT_S
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from fencepost.clients.transactional import (
    InputRefused,
    Output,
    TransactionalLoop,
    TransactionTooSlow,
    loop_limits,
)
from fencepost.clients.transactional import loop as loop_module
from fencepost.clients.transactional.loop_limits import LoopLimits
from librdkafka import consumer_of, create, producer_of, receive, send, until
from loop_broker import FENCED, Input, Log, Reads, Writes

EPOCH_IS_OLD = FENCED.args[0]


class Clock:
    """Of the loop and of its broker: time passes when a transformation takes it, and not when the machine is busy."""

    def __init__(self) -> None:
        self._now = 100.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (loop_limits, loop_broker):
        monkeypatch.setattr(module, "time", made)
    return made


def at_its_end(message: Message) -> list[Output]:
    return [Output("out", value=message.offset())]


def loop_of(
    transform=at_its_end, timeout_ms: int = 200, max_poll_ms: int = 300_000
) -> TransactionalLoop:
    return TransactionalLoop(
        bootstrap="nowhere:1",
        topics=["in"],
        group_id="billing",
        transactional_id="billing-1",
        transform=transform,
        consumer_config={"max.poll.interval.ms": max_poll_ms},
        producer_config={"transaction.timeout.ms": timeout_ms},
    )


def run_until(log: Log, loop: TransactionalLoop, offset: int) -> None:
    until(lambda: loop.step() >= 0 and log.position >= offset, what="all is committed")


def test_a_transaction_ends_before_its_time_is_up(monkeypatch, clock) -> None:
    """500 messages of 40 ms were read at once, fenced, and read again, for ever."""
    log = Log(12, timeout_s=0.2)
    log.give_to(monkeypatch)

    def takes_40_ms(message: Message) -> list[Output]:
        clock.sleep(0.04)
        return at_its_end(message)

    loop = loop_of(takes_40_ms)
    run_until(log, loop, 12)
    assert log.outputs == list(range(12))
    assert (loop.committed, loop.aborted) == (12, 0)


def test_a_message_that_is_slow_behind_others_is_committed_alone(monkeypatch, clock) -> None:
    log = Log(4, timeout_s=0.2)
    log.give_to(monkeypatch)

    def last_is_slow(message: Message) -> Iterator[Output]:
        yield Output("out", value=message.offset())
        clock.sleep(0.16 if message.offset() == 3 else 0.03)

    loop = loop_of(last_is_slow)
    run_until(log, loop, 4)
    assert log.outputs == list(range(4))
    assert (loop.committed, loop.aborted) == (4, 1)


def test_a_message_that_takes_longer_alone_than_a_transaction_may_ends_run(
    monkeypatch, clock
) -> None:
    log = Log(3, timeout_s=0.2)
    log.give_to(monkeypatch)

    def last_is_too_slow(message: Message) -> Iterator[Output]:
        yield Output("out", value=message.offset())
        if message.offset() == 2:
            clock.sleep(0.3)
            yield Output("out", value="and one more")

    loop = loop_of(last_is_too_slow)
    said = (
        r'in-0 offset 2 takes 0\.\d s alone.*producer_config={"transaction\.timeout\.ms": [1-9]\d*}'
    )
    with pytest.raises(TransactionTooSlow, match=said):
        loop.run()
    assert log.outputs == [0, 1], "what was before it is committed"
    assert loop.aborted == 2


def test_a_transaction_ends_before_the_group_gives_its_member_up(monkeypatch, clock) -> None:
    """With a transaction.timeout.ms above max.poll.interval.ms each batch ended too late, and was read again, for ever."""
    log = Log(12, timeout_s=6.0, max_poll_s=0.2)
    log.give_to(monkeypatch)

    def takes_40_ms(message: Message) -> list[Output]:
        clock.sleep(0.04)
        return at_its_end(message)

    loop = loop_of(takes_40_ms, timeout_ms=6_000, max_poll_ms=200)
    run_until(log, loop, 12)
    assert log.outputs == list(range(12))
    assert (loop.committed, loop.aborted) == (12, 0)


def slow_message(clock: Clock, seconds: float, *, outputs_first: bool):
    def transform(message: Message) -> Iterator[Output]:
        if outputs_first:
            yield Output("out", value=message.offset())
        clock.sleep(seconds if message.offset() == 2 else 0)
        yield Output("out", value=message.offset())

    return transform


@pytest.mark.parametrize(
    ("timeout_s", "max_poll_s", "outputs_first", "said", "not_said"),
    [
        (6.0, 0.2, False, r'{"max\.poll\.interval\.ms": 1000}', "fenced|transaction.timeout"),
        # Its outputs come at its end: the transaction was open for no time at all.
        (0.2, 0.2, False, r'{"max\.poll\.interval\.ms": 1000}', "fenced|transaction.timeout"),
        (0.2, 6.0, True, r'twice and fenced.*{"transaction\.timeout\.ms": 1000}', r"max\.poll"),
        (
            0.2,
            0.2,
            True,
            r'twice and fenced.*{"transaction\.timeout\.ms": 1000}.*{"max\.poll\.interval\.ms": 1000}',
            "$^",
        ),
    ],
)
def test_a_message_that_is_too_slow_alone_is_told_with_the_setting_that_it_exceeds(
    timeout_s, max_poll_s, outputs_first, said, not_said, monkeypatch, clock
) -> None:
    """A member that had left its group was told to raise the time of its transaction, or nothing, and read it again for ever."""
    log = Log(3, timeout_s=timeout_s, max_poll_s=max_poll_s)
    log.give_to(monkeypatch)
    slow = slow_message(clock, 0.3, outputs_first=outputs_first)
    loop = loop_of(slow, int(timeout_s * 1000), int(max_poll_s * 1000))
    with pytest.raises(TransactionTooSlow, match=said) as ended:
        for _ in range(20):
            loop.step()
    assert not re.search(not_said, str(ended.value))
    assert set(log.outputs) == {0, 1}, "what was before it is committed"


def test_a_loop_with_anothers_id_pauses_longer_and_longer_and_says_so(caplog) -> None:
    """Of a process that is replaced and its successor each fences the other once or twice: neither must end."""
    paused: list[float | None] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            paused.append(timeout)
            return False

    limits = LoopLimits("billing-1", 60_000, 300_000, Stopping())
    for _ in range(7):
        limits.begin()
        assert limits.failed(EPOCH_IS_OLD, Input(0)) is None
    assert paused == [0, 1, 2, 4, 8, 15, 15]
    said = "Another process works as billing-1: give each loop its own transactional_id"
    assert caplog.text.count(said) == 6


def test_a_loop_that_was_fenced_long_ago_begins_anew(monkeypatch, caplog) -> None:
    monkeypatch.setattr(loop_limits, "FORGOTTEN_S", 0.0)
    limits = LoopLimits("billing-1", 60_000, 300_000, threading.Event())
    for _ in range(3):
        limits.begin()
        time.sleep(0.001)
        limits.failed(EPOCH_IS_OLD, Input(0))
    assert "Another process" not in caplog.text


def test_other_errors_are_no_fencing(caplog) -> None:
    limits = LoopLimits("billing-1", 60_000, 300_000, threading.Event())
    for _ in range(3):
        limits.begin()
        limits.failed(KafkaError(KafkaError._TIMED_OUT), Input(0))
    assert caplog.text == ""


@pytest.mark.slow
def test_two_loops_of_one_id_take_turns(monkeypatch, caplog) -> None:
    """Each fenced the other at its first record, and neither came to a commit."""
    monkeypatch.setattr(loop_limits, "PAUSE_S", 0.2)
    log = Log(1_000_000)
    log.give_to(monkeypatch)

    def works(message: Message) -> list[Output]:
        time.sleep(0.002)  # in which the other has its turn
        return at_its_end(message)

    loops = [loop_of(works, timeout_ms=60_000) for _ in range(2)]
    for loop in loops:
        loop._messages_max = 10
    over = threading.Event()

    def work(loop: TransactionalLoop) -> None:
        while not over.is_set():
            loop.step()

    threads = [threading.Thread(target=work, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        said = "Another process works as billing-1"
        until(lambda: said in caplog.text or time.sleep(0.01), what="a loop says what is wrong")
        then = max(log.position, 0)
        until(lambda: log.position >= then + 40 or time.sleep(0.01), what="40 more are committed")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert sum(loop.aborted for loop in loops) >= 2
    assert log.outputs == list(range(log.position)), "each was committed once, in order"


def test_a_loop_that_may_not_read_ends_with_what_to_do(monkeypatch) -> None:
    log = Log(2)
    log.errors.append(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "in: not authorized"))
    log.give_to(monkeypatch)
    loop = loop_of()
    said = (
        r"in may not be read as group billing: TOPIC_AUTHORIZATION_FAILED: in: not .*\. Grant READ"
    )
    with pytest.raises(InputRefused, match=said):
        loop.step()
    run_until(log, loop, 2)
    assert log.outputs == [0, 1], "what was read before it is not lost"


def test_a_loop_without_a_position_to_read_on_from_ends_with_what_to_do(monkeypatch) -> None:
    """It was a warning, once, of a loop that lived on and read nothing more of that partition."""
    log = Log(0)
    log.errors.append(KafkaError(KafkaError._AUTO_OFFSET_RESET, "fetch failed: out of range"))
    log.give_to(monkeypatch)
    with pytest.raises(InputRefused, match=r"no position in in .*out of range.*group seek"):
        loop_of().step()


def test_what_can_not_be_read_once_may_be_readable_and_twice_is_not(monkeypatch, caplog) -> None:
    """A bit may have flipped on its way, or on the broker's disk."""
    log = Log(2)
    bad = KafkaError(KafkaError._BAD_MSG, "offset 2 failed CRC32C check")
    log.errors.append(bad)
    log.give_to(monkeypatch)
    loop = loop_of()
    assert loop.step() == 2
    assert "failed CRC32C check" in caplog.text
    log.errors.append(bad)
    with pytest.raises(InputRefused, match=r"in can't be read on by group billing: .*CRC32C.*seek"):
        loop.step()


AWAY = KafkaException(KafkaError(KafkaError._TIMED_OUT, "the coordinator is away"))


@pytest.mark.parametrize("fails", ["as it is read", "as it goes back", "as both end"])
def test_what_was_read_when_a_step_raised_is_read_again(fails: str, monkeypatch, clock) -> None:
    """Whoever steps the loop by hand, and goes on after an error, lost what had been read before it."""
    log = Log(6)
    log.give_to(monkeypatch)
    monkeypatch.setattr(loop_module, "time", clock)
    loop, committed = loop_of(timeout_ms=60_000), Reads.committed
    loop._messages_max = 3
    if fails != "as both end":
        assert loop.step() == 3

    def away(*_: object) -> None:
        raise AWAY

    monkeypatch.setattr(Reads, "committed", away)
    if fails == "as it is read":  # a broker has sent it back, which asks for the group's position
        loop._consumer.seek(TopicPartition("in", 0, 0))
    elif fails == "as it goes back":
        monkeypatch.setattr(Writes, "send_offsets_to_transaction", away)
    for _ in range(2):
        with pytest.raises(KafkaException, match="the coordinator is away"):
            loop.step()
    monkeypatch.undo()
    log.give_to(monkeypatch)
    assert Reads.committed is committed
    run_until(log, loop, 6)
    assert log.outputs == list(range(6)), "each input shows once, in order"


def test_a_topic_that_is_not_there_is_waited_for(monkeypatch, caplog) -> None:
    log = Log(1)
    log.errors.append(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "in: not available"))
    log.give_to(monkeypatch)
    run_until(log, loop_of(), 1)
    assert "is the topic there" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("timeout_ms", [2_000, 60_000])
def test_a_backlog_of_slow_messages_shows_exactly_once(bootstrap, fresh, group, timeout_ms) -> None:
    """With a real coordinator, whose clock ends the transaction, and librdkafka's, which ends the membership."""
    source, sink = fresh("in"), fresh("out")
    for topic in (source, sink):
        create(bootstrap, topic)
    values = [b"%d" % number for number in range(50)]
    send(producer_of(bootstrap), source, values)

    def slow(message: Message) -> list[Output]:
        time.sleep(0.1)
        return [Output(sink, value=message.value())]

    with TransactionalLoop(
        bootstrap=bootstrap,
        topics=[source],
        group_id=group,
        transform=slow,
        consumer_config={
            "session.timeout.ms": 3_000,
            "max.poll.interval.ms": 3_000,
            "log_level": 0,
        },
        producer_config={"transaction.timeout.ms": timeout_ms, "log_level": 0},
    ) as loop:
        until(lambda: loop.step() >= 0 and loop.committed >= 50, what="all is committed")
    with consumer_of(bootstrap, group=f"{group}.check") as consumer:
        consumer.subscribe([sink])
        found = Counter(each.value() for each in receive(consumer, 50, wait_s=WAIT_S))
        assert found == Counter(values)
        assert consumer.consume(1, timeout=0.5) == []


@pytest.mark.parametrize("lazily", [False, True])
def test_a_transformation_whose_own_kafka_client_fails_ends_run(monkeypatch, *, lazily) -> None:
    """Its KafkaException passed for one of the loop's: the same message was read again and again, for ever."""
    log = Log(3)
    log.give_to(monkeypatch)

    def asks_another_cluster(message: Message) -> Iterator[Output]:
        yield Output("out", value=message.offset())
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    loop = loop_of(asks_another_cluster if lazily else lambda it: list(asks_another_cluster(it)))
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        loop.step()
    assert (log.outputs, loop.aborted) == ([], 1)
    monkeypatch.setattr(loop, "_transform", at_its_end)
    run_until(log, loop, 3)
    assert log.outputs == [0, 1, 2]
