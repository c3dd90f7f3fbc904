"""What was seen inside the nodes of a cluster, as plain data: what the checkers that run all the time look at.

A *key* names a partition of one topic's life (its topic id is in it), a *node* is a broker's id, a *life* counts the
starts of its process. Checkers take observations one by one and answer with the anomalies that each one
completes, so that a run stops where it went wrong.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Described:
    """A node has applied a command of the metadata log, and now says this of a partition."""

    node: int
    life: int
    key: str
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Leads:
    """A node leads a partition in an epoch that began at this offset of its log."""

    node: int
    life: int
    key: str
    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A leader shows how far it is committed, and whom it counts."""

    node: int
    life: int
    key: str
    leader_epoch: int
    high_watermark: int
    last_stable_offset: int
    isr: tuple[int, ...]
    min_isr: int = 1


@dataclass(frozen=True, slots=True)
class Told:
    """A leader answered a client that knows its epoch with a high watermark."""

    client: str
    key: str
    leader_epoch: int
    high_watermark: int


PositionKind = Literal["sent", "ok", "refused", "read"]


@dataclass(frozen=True, slots=True)
class Position:
    """What became of a group's committed offset: `sent`, before anybody can have it; then `ok` it was stored, `refused` it never
    will be, or nothing, as long as nobody knows. `read`: it is what was found.
    """

    client: str
    kind: PositionKind
    offset: int


@dataclass(frozen=True, slots=True)
class Asks:
    """A member of a group of the new protocol is about to ask what it has: with it is what `Heard` answers."""

    member: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A member of a group of the new protocol was answered: at this epoch it is one still. `held` is what it had until then,
    `given` what it has now."""

    member: str
    epoch: int
    held: tuple[tuple[str, int], ...]
    given: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Deletion:
    """What became of a DeleteRecords: `asked`, before it is sent; then `ok` with the low watermark that it was answered, `fail` it
    will not happen, `info` it may have, or may yet. `before` is -1 for all that is committed.

    `leader_epoch`: the newest that anybody has heard of when its answer came.
    """

    client: str
    key: str
    kind: Literal["asked", "ok", "fail", "info"]
    before: int
    low_watermark: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Begins:
    """A leader has shown that its log begins at `start`, or (not `is_exact`) there at the latest.

    `since`: so many deletions had been acknowledged when it was asked.
    """

    who: str
    key: str
    leader_epoch: int
    start: int
    since: int
    is_exact: bool = True


class Wrote(NamedTuple):
    """A leader has a batch in its log, which it or one before it wrote. `led_in` is the epoch in which it leads, `newest_ms` the
    batch's latest timestamp."""

    key: str
    led_in: int
    base_offset: int
    next_offset: int
    newest_ms: int
    size: int


class Began(NamedTuple):
    """Somebody's log began at `start`, when it was `now_ms` or earlier by all clocks."""

    who: str
    key: str
    start: int
    now_ms: int


class Sought(NamedTuple):
    """A leader was asked for the offset of a time, when it had told that its log ends at `end`. -1 is that there is none."""

    who: str
    key: str
    wanted_ms: int
    offset: int
    at_ms: int
    end: int


NOBODYS: Final = -1  # coordinator epoch


class Marker(NamedTuple):
    """What a control batch says of its producer's transaction."""

    commit: bool
    coordinator_epoch: int

    @property
    def is_emptied(self) -> bool:
        """Compaction has taken what it said."""
        return self.coordinator_epoch == NOBODYS


@dataclass(frozen=True, slots=True)
class Decided:
    """A committed record of the transaction log: what its coordinator has decided, or that it is complete."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str  # in Kafka's words: PrepareCommit, CompleteAbort, …
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A transactional producer heard that it can't go on: fenced, or nothing of it is there to commit."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    error: str
    has_written: bool = False  # it was told that something is part of this very transaction

    @property
    def is_fenced(self) -> bool:
        return self.error != "invalid_txn_state"


@dataclass(frozen=True, slots=True)
class Ended:
    """A transactional producer heard that the transaction of this epoch has ended so."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool


@dataclass(frozen=True, slots=True)
class Marked:
    """A marker in the log of a partition's leader, and whether a transaction was open there for it to end."""

    node: int
    partition: str
    offset: int
    producer_id: int
    producer_epoch: int
    commit: bool
    ends_one: bool


class Batch(NamedTuple):
    """One batch of a log. With its checksum it stands for its bytes."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int
    size: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: Marker | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A node's log of a partition, from its first offset on, and how much of it the node takes for committed.

    `counted`: it is in the ISR or the ELR, so it must have all that anybody committed.
    """

    node: int
    key: str
    log_start_offset: int
    batches: list[Batch]
    high_watermark: int
    counted: bool
