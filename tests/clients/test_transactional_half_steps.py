"""What a producer of half messages does next, by what it is told; with lanes and a coordinator that are lists."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.transactional import (
    AdminRefused,
    AdminUnreachable,
    HalfMessageInDoubt,
    HalfMessageIsOver,
    HalfMessageProducer,
    HalfOutcome,
    Verdict,
    half_messages,
)
from fencepost.clients.transactional.half_messages import LANES_MAX
from fencepost.clients.transactional.identity import ProducerIdentity
from librdkafka import until

NO_VERDICTS = [None, "commit", True]


class Lane:
    """A producer and its identity in one."""

    def __init__(self, number: int, said: list[str], *, aborts: bool, writes: bool = True) -> None:
        self.transactional_id = f"pay::p-{number}"
        self._said, self._aborts, self._writes = said, aborts, writes
        self.end_raises: BaseException | None = None
        self.delivery_error: KafkaError | None = None
        self._told: list[Callable[[], None]] = []

    @property
    def producer(self) -> "Lane":
        return self

    def identity(self, *, fresh: bool = False) -> ProducerIdentity:
        return ProducerIdentity(1, 0)

    def begin_transaction(self) -> None:
        self._said.append("begin")

    def produce(
        self, topic: str, on_delivery: Any = None, callback: Any = None, **message: Any
    ) -> None:
        """As librdkafka, it calls one of them."""
        self._said.append("write")
        self._told.append(lambda: (callback or on_delivery)(self.delivery_error, None))

    def flush(self, timeout_s: float) -> int:
        if not self._writes:
            return 1
        while self._told:
            self._told.pop()()
        return 0

    def commit_transaction(self, timeout_s: float) -> None:
        self._said.append("commit")
        trouble, self.end_raises = self.end_raises, None
        if trouble is not None:
            raise trouble

    def abort_transaction(self, timeout_s: float) -> None:
        self._said.append("abort")
        if not self._aborts:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Pay(HalfMessageProducer):
    """`said` is all that it does, `states` what the coordinator answers to each half message in turn, or raises."""

    def __init__(
        self, *states: str | BaseException, aborts: bool = True, verdict: Any = Verdict.COMMIT
    ) -> None:
        super().__init__("nowhere:1", "pay", self)  # type: ignore[arg-type]
        self.said: list[str] = []
        self.states, self.verdict, self.aborts = list(states), verdict, aborts
        self.made, self.writes = 0, True
        self.delivery_error: KafkaError | None = None

    def call(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert (method, path) in (("POST", "/v1/checks/prepare"), ("POST", "/v1/checks/answer"))
        state = self.states.pop(0)
        if isinstance(state, BaseException):
            raise state
        return {"half_id": body["half_id"], "state": state, "is_new": False}

    def _new_lane(self) -> Any:
        self.made += 1
        lane = Lane(self.made, self.said, aborts=self.aborts, writes=self.writes)
        lane.delivery_error = self.delivery_error
        return lane

    def execute_local_transaction(self, half_id: str, argument: Any) -> Verdict:
        self.said.append("execute")
        return self.verdict


def send(pay: Pay) -> HalfOutcome:
    return pay.send("orders", half_id="4711", value=b"x")


@pytest.mark.parametrize("state", ["rolled_back", "committed"])
def test_a_local_transaction_is_not_begun_under_a_name_that_was_decided(state) -> None:
    pay = Pay(state, "waiting")
    said = f"half message 4711 is over: it was {state.replace('_', ' ')}.*give it another name"
    with pytest.raises(HalfMessageIsOver, match=said):
        send(pay)
    assert pay.said == ["begin", "write", "abort"]
    assert send(pay) is HalfOutcome.COMMITTED
    assert pay.made == 1, "the coordinator knows the name by the transactional id: it must stay"


def test_a_name_that_was_decided_is_told_even_if_what_is_open_can_not_be_aborted() -> None:
    pay = Pay("committed", "waiting", aborts=False)
    with pytest.raises(HalfMessageIsOver):
        send(pay)
    assert send(pay) is HalfOutcome.COMMITTED
    assert pay.made == 2, "the first lane is of no use any more"


@pytest.mark.parametrize("aborts", [True, False])
def test_a_half_message_that_is_not_prepared_does_not_hold_up_readers(*, aborts: bool) -> None:
    """They would wait for transaction.timeout.ms: nobody has the lane any more, and nobody is asked about it."""
    refused = AdminRefused(400, "INVALID_REQUEST", "half_id has 1,001 bytes.", "1,000 at most")
    pay = Pay(refused, "waiting", aborts=aborts)
    with pytest.raises(AdminRefused, match="half_id has 1,001 bytes"):
        send(pay)
    assert pay.said == ["begin", "write", "abort"]
    assert pay._lanes.qsize() == LANES_MAX, "and its place is free"
    assert send(pay) is HalfOutcome.COMMITTED
    assert pay.made == (1 if aborts else 2)


def test_a_half_message_whose_first_answer_was_lost_is_no_name_that_was_used_before() -> None:
    pay = Pay("waiting")
    assert send(pay) is HalfOutcome.COMMITTED
    assert pay.said == ["begin", "write", "execute", "commit"]


@pytest.mark.parametrize(
    "trouble", [AdminUnreachable("lost"), KeyError("state"), KeyboardInterrupt()]
)
def test_a_half_message_of_which_nobody_says_whether_it_is_prepared_is_aborted(
    trouble: BaseException,
) -> None:
    """Its local transaction has not begun. Left there it would be asked about, and the same name be found for it later."""
    pay = Pay(trouble, "waiting")
    with pytest.raises(type(trouble)):
        send(pay)
    assert pay.said == ["begin", "write", "abort"]
    assert pay._lanes.qsize() == LANES_MAX, "and its place is free"
    assert send(pay) is HalfOutcome.COMMITTED
    assert pay.made == 2, (
        "the question may still be on its way: it must not find another half message"
    )


def test_a_half_message_that_may_be_prepared_and_can_not_be_aborted_is_told_as_that() -> None:
    pay = Pay(AdminUnreachable("lost"), aborts=False)
    said = (
        "4711 may be prepared: .* a check will ask about it.* The same name must not be sent again"
    )
    with pytest.raises(HalfMessageInDoubt, match=said) as doubt:
        send(pay)
    assert isinstance(doubt.value.__cause__, AdminUnreachable)
    assert doubt.value.half_id == "4711"
    assert pay._lanes.qsize() == LANES_MAX, "and its place is free"
    pay = Pay(KeyboardInterrupt(), aborts=False)
    with pytest.raises(KeyboardInterrupt):
        send(pay)


def test_a_half_message_that_was_not_written_does_not_hold_up_readers() -> None:
    pay = Pay("waiting")
    pay.writes = False
    with pytest.raises(RuntimeError, match="half message 4711 was not written"):
        send(pay)
    assert pay.said == ["begin", "write", "abort"]
    assert pay._lanes.qsize() == LANES_MAX


@pytest.mark.parametrize("name", ["callback", "on_delivery"])
def test_a_half_message_with_a_callback_of_its_own_is_missed_if_it_is_not_delivered(name) -> None:
    """Else it is prepared, and committed without the record."""
    pay = Pay("waiting")
    pay.delivery_error = KafkaError(KafkaError._MSG_TIMED_OUT)
    said: list[Any] = []
    with pytest.raises(RuntimeError, match="half message 4711 was not written"):
        pay.send("orders", half_id="4711", **{name: lambda error, _: said.append(error)})
    assert pay.said == ["begin", "write", "abort"]
    assert said == [pay.delivery_error]


def by_its_producer(pay: Pay) -> None:
    send(pay)


def by_hand(pay: Pay) -> None:
    pay.send_half("orders", half_id="4711", value=b"x").end(pay.verdict)


@pytest.mark.parametrize("ends", [by_its_producer, by_hand])
@pytest.mark.parametrize("verdict", NO_VERDICTS)
def test_what_is_no_verdict_leaves_the_half_message_to_a_check(
    verdict: Any, ends: Callable[[Pay], None]
) -> None:
    """Its local transaction may have been committed: to abort would be a guess."""
    pay = Pay("waiting", "waiting", verdict=verdict)
    allowed = "4711 must be Verdict.COMMIT, Verdict.ROLLBACK or Verdict.UNKNOWN, not"
    with pytest.raises(TypeError, match=f"{allowed} {verdict!r}"):
        ends(pay)
    assert not {"commit", "abort"} & set(pay.said)
    assert pay._lanes.qsize() == LANES_MAX, "and its place is free"
    pay.verdict = Verdict.COMMIT
    assert send(pay) is HalfOutcome.COMMITTED
    assert pay.made == 2, "the first lane's transaction is open"


def test_an_end_of_which_nobody_says_anything_is_not_taken_for_a_half_message_that_is_none() -> (
    None
):
    """Its local transaction was committed. AdminUnreachable would say that it was not begun, and its name could come again."""
    pay = Pay("waiting", AdminUnreachable("lost"))
    half = pay.send_half("orders", half_id="4711", value=b"x")
    lane: Any = half._lane
    lane.end_raises = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert half.commit() is HalfOutcome.LEFT_TO_CHECKS
    assert pay._lanes.qsize() == LANES_MAX


def test_who_waits_for_a_lane_that_nobody_gives_back_is_told_why(monkeypatch, caplog) -> None:
    """Half messages that were dropped without an end held all lanes, and `send` stood still without a word."""
    monkeypatch.setattr(half_messages, "LANE_S", 0.01)
    pay = Pay(*["waiting"] * (LANES_MAX + 1))
    halves = [pay.send_half("orders", half_id=f"h{n}", value=b"x") for n in range(LANES_MAX)]
    waits = threading.Thread(target=send, args=(pay,), daemon=True)
    waits.start()
    until(lambda: "all 8 lanes" in caplog.text, what="it is told")
    assert "commit, rollback or leave" in caplog.text
    assert waits.is_alive()
    halves[0].leave()
    waits.join(30)
    assert not waits.is_alive()
    assert caplog.text.count("all 8 lanes") == 1


class Alarm(Exception):
    """What a signal handler raises."""


def test_a_lane_whose_commit_was_cut_short_does_not_end_another_half_message() -> None:
    """Its transaction may be open, of a local one that was committed: what comes next in the lane would abort it."""
    pay = Pay("waiting", "waiting")
    half = pay.send_half("orders", half_id="4711", value=b"x")
    lane: Any = half._lane
    lane.end_raises = Alarm()
    with pytest.raises(Alarm):
        half.commit()
    assert pay._lanes.qsize() == LANES_MAX, "and its place is free"
    assert send(pay) is HalfOutcome.COMMITTED
    assert pay.made == 2


def test_an_end_that_is_refused_does_not_say_that_the_local_transaction_was_not_begun(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A token that was changed, a half message that was forgotten: what `send` raises so late would be taken for \"not begun\"."""
    words = "there is no half message of pay::p-1"
    pay = Pay("waiting", AdminRefused(404, "TRANSACTIONAL_ID_NOT_FOUND", words, ""))
    half = pay.send_half("orders", half_id="4711", value=b"x")
    half._lane.end_raises = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert half.commit() is HalfOutcome.LEFT_TO_CHECKS
    assert "half message 4711 is left to a check" in caplog.text and words in caplog.text
