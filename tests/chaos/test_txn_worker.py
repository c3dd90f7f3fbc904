"""The transactional worker's notes, and what the loop makes of those of many."""

import argparse
import io

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, from_lines, to_line
from fencepost.chaos.checkers.txn_verdict import judge
from fencepost.chaos.harness.transactions_kill_loop import SPOILS
from fencepost.chaos.harness.txn_workers import merged
from fencepost.chaos.workloads.txn_worker import Teller


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


def transfer(refused=None) -> tuple[Txn, list[Txn], FakeProducer]:
    notes = io.StringIO()
    chosen = argparse.Namespace(
        seed=1, slot=3, life=1, rate=10, partitions=2, timeout_ms=1, role="teller"
    )
    teller = Teller(chosen, notes)
    teller.rng.random = lambda: 0.99  # it neither dawdles nor changes its mind
    producer = FakeProducer(notes, refused=refused)
    teller.producer = producer
    number = teller.next_number()
    op = Txn("txn", "info", "teller", number, sends=[Sent("bank-0", 1), Sent("bank-1", 2)])
    teller.transact(op)
    return op, from_lines(notes.getvalue().splitlines()), producer


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
