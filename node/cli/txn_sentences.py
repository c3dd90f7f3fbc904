"""What is said of transactions: why a partition's last stable offset stands still, and which transactions hang.

Pure: it is told what the cluster says of itself, and gives sentences and choices.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.cluster.base.ids import NO_LEADER, TopicPartition
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.metadata.offline import why_offline

from .printable import quoted

ENDING: Final = {"PrepareCommit": "commit", "PrepareAbort": "abort", "PrepareEpochFence": "abort"}
PREPARED: Final = "Prepared"
# What the timeout of a transaction is that only its owner ends (KIP-939).
NO_TIMEOUT_MS: Final = 2**31 - 1
OPEN: Final = frozenset({"Ongoing", PREPARED, *ENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What a coordinator says of one transactional id."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None  # None while nothing is open
    partitions: tuple[TopicPartition, ...]
    coordinator: int

    @property
    def has_timeout(self) -> bool:
        """What is prepared is ended by its owner alone."""
        return self.state != PREPARED and self.timeout_ms != NO_TIMEOUT_MS

    @property
    def is_open(self) -> bool:
        """Something was begun, and not every partition shows how it ended."""
        return self.state in OPEN

    def age_ms(self, now_ms: int) -> int | None:
        """None while nothing is open: what has ended still tells when it began."""
        if self.started_ms is None or not self.is_open:
            return None
        return max(0, now_ms - self.started_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A transaction as a partition has it: something was written, and no marker has come."""

    place: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_write_ms: int
    since_ms: int | None = None  # when its first record was written, where that could be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Stable:
    """Where readers of committed records stop, and where all others do."""

    last_stable_offset: int
    high_watermark: int

    @property
    def behind(self) -> int:
        return self.high_watermark - self.last_stable_offset


def show_duration(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    seconds, left = divmod(milliseconds, 1000)
    if seconds < 60:
        return f"{seconds}.{left // 100} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def why_stands_still(
    image: ClusterImage,
    place: TopicPartition,
    stable: Stable | None,
    open_there: Sequence[Open],
    known: Mapping[int, Transaction],
    now_ms: int,
    *,
    is_known_by_all: bool = True,
) -> str:
    """One sentence or two. `known` has those transactions by producer id that a coordinator knows; of whom it does
    not have there is nothing to be said unless all coordinators answered."""
    offline = why_offline(image, place)
    if offline is not None:
        return f"It has no leader, so no marker can be written. {offline}"
    if stable is None:
        state = image.partition(*place)
        leader = NO_LEADER if state is None else state.leader
        return f"Its leader, node {leader}, does not answer."
    first = min(open_there, key=lambda each: each.first_offset, default=None)
    if first is None:
        if stable.behind == 0:
            return "It does not stand still: no transaction is open there."
        return "The transaction that held it back has just ended."
    since = ""
    if first.since_ms is not None:
        since = f" for {show_duration(max(0, now_ms - first.since_ms))}"
    said = f"Its last stable offset stands at {stable.last_stable_offset}{since}, {stable.behind} behind the high watermark: "
    whose = known.get(first.producer_id)
    if whose is None and not is_known_by_all:
        return (
            f"{said}a transaction of producer {first.producer_id} (epoch {first.producer_epoch}) that began at "
            f"{first.first_offset}. Not every coordinator answered, so it can't be told whether one will end it."
        )
    return said + _whose(first, whose, now_ms)


def _whose(first: Open, whose: Transaction | None, now_ms: int) -> str:
    began = f"began at {first.first_offset}"
    if is_hanging(first, whose):
        return (
            f"a transaction of producer {first.producer_id} (epoch {first.producer_epoch}) that {began} and that no "
            f"coordinator knows. It never ends by itself: `fencepost txn abort --topic {quoted(first.place.topic)} "
            f"--partition {first.place.partition} --start-offset {first.first_offset}` ends it."
        )
    assert whose is not None
    name = f"the transaction of {whose.transactional_id}, which {began},"
    if whose.state in ENDING:
        return f"{name} is decided ({ENDING[whose.state]}); the marker is on its way from node {whose.coordinator}."
    if not whose.has_timeout:
        return (
            f"{name} waits for its owner to commit or abort it; it has no timeout. `fencepost txn parked --all` "
            "shows whether anybody is asked about it."
        )
    age = whose.age_ms(now_ms)
    if age is None or age > whose.timeout_ms:
        return f"{name} is over its timeout of {show_duration(whose.timeout_ms)} and is about to be aborted."
    left = show_duration(whose.timeout_ms - age)
    return f"{name} is open; its producer has {left} left to end it, then it is aborted."


def is_hanging(found: Open, whose: Transaction | None) -> bool:
    """Kafka's rule (TransactionsCommand.filterHangingTransactions): no coordinator will write its marker.

    What a coordinator describes are the partitions of an open transaction, and of a decided one those that
    have no marker yet.
    """
    return whose is None or found.place not in whose.partitions


def hanging(
    found: Iterable[Open], known: Mapping[int, Transaction], *, longer_than_ms: int, now_ms: int
) -> list[Open]:
    """Those that nobody will end. A young one may not have been looked up in time, so it does not count."""
    return [
        each
        for each in found
        if now_ms - each.last_write_ms > longer_than_ms
        and is_hanging(each, known.get(each.producer_id))
    ]
