"""The streams of all followers of this node, and what they must know of the metadata."""

from typing import Any

from fencepost.cluster.base.errors import FrameRefused
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.image import ImageDelta

from . import stream_frames as frames
from .isr_shell import IsrShell, ProposeIsr
from .manager import ReplicaManager
from .peers import Stream
from .streams_leader import LeaderStream


class LeaderStreams:
    """One `LeaderStream` a follower."""

    def __init__(self, env: Env, manager: ReplicaManager, propose_isr: ProposeIsr) -> None:
        self.manager = manager
        self.isr = IsrShell(env, manager, propose_isr, self.broker_epoch_of)
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
        mine = LeaderStream(self._env, self, follower_id, broker_epoch, stream)
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
