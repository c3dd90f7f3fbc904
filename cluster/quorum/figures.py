"""How the quorum stands on this node, in numbers."""

from collections.abc import Mapping
from typing import NamedTuple

from ..base.ids import BrokerId
from ..base.metrics import Histogram
from .raft_shell import Quorum

_SUFFIXES = ".journal", "snapshot"
_NO_SYNCS = Histogram()


class Figures(NamedTuple):
    """All are 0 on a node that has not read its journal yet."""

    term: int = 0
    log_end: int = 0
    commit_index: int = 0
    lag: int = 0  # known to be committed, and not applied here
    waiting: int = 0  # proposals
    stalled_s: float = 0.0
    snapshot_failures: int = 0
    sync_s: Histogram = _NO_SYNCS
    follower_lag: Mapping[BrokerId, int] = {}


def figures_of(quorum: Quorum) -> Figures:
    raft = quorum._raft
    if raft is None:
        return Figures()
    last = raft.last.idx
    followers = sorted(raft.progress.items()) if raft.leads else ()
    return Figures(
        term=raft.term,
        log_end=last,
        commit_index=raft.commit_index,
        lag=max(0, raft.known_commit - raft.applied_index),
        waiting=len(quorum._waiting),
        stalled_s=quorum._store.stalled_s(),
        snapshot_failures=quorum._store.snapshot_failures,
        sync_s=quorum._journal.sync_s,
        follower_lag={node_id: max(0, last - each.match_index) for node_id, each in followers},
    )


def bytes_on_disk(quorum: Quorum) -> tuple[int, int]:
    """Of the journal, and of the newest snapshot. Asks the disk; a file that goes meanwhile counts as none."""
    disk, folder = quorum._env.disk, quorum._folder
    sizes = [0, 0]
    for name in disk.list(folder):
        for place, suffix in enumerate(_SUFFIXES):
            if name.endswith(suffix):
                try:
                    sizes[place] += disk.size(f"{folder}/{name}")
                except OSError:
                    continue
    return sizes[0], sizes[1]


def disk_full_of(quorum: Quorum) -> str | None:
    """Why the metadata can't be written, where the disk has no room for it."""
    store = getattr(quorum, "_store", None)  # none before the quorum has started
    return None if store is None else store.disk_full
