"""Check-back: prepared transactions whose producer never ended them are decided by asking, never by guessing.

INVARIANT  a half message is decided once, and a check counts only after its checker has said that it has it.
PREVENTS   a late commit that beats a rollback; fifteen checks that are burned without one being delivered.
PROVED BY  tests/txn/test_check_back.py::test_no_check_is_burned_without_being_delivered,
           tests/txn/test_check_back_decided.py::test_a_check_that_arrives_after_the_decision_changes_nothing

    prepared ──interval──> due ──a checker polls──> offered ──it has it──> counted ──interval, twice as long──> due …
                                                       └── no word of it in time ──> due again, not counted
    answered commit or rollback, at any time: decided, in one batch with the end of its transaction
    as many checks counted as transaction.check.max, and still no answer: parked until a person decides
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, Final

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import (
    NOTHING,
    Answer,
    CancelTimer,
    Decision,
    Effect,
    LogRecord,
    Parked,
    SetTimer,
    TimerKey,
)
from .added_config import AddedConfig
from .check_back_commands import (
    AnswerCheck,
    Attempt,
    DescribeHalf,
    HalfAnswered,
    ListHalves,
    PollChecks,
    PollGone,
    PrepareHalf,
    ReleaseHalf,
    Verdict,
)
from .check_back_records import MAY_BECOME, HalfForgotten, HalfMessage, HalfState
from .check_back_view import (
    CHECK,
    PREPARED_BYTES_MAX,
    describe_half,
    list_halves,
    number_of,
    refuse_prepare,
    release,
    too_large,
    unknown_half,
)
from .checkers import (
    STEPS,
    CheckDue,
    CheckerGone,
    Checkers,
    CheckOffered,
    CheckSettled,
    Offer,
    Polled,
    PollEnded,
    PollParked,
    Step,
    Waiting,
)
from .group_commit_commands import Refusal
from .group_commit_machine import Transactions, size_of
from .transaction import COMPLETE, DECIDED, OPEN, Phase, Transaction

E = ErrorCode
# The first words of this machine's timer keys, beside CHECK.
POLL, CHECKER = "check poll", "checker"
PRODUCER: Final = "its producer"
CHECKERS_MAX: Final = 1_000  # of one group
EMPTY: Final[Mapping[str, Any]] = {"checks": ()}


class CheckBackMachine:
    """An `Addition` to the machine of transactions (`additions.py`)."""

    changes: Collection[type] = (HalfMessage, HalfForgotten, *STEPS)
    timers: Collection[str] = (CHECK, POLL, CHECKER)

    def __init__(
        self,
        config: AddedConfig,
        transactions: Transactions,
        group_of: Callable[[str], str],
    ) -> None:
        """`group_of` names the producer group of a transactional id."""
        self.config = config
        self._transactions = transactions
        self._group_of = group_of
        self.commands: Collection[type] = tuple(self.ON_COMMAND)
        self.halves: dict[str, HalfMessage] = {}
        self.checkers = Checkers()

    def holds(self, transactional_id: str) -> bool:
        """Whether its transaction is prepared: no timeout ends it, nothing is added, no new incarnation aborts it."""
        half = self.halves.get(transactional_id)
        return half is not None and not half.is_decided

    # -- decide ----------------------------------------------------------------------------------

    def decide(self, command: Any, now_ms: int) -> Decision:
        return self.ON_COMMAND[type(command)](self, command, now_ms)

    def _prepare(self, command: PrepareHalf, now_ms: int) -> Decision:
        transactional_id = command.transactional_id
        known = self.halves.get(transactional_id)
        if known is not None and known.half_id == command.half_id:
            return Decision(reply=HalfAnswered(known, is_new=False))
        refusal = refuse_prepare(self._transactions, command, known)
        if refusal is not None:
            return Decision(reply=refusal)
        wait_ms = self.config.interval_ms(0)
        half = HalfMessage(
            transactional_id=transactional_id,
            half_id=command.half_id,
            producer_id=command.producer_id,
            producer_epoch=command.producer_epoch,
            state=HalfState.WAITING,
            prepared_ms=now_ms,
            next_check_ms=now_ms + wait_ms,
            changed_ms=now_ms,
            half_number=max(command.half_number, number_of(known, command)),
        )
        prepared = self._transactions.prepare(transactional_id, now_ms)
        records = (*prepared.records, half)
        if size_of(records) > PREPARED_BYTES_MAX:
            return Decision(reply=too_large(command))
        return Decision(
            reply=HalfAnswered(half, is_new=True),
            records=records,
            steps=prepared.steps,
            effects=(*prepared.effects, SetTimer((CHECK, transactional_id), wait_ms)),
        )

    def _poll(self, command: PollChecks, now_ms: int) -> Decision:
        name, member = command.group, command.member
        group = self.checkers.of(name)
        if member not in group.members and len(group.members) >= CHECKERS_MAX:
            why = f"{name} has {CHECKERS_MAX} checkers already, which is as many as there may be"
            return Decision(reply=Refusal(E.throttling_quota_exceeded, why))
        steps: list[Step] = [Polled(name, member, now_ms)]
        session_ms = command.wait_ms_max + self.config.transaction_check_session_timeout_ms
        effects: list[Effect] = [SetTimer((CHECKER, name, member), session_ms)]
        earlier = group.waiting.get(member)
        if earlier is not None:
            steps.append(PollEnded(name, member))
            effects.append(Answer(earlier.ticket, dict(EMPTY)))
        counted = self._count(command.delivered, now_ms)
        for half in counted.values():
            steps.append(CheckSettled(name, half.transactional_id))
            effects.append(self._next_check(half, now_ms))
        due = [each for each in group.due if each not in counted][: command.checks_max]
        attempts = tuple(self._attempt(each) for each in due)
        reply: Any = {"checks": attempts}
        for attempt in attempts:
            steps.append(CheckOffered(name, attempt.transactional_id, Offer(member, attempt)))
            effects.append(self._delivery_timer(attempt))
        if not attempts and command.wait_ms_max > 0:
            reply = Parked(command.ticket)
            steps.append(PollParked(name, member, Waiting(command.ticket, command.checks_max)))
            effects.append(SetTimer((POLL, name, member), command.wait_ms_max))
        records = tuple(counted.values())
        return Decision(reply=reply, records=records, steps=steps, effects=effects)

    def _poll_gone(self, command: PollGone, now_ms: int) -> Decision:
        waiting = self.checkers.of(command.group).waiting.get(command.member)
        if waiting is None or waiting.ticket != command.ticket:
            return NOTHING
        return Decision(steps=(PollEnded(command.group, command.member),))

    def _answer(self, command: AnswerCheck, now_ms: int) -> Decision:
        half = self.halves.get(command.transactional_id)
        if half is None or half.half_id != command.half_id:
            return Decision(reply=unknown_half(command.transactional_id, command.half_id, half))
        if half.is_decided:
            return Decision(reply=HalfAnswered(half, is_new=False))
        if command.verdict is Verdict.UNKNOWN:
            attempt = Attempt(half.transactional_id, half.half_id, command.attempt)
            counted = self._count((attempt,), now_ms)
            if not counted:
                return Decision(reply=HalfAnswered(half, is_new=False))
            half = counted[half.transactional_id]
            name = half.transactional_id
            return Decision(
                reply=HalfAnswered(half, is_new=True),
                records=(half,),
                steps=(CheckSettled(self._group_of(name), name),),
                effects=(self._next_check(half, now_ms),),
            )
        commit = command.verdict is Verdict.COMMIT
        end = self._transactions.end(half.transactional_id, commit=commit, now_ms=now_ms)
        closed = self._closed(half, commit=commit, by=command.by, now_ms=now_ms)
        # `stepped` has closed it already, in its producer's name.
        records = [closed if isinstance(each, HalfMessage) else each for each in end.records]
        assert closed in records, f"{half} was ended and not closed"
        return Decision(
            reply=HalfAnswered(closed, is_new=True),
            records=records,
            steps=end.steps,
            effects=end.effects,
        )

    def stepped(self, before: Transaction | None, after: Transaction, now_ms: int) -> Decision:
        """A prepared transaction is ended, whoever ends it: its half message is decided in the same batch."""
        half = self.halves.get(after.transactional_id)
        if half is None or half.is_decided:
            return NOTHING
        # It is PREPARED, or would be: a log that went back to transaction.version 0 shows it as ONGOING.
        if after.phase in OPEN:
            # Its producer's next incarnation may have taken it over (KIP-939).
            identity = after.identity
            if identity == (half.producer_id, half.producer_epoch):
                return NOTHING
            taken = replace(
                half,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                changed_ms=now_ms,
                half_number=0,  # it counts from the beginning
            )
            return Decision(records=(taken,))
        if after.phase in COMPLETE:
            return (
                NOTHING  # no partition was in it: the step before, in this very turn, has closed it
            )
        assert after.phase in DECIDED, f"{half} is prepared, and its transaction {after.phase.word}"
        commit = after.phase is Phase.PREPARE_COMMIT
        closed = self._closed(half, commit=commit, by=PRODUCER, now_ms=now_ms)
        name = half.transactional_id
        return Decision(
            records=(closed,),
            steps=(CheckSettled(self._group_of(name), name),),
            effects=(CancelTimer((CHECK, name)),),
        )

    def _closed(self, half: HalfMessage, *, commit: bool, by: str, now_ms: int) -> HalfMessage:
        state = HalfState.COMMITTED if commit else HalfState.ROLLED_BACK
        return replace(half, state=state, changed_ms=now_ms, decided_by=by)

    def _release(self, command: ReleaseHalf, now_ms: int) -> Decision:
        return release(self.halves.get(command.transactional_id), command, now_ms)

    def _describe(self, command: DescribeHalf, now_ms: int) -> Decision:
        return describe_half(self.halves.get(command.transactional_id), command)

    def _list(self, command: ListHalves, now_ms: int) -> Decision:
        return list_halves(self.halves, command)

    # -- counting and offering -------------------------------------------------------------------

    def _count(self, delivered: Sequence[Attempt], now_ms: int) -> dict[str, HalfMessage]:
        """The half messages whose check has reached a checker just now. Nothing else raises `checks`."""
        counted: dict[str, HalfMessage] = {}
        for attempt in delivered:
            half = self.halves.get(attempt.transactional_id)
            if (
                half is not None
                and half.half_id == attempt.half_id
                and half.state is HalfState.WAITING
                and attempt.number == half.checks + 1
            ):
                counted[half.transactional_id] = replace(
                    half,
                    checks=attempt.number,
                    next_check_ms=now_ms + self.config.interval_ms(attempt.number),
                    changed_ms=now_ms,
                )
        return counted

    def _attempt(self, transactional_id: str) -> Attempt:
        half = self.halves[transactional_id]
        return Attempt(transactional_id, half.half_id, half.checks + 1)

    def _delivery_timer(self, attempt: Attempt) -> SetTimer:
        wait_ms = self.config.transaction_check_delivery_timeout_ms
        return SetTimer((CHECK, attempt.transactional_id), wait_ms)

    def _next_check(self, half: HalfMessage, now_ms: int) -> SetTimer:
        """A clock that was set back makes nobody wait for longer than the interval."""
        pause_ms = self.config.interval_ms(half.checks)
        left_ms = min(max(half.next_check_ms - now_ms, 0), pause_ms)
        return SetTimer((CHECK, half.transactional_id), left_ms)

    # -- time ------------------------------------------------------------------------------------

    def tick(self, key: TimerKey, now_ms: int) -> Decision:
        if key[0] == CHECK:
            return self._check_due(str(key[1]), now_ms)
        group, member = str(key[1]), str(key[2])
        waiting = self.checkers.of(group).waiting.get(member)
        if key[0] == POLL:
            if waiting is None:
                return NOTHING
            answer = Answer(waiting.ticket, dict(EMPTY))
            return Decision(steps=(PollEnded(group, member),), effects=(answer,))
        return Decision(steps=(CheckerGone(group, member),))

    def _check_due(self, transactional_id: str, now_ms: int) -> Decision:
        half = self.halves.get(transactional_id)
        if half is None or half.state is not HalfState.WAITING:
            return NOTHING
        name = self._group_of(transactional_id)
        group = self.checkers.of(name)
        if half.checks >= self.config.transaction_check_max:
            parked = replace(half, state=HalfState.PARKED, changed_ms=now_ms)
            settled = CheckSettled(name, transactional_id)
            return Decision(records=(parked,), steps=(settled,))
        steps: list[Step] = [CheckDue(name, transactional_id)]
        if not group.waiting:
            return Decision(steps=steps)  # the next poll finds it; until then nothing counts
        member, waiting = next(iter(group.waiting.items()))
        attempt = self._attempt(transactional_id)
        steps += (
            CheckOffered(name, transactional_id, Offer(member, attempt)),
            PollEnded(name, member),
        )
        return Decision(
            steps=steps,
            effects=(
                Answer(waiting.ticket, {"checks": (attempt,)}),
                CancelTimer((POLL, name, member)),
                self._delivery_timer(attempt),
            ),
        )

    def loaded(self, now_ms: int) -> Decision:
        return Decision(effects=self._timers(self.halves, now_ms))

    def woken(self, owner: str, now_ms: int) -> Decision:
        return Decision(effects=self._timers((owner,), now_ms))

    def _timers(self, owners: Iterable[str], now_ms: int) -> tuple[Effect, ...]:
        found = (self.halves.get(owner) for owner in owners)
        return tuple(
            self._next_check(half, now_ms)
            for half in found
            if half is not None and half.state is HalfState.WAITING
        )

    # -- apply -----------------------------------------------------------------------------------

    def apply(self, change: HalfMessage | HalfForgotten | Step) -> None:
        if isinstance(change, HalfMessage):
            known = self.halves.get(change.transactional_id)
            if known is not None and known.half_id == change.half_id:
                assert change.state in MAY_BECOME[known.state] or change == known, (
                    f"{known} -> {change}"
                )
            else:
                assert known is None or known.is_decided, f"{known} is lost to {change}"
            self.halves[change.transactional_id] = change
        elif isinstance(change, HalfForgotten):
            self.halves.pop(change.transactional_id, None)
        else:
            self.checkers.apply(change)

    def owners_of(self, command: Any) -> Sequence[str] | None:
        """A poll needs nobody read: what is due is put before it when it has been read. A list needs everybody."""
        if isinstance(command, PollChecks):
            return tuple(each.transactional_id for each in command.delivered)
        if isinstance(command, PollGone):
            return ()
        if isinstance(command, ListHalves):
            return None
        return (command.transactional_id,)

    def expired(self, now_ms: int, limit: int) -> Sequence[LogRecord]:
        """Decisions that nobody can ask for any more: their ids have been idle for as long as Kafka keeps one."""
        oldest_ms = now_ms - self.config.transactional_id_expiration_ms
        gone = (
            HalfForgotten(transactional_id=half.transactional_id)
            for half in self.halves.values()
            if half.is_decided and half.changed_ms <= oldest_ms
        )
        return list(islice(gone, limit))

    ON_COMMAND: ClassVar[Mapping[type, Callable[..., Decision]]] = {
        PrepareHalf: _prepare,
        PollChecks: _poll,
        PollGone: _poll_gone,
        AnswerCheck: _answer,
        ReleaseHalf: _release,
        DescribeHalf: _describe,
        ListHalves: _list,
    }
