"""Whoever takes a transactional id over again and again: to the last epoch and past it, and not for ever."""

from types import SimpleNamespace

from fencepost.chaos.faults import zombies
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey


class Coordinator:
    """Answers like one: each InitProducerId is an epoch more, at the end another producer; `troubles` come first."""

    def __init__(self, epoch: int = 0, troubles: int = 0) -> None:
        self.at = (5, epoch)
        self.troubles = troubles
        self.closed = self.opened = 0

    def client(self, *_, **__) -> "Coordinator":
        self.opened += 1
        return self

    async def request(self, api_key: ApiKey, *_, **words) -> SimpleNamespace:
        if api_key is ApiKey.find_coordinator:
            return SimpleNamespace(error_code=ErrorCode.none, node_id=2)
        assert words["transactional_id"] == "pay"
        if self.troubles:
            self.troubles -= 1
            raise Trouble("nobody answers")
        producer, epoch = self.at
        self.at = (producer, epoch + 1) if epoch < 32_766 else (producer + 1, 0)
        return SimpleNamespace(
            error_code=ErrorCode.none, producer_id=producer, producer_epoch=epoch
        )

    async def close(self) -> None:
        self.closed += 1


def taken_over(monkeypatch, at: Coordinator, times: int, stopping=lambda: False) -> zombies.Taken:
    monkeypatch.setattr(zombies, "WireClient", at.client)
    monkeypatch.setattr(zombies, "PAUSE_S", 0.0)
    return zombies.take_over(lambda: {2: ("127.0.0.1", 1)}, "pay", times, stopping)


def test_an_id_is_taken_as_often_as_was_asked_past_the_last_epoch_that_there_is(
    monkeypatch,
) -> None:
    at = Coordinator(32_764)
    taken = taken_over(monkeypatch, at, 5)
    assert (taken.times, taken.first, taken.last) == (5, (5, 32_764), (6, 1))
    assert str(taken) == "taken 5 times, from producer 5 epoch 32764 to producer 6 epoch 1"
    assert at.opened == at.closed


def test_a_coordinator_that_does_not_answer_is_looked_for_again_and_not_for_ever(
    monkeypatch,
) -> None:
    at = Coordinator(troubles=3)
    assert taken_over(monkeypatch, at, 2).times == 2
    dead = Coordinator(troubles=10_000)
    assert taken_over(monkeypatch, dead, 2).times == 0
    assert dead.troubles == 10_000 - zombies.TROUBLES_MAX
    assert dead.opened == dead.closed


def test_whoever_takes_an_id_ends_when_all_has_to_end(monkeypatch) -> None:
    answers = iter([False, False, True])
    assert taken_over(monkeypatch, Coordinator(), 100, lambda: next(answers)).times == 2
