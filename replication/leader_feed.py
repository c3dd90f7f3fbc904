"""One partition on its way to one follower, in one leader epoch."""

from typing import Protocol

from fencepost.cluster.base.ids import BrokerId

from .partition import Partition
from .stream_frames import UNLIMITED, Follow
from .throttle_machine import NO_LIMIT, is_throttled


class Sender(Protocol):
    """The stream (`streams_leader.LeaderStream`)."""

    follower_id: BrokerId

    def has_records(self, feed: "LeaderFeed") -> None: ...

    def has_news(self, feed: "LeaderFeed") -> None: ...


class LeaderFeed:
    """How far it was sent, and what the follower was told of it."""

    __slots__ = (
        "_granted", "is_cold", "is_dropped", "leader_epoch", "partition", "sent_bytes", "sent_to", "slot", "stream", "told",
    )  # fmt: skip

    def __init__(self, stream: Sender, partition: Partition, follow: Follow) -> None:
        self.stream = stream
        self.partition = partition
        self.slot = follow.slot
        self.leader_epoch = follow.leader_epoch
        self.sent_to = follow.log_end
        self.sent_bytes = 0
        self.told = (-1, -1)  # high watermark and log start, as the follower knows them
        self.is_cold = False  # what comes next is being read from the disk
        self.is_dropped = False  # nobody is sent anything by it, whoever still knows it
        self._granted = follow.granted

    @property
    def news(self) -> tuple[int, int]:
        return self.partition.machine.high_watermark, self.partition.log.log_start_offset

    def tell(self) -> tuple[int, int]:
        """The news; the follower knows them from here on."""
        self.told = self.news
        return self.told

    @property
    def is_valid(self) -> bool:
        """Do we lead it still, in this epoch, and is the follower still one of its replicas?"""
        partition = self.partition
        return (
            not self.is_dropped
            and partition.closed is None
            and partition.is_leader
            and partition.leader_epoch == self.leader_epoch
            and self.stream.follower_id in partition.machine.replicas
        )

    @property
    def is_throttled(self) -> bool:
        """By the leader's limit: Kafka's shouldLeaderThrottle, but for how much there is left."""
        machine = self.partition.machine
        return self.stream.follower_id not in machine.isr.state.isr and is_throttled(
            self.partition.config.leader_replication_throttled_replicas,
            self.partition.topic_partition.partition,
            machine.broker_id,
        )

    @property
    def room(self) -> int:
        """How many bytes the follower still takes; it limits those that it is throttled for."""
        return NO_LIMIT if self._granted == UNLIMITED else self._granted - self.sent_bytes

    def grant(self, granted: int) -> None:
        self._granted = granted
        self.stream.has_records(self)

    def on_append(self) -> None:
        self.stream.has_records(self)

    def on_moved(self) -> None:
        self.stream.has_news(self)
