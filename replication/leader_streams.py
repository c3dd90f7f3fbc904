"""The streams of all followers of this node, and what they must know of the metadata."""

from typing import Any, Final

from fencepost.cluster.base.errors import FrameRefused, LogDamaged
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.image import ImageDelta

from . import stream_frames as frames
from .isr_shell import IsrShell, ProposeIsr
from .leader_feed import LeaderFeed
from .log.damage import KnownDamage
from .manager import ReplicaManager
from .peers import Stream
from .streams_leader import LeaderStream
from .throttle_machine import NO_LIMIT, ByteBucket

# How often partitions are looked at that had to wait for leader.replication.throttled.rate.
THROTTLE_S: Final = 0.05


class LeaderThrottle:
    """What all streams together may send of throttled partitions, to followers that are not in sync."""

    def __init__(self, env: Env, manager: ReplicaManager) -> None:
        self._env = env
        self._manager = manager
        self._bucket = ByteBucket()
        self._waiting: dict[LeaderFeed, None] = {}

    def room(self, feed: LeaderFeed) -> int:
        """How many bytes may go now; when none may, it is looked at again later."""
        bucket = self._bucket
        bucket.set_rate(self._manager.leader_throttled_rate)
        if not bucket.is_limited or not feed.is_throttled:
            return NO_LIMIT
        room = bucket.available(self._env.clock.steady())
        if room <= 0:
            self._manager.counters.throttled += 1
            if not self._waiting:
                self._env.clock.call_later(THROTTLE_S, self._again)
            self._waiting[feed] = None
        return room

    def sent(self, feed: LeaderFeed, size: int) -> None:
        if self._bucket.is_limited and feed.is_throttled:
            self._bucket.take(size)

    def _again(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for feed in waiting:
            if feed.is_valid:
                feed.on_append()


class LeaderStreams:
    """One `LeaderStream` a follower."""

    def __init__(self, env: Env, manager: ReplicaManager, propose_isr: ProposeIsr) -> None:
        self.manager = manager
        self.isr = IsrShell(env, manager, propose_isr, self.broker_epoch_of)
        self.throttle = LeaderThrottle(env, manager)
        self._env = env
        self._streams: dict[BrokerId, LeaderStream] = {}
        self._is_open = True

    def start(self) -> None:
        self.isr.start()

    async def serve(self, follower_id: BrokerId, hello: dict[str, Any], stream: Stream) -> None:
        """One stream, until it ends. A second one of the same follower ends the first."""
        broker_epoch = hello.get(frames.EPOCH)
        if type(broker_epoch) is not int:
            raise FrameRefused(f"node {follower_id} opened a stream without its broker epoch")
        if not self._is_open:
            return
        before = self._streams.get(follower_id)
        if before is not None:
            before.end()
        takes_producers = hello.get(frames.TAKES_PRODUCERS) is True
        mine = LeaderStream(
            self._env, self, follower_id, broker_epoch, stream, takes_producers=takes_producers
        )
        self._streams[follower_id] = mine
        self._env.log.info("follower_came", node=follower_id, broker_epoch=broker_epoch)
        try:
            await mine.run()
        finally:
            if self._streams.get(follower_id) is mine:
                del self._streams[follower_id]
                self._env.log.info("follower_left", node=follower_id)

    async def stop(self) -> None:
        self._is_open = False
        for stream in list(self._streams.values()):
            stream.end()
        await self.isr.stop()

    def may_join(self, follower_id: BrokerId, broker_epoch: int) -> bool:
        """Kafka's isReplicaIsrEligible: alive, not on its way out, and the process that we hear."""
        broker = self.manager.image.brokers.get(follower_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and broker.broker_epoch == broker_epoch
        )

    def left(self, feed: LeaderFeed) -> None:
        """A follower wants no more of it. If that is because of what it was sent last, it may be our copy that is damaged."""
        replica = feed.partition.machine.replicas.get(feed.stream.follower_id)
        if feed.is_valid and replica is not None and replica.log_end < feed.sent_to:
            self.manager.rounds.scrubber.suspect(feed.partition, replica.log_end, feed.sent_to)

    def unreadable(self, feed: LeaderFeed, failed: OSError | LogDamaged) -> None:
        # What is known was said when it was found; a follower asks again every two seconds.
        say = self._env.log.debug if isinstance(failed, KnownDamage) else self._env.log.error
        say(
            "read_for_follower_failed",
            partition=str(feed.partition.topic_partition),
            follower=feed.stream.follower_id,
            offset=feed.sent_to,
            cause=str(failed),
        )

    def broker_epoch_of(self, broker_id: BrokerId) -> int:
        """Of the process whose acknowledgements we count; -1 when we hear none."""
        stream = self._streams.get(broker_id)
        return -1 if stream is None else stream.broker_epoch

    def on_image(self, delta: ImageDelta) -> None:
        streams = self._streams
        for broker_id in delta.brokers_changed:
            if broker_id in streams:
                streams[broker_id].look_again()
        for stream in list(streams.values()):
            for topic in delta.topics_deleted:
                for index in range(len(topic.partitions)):
                    stream.partition_changed((topic.topic_id, index))
            for topic, state in delta.partitions_changed:
                stream.partition_changed((topic.topic_id, state.partition))
