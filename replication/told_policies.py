"""Nothing counts unsynced by a flush.policy (`os`, `interval`) of which the disk does not know yet.

INVARIANT  a log that acknowledges what is not synced is known as such on the disk before it does: where that can't be
           written, it syncs first, like `ack`, until it could be.
PREVENTS   a node whose disk was full when a policy was changed losing with its power what it had acknowledged, and
           coming back as one that lacks nothing.
PROVED BY  tests/replication/test_told_policies.py::test_a_policy_that_cannot_be_written_down_counts_nothing_unsynced
"""

from collections.abc import Mapping

from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Env

from .log.doubts import Doubts
from .partition import Partition


class ToldPolicies:
    """Of one node's partitions."""

    def __init__(
        self, env: Env, doubts: Doubts, partitions: Mapping[TopicPartition, Partition]
    ) -> None:
        self._env = env
        self._doubts = doubts
        self._partitions = partitions
        self._held: dict[TopicPartition, None] = {}

    def write_down(self) -> None:
        """After policies came, and before anything is committed by them. Blocks for a sync, if there is something to tell."""
        cause = None
        try:
            self._doubts.write_down()
        except OSError as error:
            cause = error
        held, self._held = self._held, dict.fromkeys(self._doubts.unwritten)
        if self._held.keys() - held.keys():
            self._env.log.error("doubts_not_written", cause=str(cause))
        for name in held | self._held:
            partition = self._partitions.get(name)
            if partition is not None:
                partition.sync_first(name in self._held)

    def look_again(self) -> None:
        """The disk took something: perhaps it takes this, too."""
        held = list(self._held)
        if held:
            self.write_down()
        for name in held:
            if name not in self._held and name in self._partitions:
                self._partitions[name].look_again()
