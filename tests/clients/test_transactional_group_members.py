"""What a member of a transaction group does next, by what it is told; with producers that are lists."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.transactional import (
    AdminApi,
    DecidedBefore,
    Decision,
    GroupMember,
    MemberWrote,
    OutputRefused,
    TransactionGroup,
    groups,
)
from fencepost.clients.transactional.identity import ProducerIdentity

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class Record:
    def __init__(self, topic: str, value: bytes) -> None:
        self._topic, self._value = topic, value

    def topic(self) -> str:
        return self._topic

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value


class Incarnation:
    """A producer and its identity in one: each has a higher epoch than the one before. As librdkafka's, it is started once,
    and of a record's two callbacks it calls the one that is named `callback`."""

    made: ClassVar[list["Incarnation"]] = []
    refuses = False

    def __init__(self, *_: Any) -> None:
        self.epoch, self.is_started = len(self.made), False
        self.end_raises: KafkaException | None = None
        self._told: list[Callable[[], None]] = []
        self.made.append(self)

    @property
    def producer(self) -> "Incarnation":
        return self

    def start(self) -> None:
        if self.is_started:
            raise KafkaException(
                KafkaError(KafkaError._STATE, "Operation not valid in state Ready")
            )
        self.is_started = True

    def identity(self, *, fresh: bool = False) -> ProducerIdentity:
        return ProducerIdentity(7, self.epoch)

    def begin_transaction(self) -> None:
        if self.end_raises is not None:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        if not self.is_started:
            raise KafkaException(KafkaError(KafkaError._STATE, "Operation not valid in state Init"))

    def produce(
        self, topic: str, value: bytes, on_delivery: Any = None, callback: Any = None
    ) -> None:
        error = TOO_LARGE if self.refuses else None
        told = callback or on_delivery
        self._told.append(lambda: told(error, Record(topic, value)))

    def poll(self, _timeout_s: float) -> None:
        pass

    def flush(self, _timeout_s: float) -> int:
        while self._told:
            self._told.pop()()
        return 0

    def commit_transaction(self, _timeout_s: float) -> None:
        if self.end_raises is not None:
            raise self.end_raises

    abort_transaction = commit_transaction


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Incarnation]:
    monkeypatch.setattr(Incarnation, "made", [])
    monkeypatch.setattr(groups, "IdentifiedProducer", Incarnation)
    return Incarnation.made


def committed(number: int, *members: Any) -> Decision:
    return Decision(number=number, outcome="commit", members=members)


def started() -> GroupMember:
    member = GroupMember("nowhere:1", "job", "m")
    member.start()
    return member


def written(member: GroupMember) -> MemberWrote | None:
    member.begin()
    member.produce("lake", value=b"x")
    return member.wrote()


@pytest.mark.usefixtures("made")
def test_what_is_written_after_an_abort_is_not_what_a_late_commit_names() -> None:
    """Its driver may have sent a commit of the first that got no answer: it is on its way with the first's identity."""
    member = started()
    late = written(member)
    member.finish("abort")
    again = written(member)
    assert late is not None
    assert again is not None
    assert again.producer_epoch > late.producer_epoch


def test_a_member_of_which_no_driver_was_told_goes_on_as_it_is(made) -> None:
    member = started()
    member.begin()
    member.produce("lake", value=b"x")
    member.finish("abort")
    member.begin()
    assert member.wrote() is None
    member.finish("abort")
    assert written(member) == MemberWrote("m", 7, 0)
    member.finish(committed(1, MemberWrote("m", 7, 0)))
    assert written(member) == MemberWrote("m", 7, 0)
    assert len(made) == 1


def test_a_member_that_nobody_started_starts_itself(made) -> None:
    """So the example in `groups.py` has it; librdkafka said "Operation not valid in state Init"."""
    member = GroupMember("nowhere:1", "job", "m")
    assert written(member) == MemberWrote("m", 7, 0)
    member.finish(committed(1, MemberWrote("m", 7, 0)))
    assert written(member) == MemberWrote("m", 7, 0)
    assert len(made) == 1


def test_a_member_is_started_anew_as_the_readme_says(made) -> None:
    """`start` is what is to be said when a number is undecided: librdkafka's own producer is started once only."""
    member = started()
    late = written(member)
    member.start()
    assert written(member) != late
    assert [each.is_started for each in made] == [True, True]


@pytest.mark.parametrize("decided", [committed(1, MemberWrote("m", 7, 0)), "abort"])
def test_a_member_whose_end_failed_begins_anew(made, decided: Any) -> None:
    """Its producer is of no use any more, as when a commit that is told was decided to be an abort."""
    member = started()
    member.begin()
    member.produce("lake", value=b"x")
    made[0].end_raises = KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, fatal=True))
    with pytest.raises(KafkaException, match="INVALID_TXN_STATE"):
        member.finish(decided)
    assert written(member) == MemberWrote("m", 7, 1)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "told",
    [
        *("undecided", "Commit", "rollback", None),  # were an abort
        "commit",  # was one of this member alone, whatever was decided
        Decision(number=2, outcome="undecided", members=(MemberWrote("m", 7, 0),)),
        Decision(number=2, outcome="forgotten", members=(MemberWrote("m", 7, 0),)),
    ],
)
def test_a_member_is_finished_by_a_decision_and_by_nothing_else(told: Any) -> None:
    member = started()
    written(member)
    said = rf"finish takes a decision .* or 'abort', not {re.escape(repr(told))}: .*stays open"
    with pytest.raises(ValueError, match=said):
        member.finish(told)
    member.finish(committed(2, MemberWrote("m", 7, 0)))


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "decided",
    [
        committed(2),
        committed(2, MemberWrote("n", 7, 0), MemberWrote("m", 8, 0)),
        committed(2, MemberWrote("m", 7, 1)),
        committed(1, MemberWrote("m", 7, 0)),  # the number before, of the same identity
    ],
)
def test_a_decision_that_does_not_name_what_was_written_commits_nothing(decided: Decision) -> None:
    member = started()
    written(member)
    member.finish(committed(1, MemberWrote("m", 7, 0)))
    written(member)
    said = rf"^number {decided.number} was committed without what m has written now: .*finish\('abort'\)"
    with pytest.raises(ValueError, match=said):
        member.finish(decided)
    member.finish(committed(2, MemberWrote("m", 7, 0)))


@pytest.mark.usefixtures("made")
def test_a_decision_to_abort_and_one_of_a_silent_member_are_taken() -> None:
    member = started()
    member.begin()
    member.finish(committed(1, MemberWrote("n", 7, 0)))
    assert written(member) == MemberWrote("m", 7, 0)
    member.finish(Decision(number=2, outcome="abort"))
    assert written(member) == MemberWrote("m", 7, 1)


@pytest.mark.usefixtures("made")
def test_a_member_that_did_not_ask_who_it_is_is_found_in_a_decision_that_came_as_json() -> None:
    member = started()
    member.begin()
    member.produce("lake", value=b"x")
    sent = json.dumps(asdict(committed(1, MemberWrote("m", 7, 0))))
    member.finish(Decision(**json.loads(sent)))


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("name", ["callback", "on_delivery"])
def test_a_record_with_a_callback_of_its_own_is_missed_if_it_is_refused(monkeypatch, name) -> None:
    """The driver would commit the others without it."""
    monkeypatch.setattr(Incarnation, "refuses", True)
    monkeypatch.setattr(groups.RefusedRecords, "_limit", lambda *_: None)
    said: list[Any] = []
    member = started()
    member.begin()
    member.produce("lake", value=b"x", **{name: lambda error, _: said.append(error)})
    with pytest.raises(OutputRefused, match="a record for lake"):
        member.wrote()
    assert said == [TOO_LARGE]


@pytest.mark.usefixtures("made")
def test_a_member_that_could_not_write_is_told_what_to_do(monkeypatch) -> None:
    monkeypatch.setattr(Incarnation, "refuses", True)
    monkeypatch.setattr(groups.RefusedRecords, "refusal", lambda _: None)
    told = r"m could not write everything: .*MSG_SIZE_TOO_LARGE.* can't be committed: abort it.* Do the work of this number again"
    with pytest.raises(RuntimeError, match=told):
        written(started())


class Door(AdminApi):
    """Decides as it is asked to."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.asked: list[Any] = []
        self.decided: dict[str, Any] | None = None

    def call(self, method: str, path: str, body: Any = None, *, wait_s: float = 0.0) -> Any:
        self.asked.append(body)
        if self.decided is None:
            return body
        return {**body, "members": self.decided, "message": "Number 1 had been decided before."}


def test_two_writers_of_one_name_are_not_committed_as_one() -> None:
    """One has fenced the other, whose records are gone: its driver counts on both."""
    door = Door()
    group = TransactionGroup("job", door)
    first, second = MemberWrote("m", 7, 0), MemberWrote("m", 7, 1)
    with pytest.raises(ValueError, match=r"two writers .* member m .* name of its own.* anew"):
        group.commit(1, [first, second])
    assert door.asked == []
    assert group.commit(1, [second, second, None]).members == (second,)


def test_who_did_the_work_of_a_decided_number_again_is_told_to_abort_it() -> None:
    """By the outcome, commit, the writers would commit it once more."""
    door = Door()
    door.decided = {"m": {"producer_id": 7, "producer_epoch": 0}}
    told = r"Number 1 had been decided.* not in this decision .* open.* finish\(\"abort\"\), whatever its outcome"
    with pytest.raises(DecidedBefore, match=told) as before:
        TransactionGroup("job", door).commit(1, [MemberWrote("m", 7, 1)])
    assert before.value.decision.outcome == "commit"


def test_what_a_writer_wrote_may_come_as_json() -> None:
    """A tuple of plain values is a list then."""
    wrote = MemberWrote("m", 7, 0)
    decision = TransactionGroup("job", Door()).commit(1, json.loads(json.dumps([wrote, None])))
    assert decision.members == (wrote,)
