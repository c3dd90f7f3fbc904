"""The words in which the producers machine is asked and answers."""

from typing import Final, NamedTuple, Protocol

from fencepost.cluster.base.errors import ErrorCode


class ProducedBatch(Protocol):
    """What the machine reads of a batch's header (`cluster.wire.batch.BatchHeader`)."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...


class Marker(NamedTuple):
    """The one record of a control batch that ends a transaction."""

    coordinator_epoch: int
    commit: bool
    timestamp: int


class CompletedTxn(NamedTuple):
    """A transaction that a marker has ended; `last_stable_offset` is what the index of aborted ones wants."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


class Accept:
    """The batch may be written."""

    __slots__ = ()


class Duplicate(NamedTuple):
    """The batch is in the log already: answer with what was answered the first time."""

    first_offset: int
    last_offset: int
    timestamp: int


class Refused(NamedTuple):
    error: ErrorCode
    message: str


Verdict = Accept | Duplicate | Refused
ACCEPT: Final = Accept()
