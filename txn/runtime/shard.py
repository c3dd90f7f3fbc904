"""One machine, one log partition, one writer.

INVARIANT  a reply leaves only when every record it was decided on is committed.
PREVENTS   a client acting on an answer that the next leader has never heard of.
PROVED BY  tests/txn/test_shard.py::test_no_reply_leaves_before_what_it_rests_on_is_committed,
           tests/txn/test_shard.py::test_a_read_waits_for_what_a_timer_has_written

    decide -> apply -> append -> committed -> reply

What is decided while earlier records are still on their way to being committed waits for those too: it
may rest on them. Nothing is ever rolled back. When a record can't be written or the partition is led by
another, the shard is lost with its machine, and whoever coordinates here next builds one from the log.
"""

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import Offset
from fencepost.cluster.base.ports import Env
from fencepost.cluster.base.request_scope import enter_scope, kept_scope, leave_scope
from fencepost.cluster.wire.records import control_batch

from .decision import (
    Answer,
    CancelTimer,
    Decision,
    Parked,
    Producer,
    Send,
    SetTimer,
    TimerKey,
)
from .encoding import encode
from .pace import Pace
from .ports import Machine, RecordLog
from .ticker import Ticker
from .unread import Unread

E = ErrorCode
READ_MAX: Final = 100  # owners decoded in one turn of the loop: about 3 ms
READ_REST_S: Final = 0.003  # and as long for others, at least
SETTLE_EVERY: Final = 1_000  # owners
# A timer whose decision could not be written is due again: the retry of Kafka's CoordinatorTimerImpl.
TIMER_RETRY_MS: Final = 500
UNREADABLE: Final = E.corrupt_message  # what `on_lost` is told of a record that can't be decoded

# What a partition says -> what a coordinator's client understands (CoordinatorOperationExceptionHelper).
_AS_COORDINATOR: Final = {
    E.network_exception: E.coordinator_load_in_progress,  # a transaction could not be verified
    E.unknown_topic_or_partition: E.coordinator_not_available,
    E.not_enough_replicas: E.coordinator_not_available,
    E.request_timed_out: E.coordinator_not_available,
    # Its transaction was said to be open, and a marker of the one before has come since: it is asked for anew.
    E.invalid_txn_state: E.coordinator_not_available,
    E.not_leader_or_follower: E.not_coordinator,
    E.kafka_storage_error: E.not_coordinator,
    E.message_too_large: E.unknown_server_error,
    E.record_list_too_large: E.unknown_server_error,
    E.invalid_fetch_size: E.unknown_server_error,
}

# Why something is not written by a shard that goes on.
_PASSING: Final = frozenset({E.not_enough_replicas, E.invalid_producer_epoch, E.invalid_txn_state})

Reply = asyncio.Future[Any]


class _Waiting:
    """What leaves when everything below `horizon` is committed."""

    __slots__ = ("answers", "horizon", "reply", "reply_to", "scope")

    def __init__(
        self, horizon: Offset, reply_to: Reply | None, reply: Any, answers: Sequence[Answer | Send]
    ) -> None:
        self.horizon = horizon
        self.reply_to = reply_to
        self.reply = reply
        self.answers = answers
        # What is to be done elsewhere is done for whoever asked for it.
        does_more = any(type(each) is Send for each in answers)
        self.scope = kept_scope() if does_more else None


class _Alarm:
    """What the ticker knows of a shard. It remembers it until the last of its deadlines, minutes after the shard and
    all its groups are gone."""

    __slots__ = ("shard",)

    def __init__(self, shard: "Shard") -> None:
        self.shard: Shard | None = shard

    def tick(self, key: TimerKey) -> None:
        if self.shard is not None:
            self.shard.tick(key)


class Shard:
    def __init__(
        self,
        name: str,
        *,
        env: Env,
        log: RecordLog,
        machine: Machine,
        ticker: Ticker,
        commit_timeout_ms: int,
        on_lost: Callable[["Shard", ErrorCode], None],
        unread: Unread | None = None,
        send: Callable[["Shard", Any], None] | None = None,
    ) -> None:
        self.name = name
        self.machine = machine
        self.log = log
        self._env = env
        self._ticker = ticker
        self._alarm = _Alarm(self)
        self._commit_timeout_s = commit_timeout_ms / 1000
        self._on_lost = on_lost
        self._send = send
        self._lost: ErrorCode | None = None
        self._written = log.log_end_offset
        self._waiting: deque[_Waiting] = deque()
        self._parked: dict[int, Reply] = {}
        self._is_committing = False
        self._unread = unread or None  # until all of it has been read
        self._all_read = asyncio.Event()

    @property
    def is_lost(self) -> bool:
        """Nothing that it says counts any more."""
        return self._lost is not None

    async def execute(self, command: Any) -> Any:
        """The reply; an ErrorCode if this coordinator could not take the command or tell its outcome."""
        if self._unread is not None and not self._wake(self.machine.owners_of(command)):
            await self._all_read.wait()
        if self._lost is not None:
            return self._lost
        reply_to: Reply = asyncio.get_running_loop().create_future()
        now_ms = self._env.clock.now_ms()  # from here ...
        decision = self.machine.decide(command, now_ms)
        refusal = self._take(
            decision, now_ms, reply_to
        )  # ... to here no await: commands are serial
        if refusal is not E.none:
            return refusal
        if isinstance(decision.reply, Parked):
            try:
                return await reply_to
            finally:
                self._forget(decision.reply.ticket, reply_to)
        if reply_to.done():
            return reply_to.result()
        try:
            async with asyncio.timeout(self._commit_timeout_s):
                return await reply_to
        except TimeoutError:
            return E.coordinator_not_available  # it may be committed yet: the client asks again

    def tick(self, key: TimerKey) -> None:
        """A timer of this machine is due."""
        if self._lost is None:
            now_ms = self._env.clock.now_ms()
            code = self._take(self.machine.tick(key, now_ms), now_ms)
            if code is not E.none and self._lost is None:
                self._ticker.set(self._alarm, key, TIMER_RETRY_MS)

    def open(self) -> None:
        """The log has been replayed into the machine: from here on it takes commands."""
        now_ms = self._env.clock.now_ms()
        self._take(self.machine.loaded(now_ms), now_ms)
        if self._unread is None:
            self._all_read.set()

    async def read_on(self, pace: Pace) -> None:
        """Read whoever nobody asks for, bit by bit: their timers begin to run, and they can be listed."""
        done = 0
        while self._unread is not None:
            self._wake_first(self._unread.first(READ_MAX))
            done += READ_MAX
            if done % SETTLE_EVERY == 0:
                # Python's collector would look at every group that there is, again and again while they grow:
                # a second's stall at 100,000. None of this is in a cycle.
                gc.freeze()
            await pace.breathe(READ_REST_S)

    async def end_transaction(
        self,
        producer: Producer,
        *,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int = 0,
    ) -> ErrorCode:
        """Write the marker that decides what this producer wrote here."""
        if self._lost is not None:
            return self._lost
        now_ms = self._env.clock.now_ms()
        batch = control_batch(
            commit=commit,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        first = self.log.append(batch, now_ms, transaction_version=transaction_version)
        if isinstance(first, ErrorCode):
            return first  # nothing was applied: the caller tries again, here or elsewhere
        self.machine.end_transaction(producer.producer_id, commit=commit)
        self._written = self.log.log_end_offset
        reply_to: Reply = asyncio.get_running_loop().create_future()
        self._deliver_when_committed(_Waiting(self._written, reply_to, E.none, ()))
        result: ErrorCode = await reply_to
        return result

    def close(self, code: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Take nothing more and tell everyone who waits. Safe to call again."""
        if self._lost is not None:
            return
        self._lost = code
        self._unread = None
        self._all_read.set()
        self._ticker.drop(self._alarm)
        self._alarm.shard = None
        waiting = [entry.reply_to for entry in self._waiting if entry.reply_to is not None]
        for reply_to in [*waiting, *self._parked.values()]:
            if not reply_to.done():
                reply_to.set_result(code)
        self._waiting.clear()
        self._parked.clear()

    # -- what has yet to be read ----------------------------------------------------------------------

    def _wake(self, owners: Sequence[str] | None) -> bool:
        """Have the machine know these owners. False: it takes everybody, and not all have been read."""
        if owners is None:
            return False
        self._wake_first([owner.encode(errors="surrogatepass") for owner in owners])
        return True

    def _wake_first(self, owners: Sequence[bytes]) -> None:
        now_ms = self._env.clock.now_ms()
        for owner in owners:
            unread = self._unread
            if unread is None:
                return
            try:
                is_new = unread.read(owner, self.machine)
            except ValueError as trouble:
                self._env.log.error("coordinator_unreadable", shard=self.name, cause=str(trouble))
                self.close()
                self._on_lost(self, UNREADABLE)
                return
            if is_new:
                decision = self.machine.woken(owner.decode(errors="surrogatepass"), now_ms)
                assert not decision.records, f"{self.name}: reading {owner!r} wrote records"
                self._take(decision, now_ms)
            if not unread.rows:
                self._unread = None
                self._all_read.set()

    # -- the parts of a decision -----------------------------------------------------------------

    def _take(self, decision: Decision, now_ms: int, reply_to: Reply | None = None) -> ErrorCode:
        batches = encode(decision.records, now_ms, decision.producer)
        if isinstance(batches, ErrorCode):
            return _as_coordinator(batches)  # before anything was applied: the machine is as it was
        if decision.whole and len(batches) > 1:
            return _as_coordinator(E.message_too_large)
        if batches:
            writable = self.log.may_append(decision.producer)
            if writable is not E.none:
                self._keep_heard(decision)
                return self._refuse(writable)
        producer_id = -1 if decision.producer is None else decision.producer.producer_id
        offset = int(self._written)
        for record in decision.records:
            self.machine.apply(
                record, offset, producer_id
            )  # an illegal record dies before any disk
            offset += 1
        for step in decision.steps:
            self.machine.apply(step)
        for batch in batches:
            first = self.log.append(batch, now_ms)
            if isinstance(first, ErrorCode):
                return self._lose(first)
            assert first == self._written, f"{self.name}: another writer at {first}"
            self._written = self.log.log_end_offset
        assert self._written == offset, (
            f"{self.name}: applied to {offset}, wrote to {self._written}"
        )
        answers = self._act(decision)
        for note in decision.notes:
            self._env.log.info(note.event, **note.fields)
        if isinstance(decision.reply, Parked):
            assert reply_to is not None, "nobody waits for this reply"
            self._parked[decision.reply.ticket] = reply_to
            reply_to = None
        if reply_to is not None or answers:
            waiting = _Waiting(self._written, reply_to, decision.reply, answers)
            self._deliver_when_committed(waiting)
        return E.none

    def _act(self, decision: Decision) -> list[Answer | Send]:
        """Timers are promises to ourselves and start at once. What others get to know is left for later."""
        answers: list[Answer | Send] = []
        for effect in decision.effects:
            match effect:
                case Answer() | Send():
                    answers.append(effect)
                case SetTimer():
                    self._ticker.set(self._alarm, effect.key, effect.delay_ms)
                case CancelTimer():
                    self._ticker.cancel(self._alarm, effect.key)
        return answers

    def _deliver_when_committed(self, waiting: _Waiting) -> None:
        if not self._waiting and waiting.horizon <= self.log.high_watermark:
            self._deliver(waiting)
            return
        self._waiting.append(waiting)
        if not self._is_committing:
            self._follow()

    def _follow(self) -> None:
        """Hear of it when the first of those who wait may go. No task and no turn of the loop lies between."""
        code = self.log.when_committed(self._waiting[0].horizon, self._committed)
        self._is_committing = True
        if code is not None:
            self._env.clock.call_later(0, partial(self._committed, code))

    def _committed(self, code: ErrorCode) -> None:
        self._is_committing = False
        if self._lost is not None:
            return
        if code is not E.none:
            # Not at once: we may be deep inside what took the partition away.
            self._env.clock.call_later(0, lambda: self._lost_with(code))
            return
        high_watermark = self.log.high_watermark
        while self._waiting and self._waiting[0].horizon <= high_watermark:
            self._deliver(self._waiting.popleft())
        if self._waiting and not self._is_committing:
            self._follow()

    def _lost_with(self, code: ErrorCode) -> None:
        self._lose(code)

    def _deliver(self, waiting: _Waiting) -> None:
        if waiting.reply_to is not None and not waiting.reply_to.done():
            waiting.reply_to.set_result(waiting.reply)
        for answer in waiting.answers:
            if isinstance(answer, Send):
                assert self._send is not None, f"{self.name} has nobody to send by"
                token = enter_scope(waiting.scope)
                self._send(self, answer.what)
                leave_scope(token)
                continue
            parked = self._parked.pop(answer.ticket, None)
            if parked is not None and not parked.done():
                parked.set_result(answer.fields)

    def _forget(self, ticket: int, reply_to: Reply) -> None:
        """The client went away, or has its answer."""
        if self._parked.get(ticket) is reply_to:
            del self._parked[ticket]

    def _keep_heard(self, decision: Decision) -> None:
        for effect in decision.effects:
            if isinstance(effect, SetTimer) and effect.heard:
                self._ticker.set(self._alarm, effect.key, effect.delay_ms)

    def _refuse(self, code: ErrorCode) -> ErrorCode:
        """Nothing can be written now. That too few replicas are in sync will pass, a producer that is fenced is that
        producer's trouble, and nothing was applied yet: the machine stays, and goes on answering what needs no record.
        Anything else means that we lead no more."""
        return _as_coordinator(code) if code in _PASSING else self._lose(code)

    def _lose(self, code: ErrorCode) -> ErrorCode:
        answer = _as_coordinator(code)
        if self._lost is None:
            self._env.log.warn("coordinator_lost", shard=self.name, cause=code.name)
            self.close(answer)
            self._on_lost(self, code)
        return answer


def _as_coordinator(code: ErrorCode) -> ErrorCode:
    return _AS_COORDINATOR.get(code, code)
