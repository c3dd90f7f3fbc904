"""One partition on its way to one follower, in one leader epoch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import FileSlice

from .divergence_machine import GoOn, OutOfRange, Parted, answer
from .log.epochs_machine import NO_EPOCH
from .log.finding import ReadResult
from .partition import Partition
from .stream_frames import UNLIMITED, Follow
from .throttle_machine import NO_LIMIT, is_throttled

if TYPE_CHECKING:
    from .manager import ReplicaManager

NOT_YET: Final = 1 << 62


class Sender(Protocol):
    """The stream (`streams_leader.LeaderStream`)."""

    follower_id: BrokerId
    takes_producers: bool

    def has_records(self, feed: "LeaderFeed") -> None: ...

    def has_news(self, feed: "LeaderFeed") -> None: ...


class LeaderFeed:
    """How far it was sent, and what the follower was told of it."""

    __slots__ = (
        "_granted", "handed_at", "is_cold", "is_dropped", "leader_epoch", "partition", "sent_bytes", "sent_to", "slot", "stream", "told",
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
        # It begins with nothing behind what was deleted, and may not know who wrote that; also a member of the ISR, whose disk was
        # replaced just now.
        begins_empty = follow.last_epoch == NO_EPOCH and follow.log_end > 0
        is_told = stream.takes_producers and begins_empty
        # It joins nothing before it has taken so many bytes of its stream: a partition may have no records left.
        self.handed_at = NOT_YET if is_told else 0
        self._granted = follow.granted

    @property
    def news(self) -> tuple[int, int]:
        return self.partition.machine.high_watermark, self.partition.log.log_start_offset

    def tell(self) -> tuple[int, int]:
        """The news; the follower knows them from here on."""
        self.told = self.news
        return self.told

    @property
    def owes_producers(self) -> bool:
        """It is to be told who wrote what was deleted before anything else."""
        return self.handed_at == NOT_YET

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


def where_parted(
    partition: Partition, follow: Follow, follower_id: BrokerId
) -> GoOn | Parted | OutOfRange:
    log, machine = partition.log, partition.machine
    return answer(
        log.epochs,
        (partition.leader_epoch, machine.epoch_start_offset),
        log.log_start_offset,
        log.log_end_offset,
        last_epoch=follow.last_epoch,
        end_offset=follow.log_end,
        # Either may be elected any time: neither is emptied, nor made to forget who wrote what was deleted.
        has_all=follower_id in machine.isr.isr or follower_id in machine.elr,
    )


def partition_for(
    manager: "ReplicaManager", follow: Follow, follower_id: BrokerId
) -> Partition | ErrorCode | None:
    """None: our metadata are behind the follower's; the answer comes with them."""
    found = manager.partition_by_id(follow.topic_id, follow.partition)
    if isinstance(found, ErrorCode):
        return found if found is ErrorCode.kafka_storage_error else None
    if follow.leader_epoch > found.leader_epoch:
        return None
    if follow.leader_epoch < found.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if not found.is_leader:
        return ErrorCode.not_leader_or_follower
    return found if follower_id in found.machine.replicas else None


def in_parts(found: ReadResult, size_max: int) -> Iterator[FileSlice]:
    for whole in found.slices:
        assert isinstance(whole, FileSlice)
        for at in range(0, len(whole), size_max):
            yield FileSlice(whole.file, whole.position + at, min(size_max, len(whole) - at))
