"""Replicas that were taken out of their partition and put in again: of a compacted topic they begin anew.

INVARIANT  a compacted log is gone on with only by who has been its replica all the time since: what others have forgotten they
           had told it.
PREVENTS   1. A key is written, and everybody has it; a node dies.   2. The key is deleted, the dead replica taken out, and as all that
           are left have heard of it the tombstone is compacted away.   3. The node is put in again, with the log that it had: the key
           is back. So is a transaction whose abort was compacted away, as a committed one.
PROVED BY  tests/replication/test_out_and_in.py::test_a_replica_that_was_taken_out_while_it_was_down_begins_anew

A node that runs removes the log when it is taken out (`manager.py`). One that is down, or whose metadata leap over both changes, sees
it by `adding`: of a move those are there that were no replicas, until all are in sync. Who has been in sync since may be needed.
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

    def hears(self, name: TopicPartition, state: PartitionState) -> bool:
        """Whether this node was taken out since it last heard of the partition, which it has."""
        is_new = self._me in state.adding and name not in self._adding
        if self._me in state.adding:
            self._adding.add(name)
        else:
            self._adding.discard(name)
        return is_new and self.begins_anew(name.topic, state)

    def forget(self, deleted: Iterable[TopicPartition]) -> None:
        self._adding.difference_update(deleted)

    def begins_anew(self, topic: str, state: PartitionState) -> bool:
        """It is being added, and nothing that it has counts yet."""
        is_added = self._me in state.adding and self._me not in (*state.isr, *state.elr)
        return is_added and self._is_compacted(topic)

    def leave_no_old_log(self, store: LogStore, name: TopicPartition, topic_id: UUID) -> None:
        """Of a partition that this node is given while it runs: a log that is there is of before it was taken out. OSError."""
        folder = f"{store.data_dir}/{name}"
        if not self._is_compacted(name.topic) or not store.env.disk.exists(folder):
            return
        if read_topic_id(store.env.disk, f"{folder}/{METADATA}") == topic_id:
            store.delete_unopened([name])
