"""The partitions of one broker: which there are, who of them leads, and the work that goes on beside requests.

INVARIANT  there is a `Partition` here for exactly the replicas that the image gives this broker, each with the log of
           its topic id, or a reason why it is offline.
PREVENTS   a request answered from the log of a topic that was deleted and made again under the same name; a damaged
           log taking the healthy ones down with it.
PROVED BY  tests/replication/test_manager.py::test_a_topic_made_again_under_its_name_is_another

Nothing here costs anything for a partition that nobody uses: no task, no timer, no open file. The rounds walk over
all partitions now and then, a hundred at a turn of the loop.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.broker_config import BrokerValues
from fencepost.cluster.metadata.image import (
    BROKER_DEFAULT,
    ClusterImage,
    ConfigType,
    ImageDelta,
    PartitionState,
    TopicState,
)
from fencepost.cluster.metadata.topic_config import TopicConfigs

from .disk_room import DiskRoom
from .flusher import Flushable, Flusher
from .found import name_strays, tell_unclean
from .log.checkpoint import Kind
from .log.log import Log
from .log.pool import OPEN_MAX
from .log.producer_budget import PRODUCERS_MAX
from .log.store import LogStore
from .metrics import Counters
from .out_and_in import OutAndIn
from .partition import NO_SPACE, Partition
from .partition_copies import CopiedPartition
from .partition_machine import REPLICA_LAG_MS_MAX
from .rounds import Rounds
from .survey import Known, Survey
from .throttle_machine import NO_LIMIT
from .told_policies import ToldPolicies

PARTITIONS_A_TURN: Final = 100


def _nobody_hears() -> None:
    return


class ReplicaManager:
    def __init__(
        self,
        env: Env,
        data_dir: str,
        node_id: BrokerId,
        image: ClusterImage,
        node_config: Mapping[str, str],
        *,
        open_files_max: int = OPEN_MAX,
        producers_max: int = PRODUCERS_MAX,
        is_registered: bool = True,
    ) -> None:
        self.env = env
        self.node_id = node_id
        self.node_config = node_config
        self.image = image
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: dict[TopicPartition, str] = {}  # and why
        self.on_failure: Callable[[], None] = _nobody_hears  # another one went offline
        # Of those that are offline: what they had acknowledged may be gone.
        self._doubtful: dict[TopicPartition, None] = {}
        self.counters = Counters()
        self.room = DiskRoom(env, data_dir)
        self.lag_ms_max = REPLICA_LAG_MS_MAX
        self.transaction_ms_max = 0
        self.leader_throttled_rate = self.follower_throttled_rate = NO_LIMIT
        self.store = LogStore(
            env, data_dir, open_files_max=open_files_max, producers_max=producers_max
        )
        self.policies = ToldPolicies(env, self.store.doubts, self.partitions)
        self.flusher = Flusher(env.clock, self._sync, self.counters)
        self.rounds = Rounds(env, self)
        self._configs = TopicConfigs(node_config, node_id)
        self._moves = OutAndIn(node_id, lambda topic: self._configs.of(self.image, topic).compact)
        self._topic_ids: dict[str, UUID] = {}  # of the topics that have a replica here
        self._is_running = False
        # False until this process is registered: what the image gives this broker to lead until then, it gives
        # to the process that was here before, in an epoch that may have more than this one found on the disk.
        self.is_registered = is_registered
        self._flushing: asyncio.Task[None] | None = None

    # -- start and stop --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open and recover every log that the image gives this broker; then follow the image."""
        started = self.env.clock.steady()
        self.store.start()
        self._read_settings()
        mine = list(self.image.partitions_of(self.node_id))
        for number, (topic, state) in enumerate(mine):
            self._open(topic, state)
            if number % PARTITIONS_A_TURN == PARTITIONS_A_TURN - 1:
                await self.env.clock.sleep(0)
        await self.rounds.opened(self._logs())
        self._flushing = self.env.tasks.spawn(self.flusher.run(), name="flusher")
        self._is_running = True
        # What came and went meanwhile, and who leads.
        self.on_image(ImageDelta.since(self.image, [topic for topic, _ in mine]))
        name_strays(self.env.log, self.store, self.partitions.keys() | self.offline.keys())
        self.rounds.start()
        self.counters.recovery_s = self.env.clock.steady() - started
        tell_unclean(self.env.log, self.store)
        self.env.log.info(
            "logs_open",
            partitions=len(self.partitions),
            offline=len(self.offline),
            was_clean=None if self.store.is_new else self.store.was_clean,
            seconds=round(self.counters.recovery_s, 3),
        )

    def lead(self) -> None:
        """The image has this process's registration: what it gives this broker to lead, it leads."""
        self.store.doubts.told()
        if not self.is_registered:
            self.is_registered = True
            self._begin_anew()
        self.on_image(ImageDelta.everything(self.image))

    def _begin_anew(self) -> None:
        """Of the logs that this process has found. What it is given is known by now; before, it may have been long ago."""
        mine = self.image.partitions_of(self.node_id)
        found = [(TopicPartition(topic.name, state.partition), state) for topic, state in mine]
        self._drop([name for name, state in found if self._moves.finds(name, state)])

    async def stop(self) -> None:
        """Take nothing more, sync what there is, and leave the marker of a clean stop."""
        self._is_running = False
        await self.rounds.stop()
        self.flusher.close()
        if self._flushing is not None:
            await self._flushing
        for partition in self.partitions.values():
            partition.close(ErrorCode.not_leader_or_follower)
        await self.store.stop(self._logs())

    def _logs(self) -> list[Log]:
        return [partition.log for partition in self.partitions.values()]

    # -- the image -------------------------------------------------------------------------------------

    def on_image(self, delta: ImageDelta) -> None:
        self.image = delta.image
        if not self._is_running:
            return  # `start` looks at the whole image when it is done
        gone = [
            TopicPartition(topic.name, index)
            for topic in delta.topics_deleted
            if self._topic_ids.get(topic.name) == topic.topic_id
            for index in range(len(topic.partitions))
        ]
        self._moves.forget(gone)
        # A snapshot brings many entries at once. A leader deposed in it must not commit by a minimum lowered in it.
        reconfigured = self._reconfigure(delta.configs_changed)
        self.policies.write_down()  # a policy that counts what is not synced may commit something below
        changed = delta.partitions_changed
        for topic, state in changed:
            name = TopicPartition(topic.name, state.partition)
            known = self.partitions.get(name)
            is_here = known is not None or name in self.offline
            is_old = known is not None and known.topic_id != topic.topic_id
            was_out = self._moves.hears(name, state) and self.is_registered
            if is_here and (is_old or was_out or self.node_id not in state.replicas):
                gone.append(name)
        self._drop(gone)
        for topic, state in changed:
            if self.node_id in state.replicas:
                self._follow(topic, state)
        for partition in reconfigured:
            partition.look_again()
        self.policies.write_down()

    def _follow(self, topic: TopicState, state: PartitionState) -> None:
        name = TopicPartition(topic.name, state.partition)
        partition = self.partitions.get(name)
        if partition is None and name not in self.offline:
            partition = self._open(topic, state)
        if partition is not None and (self.is_registered or state.leader != self.node_id):
            partition.on_image(state)

    def _open(self, topic: TopicState, state: PartitionState) -> Partition | None:
        name = TopicPartition(topic.name, state.partition)
        config = self._configs.of(self.image, topic.name)
        self._topic_ids[topic.name] = topic.topic_id
        try:
            if self._is_running and self.is_registered:
                self._moves.leave_no_old_log(self.store, name, topic.topic_id)
            log = self.store.open(name, topic.topic_id, config)
        except (LogDamaged, OSError) as why:
            unsettled = self.store.shared.unsettled
            for half_open in [each for each in unsettled if each.topic_partition == name]:
                del unsettled[half_open]  # a checkpoint would claim what its failed sync did not do
            self._set_offline(name, str(why), may_lack=True)
            return None
        partition = self.partitions[name] = Partition(
            self.env,
            self.node_id,
            topic.topic_id,
            log,
            config,
            high_watermark=self.store.offsets.get(Kind.HIGH_WATERMARK, name) or 0,
            flusher=self.flusher,
            counters=self.counters,
            owner=self,
        )
        partition.machine.lag_ms_max = self.lag_ms_max
        return partition

    def _drop(self, names: Iterable[TopicPartition]) -> None:
        """Deleted, or moved to other brokers: one pass for all that went at once."""
        logs, unopened = [], []
        for name in names:
            is_offline = self.offline.pop(name, None) is not None
            self._doubtful.pop(name, None)
            partition = self.partitions.pop(name, None)
            if partition is not None:
                moved = self.image.partition_by_id(partition.topic_id, name.partition) is not None
                gone = ErrorCode.unknown_topic_or_partition
                partition.close(ErrorCode.not_leader_or_follower if moved else gone)
                self.rounds.forget(partition)
                logs.append(partition.log)
            elif is_offline:
                unopened.append(name)
        try:
            if logs:
                self.store.delete(logs)
            if unopened:
                self.store.delete_unopened(unopened)
        except OSError as error:  # the folders stay; a topic of that name sets them aside
            count = len(logs) + len(unopened)
            self.env.log.error("partitions_not_deleted", count=count, cause=str(error))

    def _reconfigure(self, changed: Sequence[tuple[ConfigType, str]]) -> list[Partition]:
        """Those that have other settings now; what follows from them waits for the roles."""
        reconfigured: list[Partition] = []
        if not changed:
            return reconfigured
        topics = {name for kind, name in changed if kind is ConfigType.TOPIC}
        mine = (BROKER_DEFAULT, str(self.node_id))
        if any(kind is ConfigType.BROKER and name in mine for kind, name in changed):
            self._read_settings()
            topics = {name.topic for name in self.partitions}
        for topic in sorted(topics & self.image.topics.keys()):
            config = self._configs.of(self.image, topic)
            for index in range(len(self.image.topics[topic].partitions)):
                partition = self.partitions.get(TopicPartition(topic, index))
                if partition is not None:
                    self.store.doubts.configured(partition.topic_partition, config)
                    partition.set_config(config)
                    reconfigured.append(partition)
        self.rounds.look_again()
        return reconfigured

    def _read_settings(self) -> None:
        values = BrokerValues(self.image, self.node_config, self.node_id)
        self.rounds.read_settings(values)
        expiration_ms = values.integer("producer.id.expiration.ms")
        verify = bool(values.of("transaction.partition.verification.enable"))
        self.store.shared.producer_expiration_ms = expiration_ms
        self.store.shared.verify_transactions = verify
        self.lag_ms_max = values.integer("replica.lag.time.max.ms")
        self.transaction_ms_max = values.integer("transaction.max.timeout.ms")
        self.leader_throttled_rate = values.integer("leader.replication.throttled.rate")
        self.follower_throttled_rate = values.integer("follower.replication.throttled.rate")
        for partition in self.partitions.values():
            partition.machine.lag_ms_max = self.lag_ms_max
            if partition.log.producers_loaded:
                partition.log.producers.expiration_ms = expiration_ms
                partition.log.producers.verify_transactions = verify

    # -- who asks --------------------------------------------------------------------------------------

    def partition(self, name: TopicPartition) -> Partition | ErrorCode:
        """The partition, or what Kafka answers for want of it (ReplicaManager.getPartitionOrError)."""
        partition = self.partitions.get(name)
        if partition is not None:
            return partition if partition.closed is None else partition.closed
        if name in self.offline:
            return ErrorCode.kafka_storage_error
        if self.image.partition(*name) is not None:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.unknown_topic_or_partition

    def partition_by_id(self, topic_id: UUID, index: int) -> Partition | ErrorCode:
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            return ErrorCode.unknown_topic_id
        return self.partition(TopicPartition(topic.name, index))

    def sizes(self) -> Iterator[tuple[TopicPartition, int]]:
        """The bytes of each partition's log that can be used, for DescribeLogDirs."""
        for name, partition in self.partitions.items():
            if name not in self.offline:
                yield name, partition.log.size_bytes

    def folder_of(self, name: TopicPartition) -> str:
        return f"{self.store.data_dir}/{name}"

    def failures(self, *, untold: bool) -> Iterator[tuple[UUID, int, bool]]:
        """Topic id, partition and whether something may be lacking, of logs that failed; of those that the image takes for sound."""
        for name in self.offline:
            topic, state = self.image.topics.get(name.topic), self.image.partition(*name)
            if topic is None or state is None or self.node_id not in state.replicas:
                continue
            if not untold or self.node_id not in state.offline:
                yield topic.topic_id, name.partition, name in self._doubtful

    def lacking(self) -> list[tuple[UUID, int]] | None:
        """Topic id and partition of what may lack something that it had acknowledged; None: it may be any of them."""
        names = self.store.doubts.lacking
        if names is None:
            return None
        known = [each for each in names if each.topic in self.image.topics]
        return [(self.image.topics[each.topic].topic_id, each.partition) for each in known]

    @property
    def is_disk_full(self) -> bool:
        return self.room.is_full

    def disk_bytes(self) -> tuple[int, int]:
        """All and free bytes of the disk; -1 (Kafka's UNKNOWN_VOLUME_BYTES) where it can't be told."""
        try:
            disk, folder = self.env.disk, self.store.data_dir
            return disk.total_bytes(folder), disk.free_bytes(folder)
        except OSError:
            return -1, -1

    def survey(self, known: Known | None = None) -> Survey:
        """To be filled with `take` of each partition, a few at a turn."""
        clock = self.env.clock
        return Survey(
            self.node_id,
            self.image,
            now_ms=clock.now_ms(),
            steady_ms=int(clock.steady() * 1000),
            transaction_ms_max=self.transaction_ms_max,
            known=known,
        )

    # -- what partitions tell (Owner) ------------------------------------------------------------------

    def on_high_watermark(self, partition: CopiedPartition) -> None:
        self.rounds.moved(partition)

    def on_log_start(self, partition: CopiedPartition) -> None:
        self.rounds.start_moved(partition)

    def on_write(self, partition: CopiedPartition, error: OSError | None) -> None:
        if error is None:
            self.room.written()
        elif error.errno in NO_SPACE:
            self.room.refused(error)
        elif partition.log.failed is not None and partition.topic_partition not in self.offline:
            may_lack = self.store.doubts.of(partition.topic_partition)
            reason = f"a write failed: {error}"
            self._set_offline(partition.topic_partition, reason, may_lack=may_lack)

    def on_offline(self, partition: CopiedPartition, reason: str) -> None:
        # Where a sync failed, all that was acknowledged under flush.policy=ack was synced before: if it always was that.
        name = partition.topic_partition
        may_lack = partition.log.failed is None or self.store.doubts.of(name)
        self._set_offline(name, reason, may_lack=may_lack)

    def _set_offline(self, name: TopicPartition, reason: str, *, may_lack: bool) -> None:
        self.offline[name] = reason
        if may_lack:
            self._doubtful[name] = None
        self.on_failure()
        self.env.log.error("partition_offline", partition=str(name), cause=reason)

    async def _sync(self, partitions: Sequence[Flushable]) -> None:
        await self.store.sync([each.log for each in partitions if isinstance(each, Partition)])
        self.rounds.moved_some()
