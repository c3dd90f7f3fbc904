"""Commits of the loop whose answer is lost, and inputs that are another member's by now: on a broker that is a list."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from fencepost.clients.transactional import Output, TransactionalLoop
from fencepost.clients.transactional import loop as loop_module
from loop_broker import Log, Reads, Writes

INPUTS = 15
EACH = 5  # inputs of one transaction
NO_ANSWER = KafkaException(KafkaError(KafkaError._TIMED_OUT, "Timed out"))


class Cut:
    """The next commit gets no answer, if it is told so."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.strikes = False
        self.under_way: list[Writes] = []  # what is decided, and not done yet

    def struck(self) -> bool:
        strikes, self.strikes = self.strikes, False
        return strikes


def loop_on(monkeypatch: pytest.MonkeyPatch, producer: type[Writes], cut: Cut) -> TransactionalLoop:
    cut.log.give_to(monkeypatch)
    monkeypatch.setattr(producer, "cut", cut, raising=False)
    monkeypatch.setattr(loop_module, "TellingProducer", lambda _: producer(cut.log))
    return TransactionalLoop(
        bootstrap="nowhere:1",
        topics=["in"],
        group_id="billing",
        transform=lambda message: [Output("out", value=message.offset())],
        messages_max=EACH,
    )


class Committed(Writes):
    """The answer is lost, behind the commit."""

    cut: Cut

    def commit_transaction(self, timeout: float) -> None:
        super().commit_transaction(timeout)
        if self.cut.struck():
            raise NO_ANSWER


class NotCommitted(Writes):
    """The request is lost."""

    cut: Cut

    def commit_transaction(self, timeout: float) -> None:
        if self.cut.struck():
            raise NO_ANSWER
        super().commit_transaction(timeout)


class StillCommitting(Writes):
    """The coordinator has logged the commit, and no partition has its marker before the id's next incarnation asks to begin."""

    cut: Cut

    def commit_transaction(self, timeout: float) -> None:
        if self.cut.struck():
            self.cut.under_way.append(self)
            raise NO_ANSWER
        super().commit_transaction(timeout)

    def init_transactions(self, timeout: float) -> None:
        while self.cut.under_way:
            Writes.commit_transaction(self.cut.under_way.pop(), timeout)
        super().init_transactions(timeout)


@pytest.mark.parametrize("at", [1, 2, 3], ids=["first", "second", "last"])
@pytest.mark.parametrize("producer", [Committed, NotCommitted, StillCommitting])
def test_a_commit_without_an_answer_is_neither_done_again_nor_left_out(
    monkeypatch: pytest.MonkeyPatch, producer: type[Writes], at: int
) -> None:
    """The positions of before were taken for those of now: they are asked for, and when the next incarnation has begun."""
    cut = Cut(Log(INPUTS))
    with loop_on(monkeypatch, producer, cut) as loop:
        for step in range(1, 2 + INPUTS // EACH):
            cut.strikes = step == at
            loop.step()
    assert cut.log.outputs == list(range(INPUTS))
    assert cut.log.position == INPUTS


def test_what_a_rebalance_took_away_while_it_was_read_is_left_to_its_next_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`consume` has it from before the rebalance that it hears of in the same call."""
    log = Log(INPUTS)

    class Taken(Reads):
        ours: Iterator[list[TopicPartition]] = iter([[]])

        def assignment(self) -> list[TopicPartition]:
            return next(Taken.ours, [TopicPartition("in", 0)])

    with loop_on(monkeypatch, Committed, Cut(log)) as loop:
        loop._consumer.__class__ = Taken
        assert loop.step() == 0
        assert (log.outputs, log.position) == ([], -1001)
        loop._consumer.seek(TopicPartition("in", 0, 0))  # it is ours again
        assert loop.step() == EACH
    assert log.outputs == list(range(EACH))
