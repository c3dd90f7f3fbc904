"""The transactional worker's notes, and what the loop makes of those of many."""

import argparse
import io
import signal
import time

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.chaos.checkers.availability import NO_END
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, from_lines, to_line
from fencepost.chaos.checkers.txn_verdict import judge
from fencepost.chaos.harness.transactions_kill_loop import SPOILS, LastLook
from fencepost.chaos.harness.txn_workers import merged
from fencepost.chaos.workloads import txn_process
from fencepost.chaos.workloads.queue_final import FinalPolls
from fencepost.chaos.workloads.txn_process import CLIENT, Damaged
from fencepost.chaos.workloads.txn_worker import Appender, Auditor, Subscriber, Teller


class FakeProducer:
    """Ends a transaction as it is told to; `noted` is what was written down when it began."""

    def __init__(self, notes: io.StringIO, *, refused: KafkaError | None = None) -> None:
        self.notes = notes
        self.refused = refused
        self.noted = ""
        self.ends: list[str] = []

    def begin_transaction(self) -> None:
        self.noted = self.notes.getvalue()

    def produce(self, topic: str, data: bytes, **options) -> None: ...

    def flush(self, seconds: float) -> int:
        return 0

    def commit_transaction(self, seconds: float) -> None:
        self.ends.append("commit")
        if self.refused is not None:
            raise KafkaException(self.refused)

    def abort_transaction(self, seconds: float) -> None:
        self.ends.append("abort")


class Refusal:
    """KafkaError can't be made with these flags from Python."""

    def __init__(self, *, abortable: bool) -> None:
        self.abortable = abortable

    def retriable(self) -> bool:
        return False

    def txn_requires_abort(self) -> bool:
        return self.abortable


def made_teller(refused=None) -> tuple[Teller, FakeProducer]:
    notes = io.StringIO()
    chosen = argparse.Namespace(
        seed=1, slot=3, life=1, rate=10, partitions=2, timeout_ms=1, role="teller"
    )
    teller = Teller(chosen, notes)
    teller.rng.random = lambda: 0.99  # it neither dawdles nor changes its mind
    producer = FakeProducer(notes, refused=refused)
    teller.producer = producer
    return teller, producer


def transfer(refused=None) -> tuple[Txn, list[Txn], FakeProducer]:
    teller, producer = made_teller(refused)
    number = teller.next_number()
    op = Txn("txn", "info", "teller", number, sends=[Sent("bank-0", 1), Sent("bank-1", 2)])
    teller.transact(op)
    return op, from_lines(producer.notes.getvalue().splitlines()), producer


def test_who_sleeps_before_its_commit_has_written_down_before_for_how_long() -> None:
    """It may be killed meanwhile."""
    teller, producer = made_teller()
    teller.rng.random = lambda: 0.01  # it dawdles, for that share of two milliseconds
    op = Txn("txn", "info", "teller", teller.next_number(), sends=[Sent("bank-0", 1)])
    teller.transact(op)
    *_, before, after = from_lines(producer.notes.getvalue().splitlines())
    assert (before.why, before.ended_s) == (NO_END, 0.0)
    assert before.slept_s == after.slept_s > 0


def test_a_process_that_is_told_to_sleep_stops_when_its_records_are_sent_and_before_it_commits(
    monkeypatch,
) -> None:
    """Stopped wherever it is, it has nothing open more often than not."""
    teller, producer = made_teller()
    done: list[str] = producer.ends
    monkeypatch.setattr(producer, "produce", lambda *_, **__: done.append("send"))
    monkeypatch.setattr(producer, "flush", lambda _: done.append("flush") or 0)
    monkeypatch.setattr(
        txn_process.os, "kill", lambda _, number: done.append(signal.Signals(number).name)
    )
    teller.sleep_at_commit()
    nothing = Txn("txn", "info", "teller", teller.next_number())
    teller.transact(nothing)  # what sent nothing has nothing open
    assert done == ["commit"]
    for _ in range(2):  # once told, once stopped
        number = teller.next_number()
        teller.transact(Txn("txn", "info", "teller", number, sends=[Sent("bank-0", number)]))
    assert done[1:] == ["send", "flush", "SIGSTOP", "commit", "send", "commit"]


def test_a_transaction_is_written_down_before_it_begins_and_when_it_has_ended() -> None:
    op, lines, producer = transfer()
    [before] = from_lines(producer.noted.splitlines())
    assert (before.type, before.number, before.sends) == ("info", op.number, op.sends)
    assert [line.type for line in lines] == ["info", "ok"]


@pytest.mark.parametrize(
    ("abortable", "known", "ends"),
    [(True, "fail", ["commit", "abort"]), (False, "info", ["commit"])],
    ids=["aborted", "fatal"],
)
def test_a_commit_that_was_refused_failed_only_if_an_abort_was_done(abortable, known, ends) -> None:
    op, lines, producer = transfer(Refusal(abortable=abortable))
    assert (op.type, lines[-1].type, producer.ends) == (known, known, ends)


def test_of_a_worker_that_was_killed_the_last_line_of_a_transaction_counts() -> None:
    begun = Txn("txn", "info", "a", 7, sends=[Sent("t-0", 1)], began_s=1.0)
    ended = Txn("txn", "ok", "a", 7, sends=[Sent("t-0", 1, 40)], began_s=1.0, ended_s=5.0)
    killed = Txn("txn", "info", "a", 8, began_s=6.0)
    other = Txn("snapshot", "ok", "b", ended_s=3.0)
    history = merged([[to_line(op) for op in (begun, ended, killed)], [to_line(other)]])
    assert [(op.f, op.type, op.number) for op in history] == [
        ("snapshot", "ok", -1),
        ("txn", "ok", 7),
        ("txn", "info", 8),
    ]
    assert history[-1].ended_s > 6.0, "it may have ended any time until now"


def good_history() -> list[Txn]:
    sides = [Sent("bank-0", 1, 0, -5), Sent("bank-1", 2, 0, 5)]
    transfer = Txn("txn", "ok", "a", 7, sends=sides, began_s=1.0, ended_s=2.0)
    polls = [Polled(side.key, 0, side.value, 7, side.extra) for side in sides]
    return [transfer, Txn("read", "ok", FINAL, polls=polls, began_s=3.0, ended_s=4.0)]


@pytest.mark.parametrize("spoil", sorted(SPOILS))
def test_every_way_to_spoil_a_history_of_transactions_makes_it_invalid(spoil) -> None:
    history = good_history()
    assert judge(history).valid
    SPOILS[spoil](history)
    assert not judge(history).valid


class FakeMessage:
    """What a broker has served, or an error that librdkafka gives in its place."""

    def __init__(self, offset: int, value: bytes = b"", code: int | None = None) -> None:
        self._offset, self._value = offset, value
        self._error = None if code is None else KafkaError(code)

    topic = lambda _: "t0"  # noqa: E731
    partition = lambda _: 1  # noqa: E731
    offset = lambda self: self._offset  # noqa: E731
    value = lambda self: self._value  # noqa: E731
    error = lambda self: self._error  # noqa: E731


class FakeConsumer:
    def __init__(self, *messages: FakeMessage) -> None:
        self.messages = list(messages)

    def consume(self, most: int, timeout: float) -> list[FakeMessage]:
        served, self.messages = self.messages, []
        return served

    def assign(self, places) -> None: ...

    def close(self) -> None: ...


def test_what_a_subscriber_polled_of_a_partition_that_was_taken_away_is_noted_as_shown() -> None:
    """Another works on it; that it was shown to somebody proves its commit all the same."""
    chosen = argparse.Namespace(seed=1, slot=3, life=1, rate=10, role="subscriber")
    member = Subscriber(chosen, io.StringIO())
    member.mine, member.positions = ["t0-0"], {"t0-0": None}
    op = Txn("txn", "info", "m", 7)
    member.poll(FakeConsumer(FakeMessage(4, b"8/16/0")), op, 10, 0.1)
    assert (op.polls, op.shown) == ([], [Polled("t0-1", 4, 16, 8)])
    assert member.positions == {"t0-0": None}
    member.mine = ["t0-1"]
    member.poll(FakeConsumer(FakeMessage(4, b"8/16/0")), op, 10, 0.1)
    assert (op.polls, op.shown) == ([Polled("t0-1", 4, 16, 8)], [Polled("t0-1", 4, 16, 8)])


@pytest.mark.parametrize("known", [True, False])
def test_an_appender_begins_at_an_offset_and_not_at_whatever_is_the_end_when_somebody_answers(
    known: bool,
) -> None:
    """librdkafka skips what came in between when a leader that it asked for the end answers after its successor."""
    given = []

    class Asked(FakeConsumer):
        def get_watermark_offsets(self, place, timeout: float) -> tuple[int, int]:
            if not known:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return 3, 17

        def assign(self, places) -> None:
            given.extend((each.topic, each.offset) for each in places)

    chosen = argparse.Namespace(seed=1, slot=0, life=1, prefix="t", partitions=1)
    appender = Appender(chosen, io.StringIO())
    appender._assign(Asked())
    begin = 17 if known else 0
    assert {offset for _, offset in given} == {begin} == {*appender.positions.values()}
    appender.positions = dict.fromkeys(appender.positions, 20)
    given.clear()
    appender._assign(Asked())
    assert {offset for _, offset in given} == {20}


SERVED = (
    FakeMessage(3, code=KafkaError._TRANSPORT),  # that is no damage
    FakeMessage(4, b"8/16/0"),
    FakeMessage(5, b""),
    FakeMessage(6, b"8/16"),
    FakeMessage(7, b"8/\xff/0"),
    FakeMessage(8, code=KafkaError._BAD_MSG),
    FakeMessage(8, code=KafkaError._BAD_MSG),  # it is told each time that it is served
    FakeMessage(9, b"8/17/0"),
)


def places(lines: list[Txn]) -> list[dict[str, int]]:
    return [line.positions for line in lines if line.f == "damaged"]


def test_damage_that_is_served_is_written_down_and_the_client_goes_on() -> None:
    notes = io.StringIO()
    chosen = argparse.Namespace(seed=1, slot=3, life=1, role="auditor")
    worker = Auditor(chosen, notes)
    worker.born()
    op = Txn("read", "ok", worker.process)
    worker.poll(FakeConsumer(*SERVED), op, 10, 0.1)
    assert [(each.offset, each.value) for each in op.polls] == [(4, 16), (9, 17)]
    lines = from_lines(notes.getvalue().splitlines())
    assert places(lines) == [{"t0-1": offset} for offset in (5, 6, 7, 8)]
    assert all(line.process == "auditor-3.1.1" and line.why and line.ended_s for line in lines)
    assert "b'8/\\xff/0'" in lines[2].why
    assert CLIENT["check.crcs"] is True, "or librdkafka finds no damage at all"


def test_damage_that_the_final_polls_meet_is_written_down_and_they_go_on(monkeypatch) -> None:
    notes = io.StringIO()
    final = FinalPolls("127.0.0.1:1", {"t0-1": 10}, notes)
    monkeypatch.setattr(final, "_consumer", lambda _: FakeConsumer(*SERVED))
    final._round(time.monotonic() + 5.0)
    lines = from_lines(notes.getvalue().splitlines())
    assert places(lines) == [{"t0-1": offset} for offset in (5, 6, 7, 8)]
    assert [polled.value for line in lines for polled in line.polls] == [16, 17]
    assert not final.missing()


def test_damage_that_a_loop_meets_in_the_end_ends_it(monkeypatch) -> None:
    look = LastLook("127.0.0.1:1", ["t0-1"])
    for served in SERVED[2:6]:
        consumer = FakeConsumer(served)
        monkeypatch.setattr(look, "_consumer", lambda _, found=consumer: found)
        with pytest.raises(Damaged):
            look.read_all({"t0-1": 10})
