"""What the runtime asks of others: a log to write to, and a machine to run."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import Offset
from fencepost.cluster.base.ports import Buffer

from .decision import Decision, LogRecord, Producer, TimerKey


class RecordLog(Protocol):
    """One partition, as the coordinator that leads it sees it (`partition_log.py` adapts the real one)."""

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...

    def may_append(self, producer: Producer | None = None) -> ErrorCode:
        """Why nothing can be written now (in this producer's transaction), if that is known before trying."""

    def append(
        self, batch: bytearray, now_ms: int, *, transaction_version: int = 0
    ) -> Offset | ErrorCode:
        """Write one record batch; the offset of its first record, or why nothing was written.

        The version is that of the transaction which a marker ends.
        """

    async def committed(self, horizon: Offset) -> ErrorCode:
        """`none` once everything below `horizon` is committed; otherwise why it will not be by us."""

    def when_committed(
        self, horizon: Offset, tell: Callable[[ErrorCode], None]
    ) -> ErrorCode | None:
        """The same without waiting: the outcome if it is known, else None, and `tell` is called with it, once."""

    async def read(self, offset: Offset, max_bytes: int) -> Buffer | ErrorCode:
        """Whole committed batches, the first of which holds `offset`; empty at the high watermark."""

    def damaged(self, why: str) -> None:
        """What is on this node's disk is not what was written: another replica shall lead."""


class Machine(Protocol):
    """A pure state machine over one partition (style: decide, apply, tick)."""

    def decide(self, command: Any, now_ms: int) -> Decision: ...

    def apply(self, change: Any, offset: int = -1, producer_id: int = -1) -> None:
        """Take in a record (live and in replay) or a step. The only method that changes anything."""

    def tick(self, key: TimerKey, now_ms: int) -> Decision:
        """A timer that the machine had set is due."""

    def loaded(self, now_ms: int) -> Decision:
        """The replay is over and commands will come: set the timers of what was found."""

    def owners_of(self, command: Any) -> Sequence[str] | None:
        """Whom a command is about: they are read from the log before it is decided. None: everybody."""

    def woken(self, owner: str, now_ms: int) -> Decision:
        """One owner has been read after `loaded`: set its timers. Writes no records."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker is in the log: what this producer wrote since its last one counts, or never did."""


class Decode(Protocol):
    """Turns a key and value of the log into a change, or None for one that this version skips."""

    def __call__(self, key: bytes, value: bytes | None, /) -> LogRecord | None: ...


class OwnerOf(Protocol):
    """Whose record it is (a group, a transactional id), told from its first bytes; None for a kind that is skipped.

    ValueError for a version that is not known: the partition stays closed rather than without that owner.
    """

    def __call__(self, key: bytes, value: bytes | None, /) -> bytes | None: ...


class IsUrgent(Protocol):
    """Whether this record, the last of its key, leaves its owner something to be done at once; a quick look."""

    def __call__(self, key: bytes, value: bytes | None, /) -> bool: ...


class Codec(NamedTuple):
    """How the records of one internal topic are read."""

    decode: Decode
    owner_of: OwnerOf
    is_urgent: IsUrgent | None = None  # nobody is, unless asked for
