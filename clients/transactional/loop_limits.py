"""How long a transaction of the loop may take, and why one was refused: its time was up, or its member's, or another has its id.

INVARIANT  a loop that is given messages commits some of them, or says what keeps it from that.
PREVENTS   a loop that reads, works, is fenced and reads the same again, for ever and without a word of why.
PROVED BY  tests/clients/test_transactional_loop_limits.py::test_a_transaction_ends_before_its_time_is_up

Its time is the producer's transaction.timeout.ms and the consumer's max.poll.interval.ms: a member that has not read again by then
leaves its group, and the positions that it sends are refused.

A broker says the same of a transaction whose time was up and of another's id: an old epoch. But it never ends a transaction before its transaction.timeout.ms, and its clock
begins after ours: what is fenced earlier was fenced by whoever began with the same transactional id.

Two loops with one id take turns, with longer and longer pauses and a warning, and no end: of a process that is being
replaced and its successor each fences the other, and an error in either would stop the update that is to part them.
"""

import logging
import threading
import time
from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import KafkaError, Message

# After the second fencing that no timeout explains; twice as long after each further one.
PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 15.0
FORGOTTEN_S: Final = 60.0  # after the last one
FENCED: Final = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
)
# Of the producer: its transaction is aborted then. Of the consumer: it leaves its group then.
TIMEOUT: Final = "transaction.timeout.ms"
MAX_POLL: Final = "max.poll.interval.ms"
MAY: Final[Mapping[str, str]] = {
    TIMEOUT: "a transaction may be open for {:g} s",
    MAX_POLL: "a member may work for {:g} s before it reads again",
}

log = logging.getLogger("fencepost.clients")


class TransactionTooSlow(RuntimeError):
    """One message takes longer than a transaction or a member may: which one, and what to do. Nothing of it was committed."""


class LoopLimits:
    """Of one loop: asked before each message, told when a transaction begins and how it ends."""

    def __init__(
        self, transactional_id: str, timeout_ms: int, max_poll_ms: int, stopping: threading.Event
    ) -> None:
        self._transactional_id = transactional_id
        self._timeout_s = timeout_ms / 1000
        self._max_poll_s = max_poll_ms / 1000
        self._stopping = stopping
        self._began = 0.0
        self._worked_s: float | None = None  # until all was transformed and handed over, or failed
        self._taken = 0
        self._alone_left = 0  # messages of one that timed out: each has a transaction of its own
        self._fencings = 0  # that no timeout explains
        self._fenced_at = 0.0

    def begin(self) -> None:
        self._began = time.monotonic()
        self._worked_s = None
        self._taken = 0

    def takes_another(self) -> bool:
        """Half of the time is for the commit. Whatever happens there is one message: it may be its broker that was slow."""
        most_s = min(self._timeout_s, self._max_poll_s) / 2
        if self._taken and (self._alone_left or time.monotonic() - self._began >= most_s):
            return False
        self._taken += 1
        return True

    def worked(self) -> None:
        """What comes behind the first call is the brokers' time."""
        if self._worked_s is None:
            self._worked_s = time.monotonic() - self._began

    def committed(self) -> None:
        self._alone_left = max(self._alone_left - self._taken, 0)

    def failed(self, error: KafkaError, first: Message) -> TransactionTooSlow | None:
        """Waits when another has our id. What is returned is to be raised when all is as before the transaction."""
        took_s = time.monotonic() - self._began
        is_fenced = error.code() in FENCED
        if exceeded := self._exceeded(took_s, is_fenced=is_fenced):
            return self._timed_out(took_s, exceeded, first, is_fenced=is_fenced)
        if is_fenced:
            self._fenced(took_s)
        return None

    def _exceeded(self, took_s: float, *, is_fenced: bool) -> dict[str, float]:
        """The settings that explain it. A transaction that was not fenced may have been open for less: since its first record."""
        exceeded = {}
        is_too_late = took_s >= self._max_poll_s
        if took_s >= self._timeout_s and (is_fenced or not is_too_late):
            exceeded[TIMEOUT] = self._timeout_s
        if is_too_late:
            exceeded[MAX_POLL] = self._max_poll_s
        return exceeded

    def _timed_out(
        self, took_s: float, exceeded: dict[str, float], first: Message, *, is_fenced: bool
    ) -> TransactionTooSlow | None:
        """A message is tried alone before it is blamed."""
        worked_s = took_s if self._worked_s is None else self._worked_s
        causes = {name: exceeded[name] for name in exceeded if worked_s >= exceeded[name]}
        if self._alone_left and causes:
            return TransactionTooSlow(
                f"{first.topic()}-{first.partition()} offset {first.offset()} takes {worked_s:.1f} s alone, and "
                f"{' and '.join(MAY[name].format(causes[name]) for name in causes)}: it was "
                f"tried twice and {'fenced' if is_fenced else 'refused'}, and nothing of it was committed. "
                f"{_advice(causes, round(worked_s * 4) * 1000)}"
            )
        log.warning(
            "transaction of %s: it was not over in its %s; its messages are tried one by one",
            self._transactional_id,
            " and its ".join(f"{name}, {exceeded[name]:g} s" for name in exceeded),
        )
        self._alone_left = max(self._alone_left, self._taken)
        return None

    def _fenced(self, took_s: float) -> None:
        now = time.monotonic()
        self._fencings = 1 if now - self._fenced_at > FORGOTTEN_S else self._fencings + 1
        pause_s = 0.0
        if self._fencings > 1:
            pause_s = min(PAUSE_S * 2 ** min(self._fencings - 2, 10), PAUSE_S_MAX)
            log.warning(
                "transaction of %s: fenced %d times before its time was up, the last time %.1f s after it began. Another process works as "
                "%s: give each loop its own transactional_id. This one goes on in %g s",
                self._transactional_id,
                self._fencings,
                took_s,
                self._transactional_id,
                pause_s,
            )
        self._stopping.wait(pause_s)
        self._fenced_at = time.monotonic()


def _advice(causes: Collection[str], enough_ms: int) -> str:
    give = []
    if TIMEOUT in causes:
        give.append(
            f'producer_config={{"{TIMEOUT}": {enough_ms}}} (readers wait for as long when a process is killed)'
        )
    if MAX_POLL in causes:
        give.append(
            f'consumer_config={{"{MAX_POLL}": {enough_ms}}} (a process that hangs keeps its partitions for as long)'
        )
    or_else = ", or have transform give its outputs at its end" if list(causes) == [TIMEOUT] else ""
    return f"Give the loop more time, such as {' and '.join(give)}{or_else}"
