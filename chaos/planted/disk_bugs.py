"""Bugs of what is on a disk, planted: names, recovery points, what a cleaner leaves."""

from typing import Any

from fencepost.replication.first_reads import FirstReads
from fencepost.replication.log import settle, shrinking, sync, truncation
from fencepost.replication.log.cleaner import Cleaner
from fencepost.replication.scrubber import Scrubber

from ..sim.disk import SimDisk
from .bugs import Patch, bug

CLEANED = (
    "log.cleaner.backoff.ms=100 log.cleaner.min.cleanable.ratio=0 log.internal.segment.bytes=1024"
)


@bug(
    seen_by="synced-lost damaged lost commit-missing commit-lost",
    campaign="cluster",
    faults="power-one power-all",
)
def names_not_synced(patch: Patch) -> None:
    """A log's files are synced, the folder that names them is not: the power takes a file that was acknowledged from."""
    patch.put(sync, "_sync_names", lambda _disk, _names: None)


@bug(
    seen_by="damaged",
    campaign="cluster",
    faults="kill-two power-all power-one isolate at-a-moment at-a-write",
    seeds=20,
)
def recovery_point_not_lowered(patch: Patch) -> None:
    """A log is cut, and the checkpoint still says that it was synced up to where it ended before."""

    def claimed(log: Any, _end: int) -> None:
        log.cut_unsynced = True

    patch.put(truncation, "_lower_below", claimed)


@bug(
    seen_by="damaged",
    campaign="cluster",
    faults="slow-disk slow-disk power-one power-all",
    seconds=8.0,
    seeds=20,
)
def checkpoint_claims_too_much(patch: Patch) -> None:
    """A checkpoint says that a log is synced to its end, whatever of it is."""
    right = settle.Settlement.__init__

    def eager(self: Any, log: Any) -> None:
        right(self, log)
        self.point = log.log_end_offset

    patch.put(settle.Settlement, "__init__", eager)


@bug(
    seen_by="tables-differ marker-undecided torn torn-offset no-progress refused",
    campaign="transactions",
    faults="kill-coordinator stop",
    config=CLEANED,
)
def newest_of_a_key_is_cleaned_away(patch: Patch) -> None:
    """Compaction keeps the records of a key that were overtaken, and drops the one that overtook them."""

    def is_kept(self: Any, record: Any, _horizon: Any) -> bool:
        newest = -1 if record.key is None else self.keys.get(record.key)
        return bool(record.offset > self.keys.latest or record.offset < newest)

    patch.put(Cleaner, "_is_kept", is_kept)


@bug(seen_by="no-progress", campaign="cluster", faults="rotten-stopped")
def rot_not_looked_for(patch: Patch) -> None:
    """What a clean stop has left is trusted by the next start, and nobody reads it again."""

    async def nothing(_self: Any) -> None:
        return

    patch.put(Scrubber, "_pass", nothing)
    patch.put(FirstReads, "check", lambda *_args, **_named: None)


@bug(
    seen_by="damaged",
    campaign="cluster",
    faults="slow-reader",
    workloads="expiring",
    seeds=20,
)
def files_are_cut_inside_of_pages(patch: Patch) -> None:
    """A file that goes is cut anywhere, and what of that page is on its way to a reader becomes zeros. (A bug that was here once.)"""
    patch.put(SimDisk, "cut_bytes", 1)
    patch.put(shrinking, "PIECE_BYTES", 300)
