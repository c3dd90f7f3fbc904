"""Half messages: a record that is there for nobody until the local transaction that it tells of has ended.

    class Payments(HalfMessageProducer):
        def execute_local_transaction(self, half_id, argument): ...   # the database transaction
        def check_local_transaction(self, half_id): ...               # asked later, perhaps in another process

    with Payments(bootstrap, "payments", AdminApi.of_dev(bootstrap)) as payments:
        payments.send("paid", value=payment.message(), half_id=f"{payment.id}-{uuid4()}", argument=payment)

A half message is named after one attempt, not after what it is about: the local transaction writes that name into the
row that it inserts, and a check, which is given nothing else, looks for it there. Were it the payment's number, a payment
that is sent again after its process died would be found for both, and told twice. INVARIANT, PREVENTS and PROVED BY
stand in `txn/transactions/check_back_machine.py`: nothing is decided here.
"""

import enum
import logging
import os
import queue
import secrets
import socket
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaException

from .admin_api import AdminApi, AdminRefused, AdminUnreachable
from .checker import Checker, Verdict, as_verdict
from .identity import IdentifiedProducer, retrying
from .names import SEPARATOR, group_name
from .refused_records import RefusedRecords, Words, may_pass, refused_at_once, telling

LANES_MAX: Final = 8
FLUSH_S: Final = 60.0
END_S: Final = 15.0
LANE_S: Final = 60.0  # of waiting for a lane, until that is said
PRODUCER_FENCED: Final = "PRODUCER_FENCED"
WAITING: Final = "waiting"
NO_NUMBERS: Final = "'half_number' is no field"  # a door of an older build

log = logging.getLogger("fencepost.clients")


class HalfOutcome(enum.Enum):
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    LEFT_TO_CHECKS = WAITING  # the coordinator will ask, unless it was told and its answer was lost


class HalfMessageIsOver(RuntimeError):
    """Another half message had this name and was decided (`state`): the local transaction was not begun."""

    def __init__(self, half_id: str, state: str) -> None:
        super().__init__(
            f"half message {half_id} is over: it was {state.replace('_', ' ')}, and a name is decided once. What was "
            "written now is not committed, and its local transaction was not begun: give it another name"
        )
        self.half_id = half_id
        self.state = state


class HalfMessageInDoubt(RuntimeError):
    """Nobody said whether it was prepared, and it could not be aborted: the local transaction was not begun."""

    def __init__(self, half_id: str) -> None:
        super().__init__(
            f"half message {half_id} may be prepared: the coordinator gave no answer, and to abort it failed too. Its local "
            "transaction was not begun. If it is prepared, a check will ask about it; else it is aborted when its time is "
            "over. The same name must not be sent again, or both may be committed: give the next attempt another name"
        )
        self.half_id = half_id


class HalfMessage:
    """A half message that is there. End it once, with one of these three."""

    def __init__(
        self, owner: "HalfMessageProducer", lane: IdentifiedProducer, half_id: str
    ) -> None:
        self.half_id = half_id
        self._owner = owner
        self._lane: IdentifiedProducer | None = lane

    def commit(self) -> HalfOutcome:
        return self._owner.end(self, self._take(), Verdict.COMMIT)

    def rollback(self) -> HalfOutcome:
        return self._owner.end(self, self._take(), Verdict.ROLLBACK)

    def leave(self) -> HalfOutcome:
        """Nobody knows yet how it ends: the coordinator asks for it, from its first interval on."""
        self._take()
        return self._owner.leave()

    def end(self, verdict: Verdict) -> HalfOutcome:
        """By what is no Verdict nothing is decided: the local transaction may have been committed."""
        try:
            as_verdict(verdict, self.half_id)
        except TypeError:
            self.leave()
            raise
        if verdict is Verdict.UNKNOWN:
            return self.leave()
        return self.commit() if verdict is Verdict.COMMIT else self.rollback()

    def _take(self) -> IdentifiedProducer:
        lane, self._lane = self._lane, None
        if lane is None:
            raise RuntimeError(f"{self.half_id} has been ended already")
        return lane


class HalfMessageProducer:
    """Up to `lanes` half messages at a time; further ones wait for a lane. Safe to be used by several threads."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        admin: AdminApi,
        *,
        member: str | None = None,
        lanes: int = LANES_MAX,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.group = group_name(group)
        # Of this process alone: a name that came again would wait for what its predecessor left open.
        self.member = member or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._bootstrap = bootstrap
        self._admin = admin
        self._config = dict(config or {})
        # The one used last first: new ones are made only when all others are at work.
        self._lanes: queue.LifoQueue[IdentifiedProducer | None] = queue.LifoQueue()
        self._lanes_max = lanes
        for _ in range(lanes):
            self._lanes.put(None)
        self._numbers = iter(range(1, 2**63))
        self._half_numbers = iter(range(1, 2**63))  # those of one lane go up
        self._checker = Checker(group, self.member, admin, self._check)

    # -- what an application says ----------------------------------------------------------------

    def execute_local_transaction(self, half_id: str, argument: Any) -> Verdict:
        """The local transaction, which stores `half_id` in what it writes, so that a check finds this attempt and no other."""
        raise TypeError(f"{type(self).__name__} must say how to execute_local_transaction")

    def check_local_transaction(self, half_id: str) -> Verdict:
        """What became of it. ROLLBACK only if it surely can't be committed any more; else UNKNOWN."""
        raise TypeError(f"{type(self).__name__} must say how to check_local_transaction")

    def _check(self, half_id: str, _transactional_id: str) -> Verdict:
        return self.check_local_transaction(half_id)

    # -- producing -------------------------------------------------------------------------------

    def send(
        self, topic: str, *, half_id: str, argument: Any = None, **message: Any
    ) -> HalfOutcome:
        """Half message, local transaction, end. If the local transaction raises, a check will find out."""
        half = self.send_half(topic, half_id=half_id, **message)
        verdict = Verdict.UNKNOWN
        try:
            verdict = self.execute_local_transaction(half_id, argument)
        finally:
            outcome = half.end(verdict)
        return outcome

    def send_half(self, topic: str, *, half_id: str, **message: Any) -> HalfMessage:
        """The record is in its partition and prepared: no timeout ends it, nobody reads it. End what is returned.

        Whatever it raises, there is no half message, and the name may be sent again; but for HalfMessageInDoubt."""
        lane = self._free_lane()
        half: HalfMessage | None = None
        may_be_prepared = False
        try:
            if lane is None:
                lane = self._new_lane()
            self._write(lane, topic, half_id, message)
            may_be_prepared = True
            try:
                self._prepare(lane, half_id)
            except (AdminRefused, HalfMessageIsOver):
                may_be_prepared = False
                raise
            half = HalfMessage(self, lane, half_id)
        finally:
            if half is None:
                self._give_up(lane, half_id, may_be_prepared=may_be_prepared)
        return half

    def _free_lane(self) -> IdentifiedProducer | None:
        try:
            return self._lanes.get(timeout=LANE_S)
        except queue.Empty:
            log.warning(
                "half messages of %s: all %d lanes have been at work for %g s. Each one that `send_half` gave holds one until its "
                "commit, rollback or leave: is one of them dropped? Else local transactions take long: say more lanes",
                self.group,
                self._lanes_max,
                LANE_S,
            )
        return self._lanes.get()

    def _give_up(
        self, lane: IdentifiedProducer | None, half_id: str, *, may_be_prepared: bool
    ) -> None:
        """Abort what was written: its local transaction has not begun, and readers must not wait for what nobody ends."""
        kept: IdentifiedProducer | None = None
        try:
            kept = None if lane is None else self._aborted(lane)
        finally:
            # A question without an answer may still be on its way: it must not find another half message in this lane.
            self._lanes.put(None if may_be_prepared else kept)
        trouble = sys.exception()
        if may_be_prepared and kept is None and isinstance(trouble, Exception):
            raise HalfMessageInDoubt(half_id) from trouble

    def _write(
        self, lane: IdentifiedProducer, topic: str, half_id: str, message: Mapping[str, Any]
    ) -> None:
        words = Words(f"half message {half_id}", "config", "send another", "send it again")
        refused = RefusedRecords({"bootstrap.servers": self._bootstrap, **self._config}, words)
        errors: list[Any] = []

        def delivered(error: Any, record: Any) -> None:
            if error is not None:
                errors.append(error)
                refused.delivered(error, record)

        lane.producer.begin_transaction()
        try:
            lane.producer.produce(topic, **telling(delivered, message))
        except KafkaException as trouble:
            if may_pass(trouble.args[0]):
                raise
            raise refused.of(refused_at_once(trouble.args[0], topic, message)) from trouble
        left = lane.producer.flush(FLUSH_S)
        refusal = refused.refusal()
        if refusal is not None:
            raise refusal
        if left or errors:
            why = errors[0] if errors else f"not acknowledged in {FLUSH_S:g} s"
            raise RuntimeError(f"half message {half_id} was not written: {why}")

    def _new_lane(self) -> IdentifiedProducer:
        transactional_id = f"{self.group}{SEPARATOR}{self.member}-{next(self._numbers)}"
        lane = IdentifiedProducer(self._bootstrap, transactional_id, self._config)
        lane.start()
        return lane

    def _prepare(self, lane: IdentifiedProducer, half_id: str) -> None:
        """HalfMessageIsOver when one of that name was decided: then this one is not prepared.

        Its identity may be that of before an error: ask librdkafka again before believing that it was fenced."""
        identity, half_number = lane.identity(), next(self._half_numbers)
        for is_last in (False, True):
            body = {
                "transactional_id": lane.transactional_id,
                "producer_id": identity.producer_id,
                "producer_epoch": identity.producer_epoch,
                "half_id": half_id,
            }
            try:
                state = str(self._ask_to_prepare(body, half_number)["state"])
            except AdminRefused as refused:
                if is_last or refused.error != PRODUCER_FENCED:
                    raise
                identity = lane.identity(fresh=True)
            else:
                if state != WAITING:
                    raise HalfMessageIsOver(half_id, state)
                return

    def _ask_to_prepare(self, body: dict[str, Any], half_number: int) -> dict[str, Any]:
        """By the number a question that comes late is told from the next one, where the nodes know of it."""
        path = "/v1/checks/prepare"
        try:
            return self._admin.call("POST", path, {**body, "half_number": half_number})
        except AdminRefused as refused:
            if NO_NUMBERS not in refused.message:
                raise
            return self._admin.call("POST", path, body)

    def _aborted(self, lane: IdentifiedProducer) -> IdentifiedProducer | None:
        """The lane, if it is of use for the next one."""
        try:
            retrying(lambda: lane.producer.abort_transaction(5.0), END_S)
        except KafkaException:
            return None
        return lane

    def leave(self) -> HalfOutcome:
        """A lane whose transaction stays open is of no use any more: the next half message makes a new one."""
        self._lanes.put(None)
        return HalfOutcome.LEFT_TO_CHECKS

    def end(self, half: HalfMessage, lane: IdentifiedProducer, verdict: Verdict) -> HalfOutcome:
        """What a HalfMessage's `commit` and `rollback` do. Says how it ended, which a check may have decided before."""
        commit = verdict is Verdict.COMMIT
        call = lane.producer.commit_transaction if commit else lane.producer.abort_transaction
        # Whatever cuts it short, a signal handler that raises too, may leave its transaction open: the next one would abort it.
        kept: IdentifiedProducer | None = None
        try:
            retrying(lambda: call(5.0), END_S)
            kept = lane
        except KafkaException:
            return self._end_by_admin(half, lane, verdict)
        finally:
            self._lanes.put(kept)
        return HalfOutcome.COMMITTED if commit else HalfOutcome.ROLLED_BACK

    def _end_by_admin(
        self, half: HalfMessage, lane: IdentifiedProducer, verdict: Verdict
    ) -> HalfOutcome:
        """Librdkafka can't tell, or was told that it is decided otherwise: the coordinator knows. If it gives no answer, or refuses, a
        check will tell: to raise would say that the local transaction was not begun."""
        body = {
            "transactional_id": lane.transactional_id,
            "half_id": half.half_id,
            "verdict": verdict.value,
            "member": self.member,
        }
        try:
            return HalfOutcome(self._admin.call("POST", "/v1/checks/answer", body)["state"])
        except (AdminUnreachable, AdminRefused) as trouble:
            log.warning("half message %s is left to a check: %s", half.half_id, trouble)
            return HalfOutcome.LEFT_TO_CHECKS

    # -- checks ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Answer checks of the whole group from now on, in a thread."""
        self._checker.start()

    def close(self) -> None:
        """No checks any more, and no threads of producers that have nothing to do. A half message that is sent later makes one."""
        self._checker.stop()
        idle = 0
        try:
            while True:
                self._lanes.get_nowait()
                idle += 1
        except queue.Empty:
            for _ in range(idle):
                self._lanes.put(None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
