"""One partition on its way here from its leader, in one leader epoch."""

from typing import Final, Protocol
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode

from .follower_machine import FollowerMachine
from .partition import Partition
from .stream_frames import UNLIMITED
from .throttle_machine import is_throttled

# Refusals that go with every change of leader.
PASSING: Final = frozenset(
    {ErrorCode.fenced_leader_epoch.value, ErrorCode.not_leader_or_follower.value}
)


class Taker(Protocol):
    """The stream (`streams_follower.FollowerStream`)."""

    def acknowledge(self, copy: "Copy") -> None: ...

    def forget(self, copy: "Copy") -> None: ...


class Copy:
    """One partition that is copied from its leader, in one leader epoch."""

    __slots__ = ("granted", "machine", "partition", "piecemeal", "stream", "taken")

    def __init__(self, stream: Taker, partition: Partition) -> None:
        self.stream = stream
        self.partition = partition
        self.granted = UNLIMITED  # bytes that the leader may send since it was asked
        self.taken = 0  # and how many it did
        self.piecemeal = bytearray()  # what has come of a batch that is larger than a frame
        self.machine = FollowerMachine(
            partition.topic_id, partition.topic_partition.partition, partition.leader_epoch
        )

    @property
    def name(self) -> tuple[UUID, int]:
        return self.machine.topic_id, self.machine.partition

    @property
    def is_throttled(self) -> bool:
        """Kafka's shouldFollowerThrottle, but for how much there is left."""
        machine = self.partition.machine
        return machine.broker_id not in machine.isr.state.isr and is_throttled(
            self.partition.config.follower_replication_throttled_replicas,
            self.machine.partition,
            machine.broker_id,
        )

    def on_durable(self) -> None:
        self.stream.acknowledge(self)

    def on_closed(self) -> None:
        self.stream.forget(self)


def refusal_name(code: int) -> str:
    """A later version may have words that this one has not."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
