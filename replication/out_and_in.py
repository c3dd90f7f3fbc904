"""Replicas that were taken out of their partition and put in again: of a compacted topic they begin anew.

INVARIANT  a compacted log is gone on with only by who has been its replica all the time since: what others have forgotten they
           had told it.
PREVENTS   1. A key is written, and everybody has it; a node dies.   2. The key is deleted, the dead replica taken out, and as all that
           are left have heard of it the tombstone is compacted away.   3. The node is put in again, with the log that it had: the key
           is back. So is a transaction whose abort was compacted away, as a committed one.
PROVED BY  tests/replication/test_out_and_in.py::test_a_replica_that_was_taken_out_while_it_was_down_begins_anew

A node that runs removes the log when it is taken out (`manager.py`). One that is down, or whose metadata leap over both changes, sees
it by `adding`: of a move those are there that were no replicas, until all are in sync. Who has been in sync since may be needed, and
while nobody leads everybody may be.
Looked at only when the metadata are of now, as they are once this process is registered: by old ones a log that others count on might
go. A move of a compacted log is copied from its beginning again if its node restarts meanwhile.
"""

from collections.abc import Callable, Iterable
from uuid import UUID

from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.metadata.image import PartitionState

from .log.metadata_file import read_topic_id
from .log.names import METADATA
from .log.store import LogStore


class OutAndIn:
    """What this node knows of moves that add it."""

    def __init__(self, me: BrokerId, is_compacted: Callable[[str], bool]) -> None:
        self._me = me
        self._is_compacted = is_compacted
        self._adding: set[TopicPartition] = set()
        self._undecided: set[TopicPartition] = set()  # of them, whose log may be an old one

    def hears(self, name: TopicPartition, state: PartitionState) -> bool:
        """Whether the log that is here has to go: this node was taken out since it last heard of the partition."""
        if self._me not in state.adding:
            self._adding.discard(name)
            self._undecided.discard(name)
        elif name not in self._adding:
            return self.finds(name, state)
        return name in self._undecided and self._decide(name, state)

    def finds(self, name: TopicPartition, state: PartitionState) -> bool:
        """The same of a log that was here when this process began."""
        if self._me not in state.adding:
            return False
        self._adding.add(name)
        self._undecided.add(name)
        return self._decide(name, state)

    def forget(self, deleted: Iterable[TopicPartition]) -> None:
        self._adding.difference_update(deleted)
        self._undecided.difference_update(deleted)

    def _decide(self, name: TopicPartition, state: PartitionState) -> bool:
        if state.leader < 0:
            return False  # there is nobody to copy it from: what is here may be all that is left
        self._undecided.discard(name)
        counts = self._me in (state.leader, *state.isr, *state.elr)
        return not counts and self._is_compacted(name.topic)

    def leave_no_old_log(self, store: LogStore, name: TopicPartition, topic_id: UUID) -> None:
        """Of a partition that this node is given while it runs: a log that is there is of before it was taken out. OSError."""
        folder = f"{store.data_dir}/{name}"
        if not self._is_compacted(name.topic) or not store.env.disk.exists(folder):
            return
        if read_topic_id(store.env.disk, f"{folder}/{METADATA}") == topic_id:
            store.delete_unopened([name])
