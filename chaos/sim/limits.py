"""Limits made small, so that what happens once in a month happens in every run."""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from fencepost.cluster.quorum import journal, progress, raft_leader, store
from fencepost.replication.log import compaction, shrinking
from fencepost.txn.transactions import policy
from fencepost.txn.transactions.transaction import CLIENT_EPOCH_MAX, Transaction, fresh

from ..workloads.group_member import SESSION_TIMEOUT_MS

EPOCHS_LEFT: Final = 6
CLEANERS_ODDS: Final = 1 / 3
EXPIRIES_ODDS: Final = 1 / 4
SHORT_SESSIONS_ODDS: Final = 1 / 2
SHORT_SESSION_MS: Final = 1_000


def cleaner_settings(stream: Callable[[str], random.Random]) -> tuple[str, ...]:
    """Of some seeds the logs are compacted all the time; of the others never: they are over before the cleaner looks.
    `stream` is `World.stream`."""
    dice = stream("cleaners")
    if dice.random() >= CLEANERS_ODDS:
        return ()
    return (
        "log.cleaner.backoff.ms=100",
        "log.cleaner.min.cleanable.ratio=0",
        f"log.internal.segment.bytes={dice.choice((1024, 4096))}",
    )


def expiry_settings(stream: Callable[[str], random.Random]) -> tuple[str, ...]:
    """In some seeds it is looked all the time for what has expired, and nothing has: of positions and transactional ids that were used
    just now, by clocks that may be set by days, not by weeks. In the others nobody looks: their runs are over by then."""
    if stream("expiries").random() >= EXPIRIES_ODDS:
        return ()
    return (
        "offsets.retention.check.interval.ms=200",
        "offsets.retention.minutes=30000",
        "transaction.remove.expired.transaction.cleanup.interval.ms=300",
        "transactional.id.expiration.ms=1800000000",
    )


def session_timeout_ms(stream: Callable[[str], random.Random]) -> int:
    """In some seeds groups move on while a member of theirs dawdles in the middle of a transaction that has not timed out."""
    is_short = stream("sessions").random() < SHORT_SESSIONS_ODDS
    return SHORT_SESSION_MS if is_short else SESSION_TIMEOUT_MS


@contextlib.contextmanager
def small_limits() -> Iterator[None]:
    """So that snapshots, installs, pieces and segments happen in every run."""
    small = (
        (store, "SNAPSHOT_ENTRIES", 25),
        (journal, "SEGMENT_BYTES_MAX", 900),
        (progress, "CHUNK_BYTES", 200),
        (raft_leader, "APPEND_BYTES_MAX", 400),
        (shrinking, "PIECE_BYTES", 1024),
    )
    before = [getattr(module, name) for module, name, _ in small]
    for module, name, value in small:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(small, before, strict=True):
            setattr(module, name, value)


@contextlib.contextmanager
def small_maps() -> Iterator[None]:
    """Cleaners whose map of keys is full after a dozen: a round ends in the middle of a segment, and of transactions."""
    defaults = compaction.compact.__kwdefaults__
    assert defaults is not None, "`map_bytes` has one"
    before = defaults["map_bytes"]
    defaults["map_bytes"] = 0
    try:
        yield
    finally:
        defaults["map_bytes"] = before


@contextlib.contextmanager
def old_ids() -> Iterator[None]:
    """Producer ids whose epochs are almost used up, so that they run over in every run (KAFKA-19367)."""

    def nearly_used_up(*args: Any, **named: Any) -> Transaction:
        return replace(fresh(*args, **named), producer_epoch=CLIENT_EPOCH_MAX - EPOCHS_LEFT)

    policy.__dict__["fresh"] = nearly_used_up
    try:
        yield
    finally:
        policy.__dict__["fresh"] = fresh
