"""Sees what the Raft of each node does, and tells the checker of Raft's properties at once.

What it wraps is SyncObj's: where a node becomes leader, adds to its log, applies. A property that is broken
ends the node, and with it the run, at the event that broke it.
"""

import hashlib
from typing import Any

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.quorum.raft import Raft
from fencepost.cluster.quorum.raft_shell import Quorum
from fencepost.cluster.quorum.segment_format import Entry

from ..checkers.raft_properties import RaftProperties
from .trace import Trace


def digest_of(command: bytes) -> str:
    return hashlib.blake2b(command, digest_size=8).hexdigest()


class Witness:
    """One for a run; `watch` each quorum right after its start."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.properties = RaftProperties()

    def watch(self, quorum: Quorum) -> None:
        raft = quorum._raft
        assert raft is not None
        node_id = quorum.node_id
        self._tell("restore", node_id, index=raft.applied_index)
        journal = raft.journal
        for place in range(1, len(journal)):
            self._added(node_id, journal[place], journal[place - 1].term)
        self._tell("durable", node_id, index=journal.durable_last)
        self._watch_commit(raft, node_id)
        self._watch_log(raft, node_id)
        self._watch_lead(raft, node_id)
        self._watch_apply(raft, node_id)

    def _watch_log(self, raft: Raft, node_id: BrokerId) -> None:
        journal: Any = raft.journal
        add = journal.add

        def watched(command: bytes, idx: int, term: int) -> None:
            before = journal[-1].term if len(journal) else None
            add(command, idx, term)
            if before is not None:
                self._added(node_id, Entry(command, idx, term), before)

        journal.add = watched

    def _watch_commit(self, raft: Raft, node_id: BrokerId) -> None:
        journal: Any = raft.journal
        sync, commit = journal._sync, journal.setRaftCommitIndex

        async def watched_sync() -> None:
            await sync()
            self._tell("durable", node_id, index=journal.durable_last)

        def watched_commit(index: int) -> None:
            before = journal.getRaftCommitIndex()
            commit(index)
            if not raft.leads:
                return
            sets, term = raft.sets, raft.term
            self._tell("commit", node_id, index=index, term=term, voters=sorted(sets.current))
            # Whoever is the only voter left need not wait for those before. What is in front of the set is theirs, too.
            if before < sets.index and len(sets.current) > 1:
                of_both = min(index, sets.index)
                place = {"index": of_both, "term": raft._term_at(of_both)}
                self._tell("commit", node_id, **place, voters=sorted(sets.before))

        journal._sync, journal.setRaftCommitIndex = watched_sync, watched_commit

    def _watch_lead(self, raft: Any, node_id: BrokerId) -> None:
        become = raft._SyncObj__onBecomeLeader

        def watched() -> None:
            journal = raft.journal
            log = [
                [each.term, digest_of(each.command)] for each in journal.between(0, len(journal))
            ]
            term, first = raft.term, journal[0].idx
            become()
            self._tell("lead", node_id, term=term, first=first, log=log)

        raft._SyncObj__onBecomeLeader = watched

    def _watch_apply(self, raft: Any, node_id: BrokerId) -> None:
        apply, install = raft._SyncObj__doApplyCommand, raft.install

        def watched(command: bytes) -> object:
            index = raft.applied_index + 1
            entry = raft.journal[index - raft.journal[0].idx]
            assert entry.command == command, "it applies another entry than the next"
            what = {"index": index, "term": entry.term, "digest": digest_of(command)}
            self._tell("apply", node_id, **what, during=raft.term)
            return apply(command)

        def watched_install(snapshot: Any) -> None:
            install(snapshot)
            self._tell("restore", node_id, index=raft.applied_index)

        raft._SyncObj__doApplyCommand = watched
        raft.install = watched_install

    def _added(self, node_id: BrokerId, entry: Entry, before: int) -> None:
        what = {"index": entry.idx, "term": entry.term, "digest": digest_of(entry.command)}
        self._tell("add", node_id, **what, before=before)

    def _tell(self, f: str, node_id: BrokerId, **fields: Any) -> None:
        shown = {name: value for name, value in fields.items() if name != "log"}
        self._trace.event(f"node-{node_id}", f"raft.{f}", **shown)
        self.properties.see({"f": f, "node": node_id, **fields})
        assert not self.properties.anomalies, str(self.properties.anomalies[0])
