"""Looks into the nodes of a simulated cluster all the time, and ends the run where a promise is broken.

It listens to image changes, appends and high watermarks as they happen, and compares whole logs at every `sweep`. What
it sees becomes observations for the pure checkers. `on_moment` tells the faults of rare moments: they strike there.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.metadata.image import ImageDelta, PartitionState
from fencepost.cluster.quorum.election_machine import ELECTION_S
from fencepost.node.broker import Broker
from fencepost.replication.log.log import Log
from fencepost.replication.partition import Partition

from ..checkers import producer_state
from ..checkers.committed import Commits
from ..checkers.epochs import Epochs
from ..checkers.group_offsets import GroupOffsets
from ..checkers.history import Anomaly
from ..checkers.observations import (
    Committed,
    Described,
    Held,
    Leads,
    Position,
    Told,
)
from ..checkers.prefixes import Prefixes
from .bytes_agree import compare_bytes
from .cluster_nodes import ClusterNodes, node_name
from .image_watch import compare_images
from .needed_in_sync import needed_in_sync
from .node import SimEnv
from .parsed_log import ParsedLog
from .producers_agree import compare_producers, know_their_logs, known_of
from .quorum_witness import Witness
from .synced_watch import SyncedWatch
from .table_watch import compare_tables
from .world import World

# What may be done to a node just when it happens there.
MOMENTS: Final = ("append", "commit", "leads", "leader changed", "isr shrunk", "isr grew")
CLEANED: Final = ".cleaned"  # of a file that compaction writes
# Of so many sweeps one compares the producers' state with a replay, too: that takes the longest.
PRODUCERS_EVERY: Final = 8
KEYS_KEPT: Final = 1024  # of partitions: a UUID takes longer to write than all else of a look


class ClusterBroken(AssertionError):
    """A promise was broken; the message names the anomalies."""


class ClusterWatch:
    """`hook` is `ClusterNodes.on_start`; `nodes` is set once there are any."""

    def __init__(self, world: World, *, inside: bool = True) -> None:
        self.world = world
        self.inside = inside  # else only what clients saw counts
        self.nodes: ClusterNodes | None = None
        self.epochs = Epochs()
        self.commits = Commits()
        self.prefixes = Prefixes()
        self.group_offsets = GroupOffsets()
        self.witness = Witness(world.trace)
        self.synced = SyncedWatch(world)
        self.sweeps = 0
        self.shortened: set[str] = set()  # topics whose beginnings may go
        self.seen: dict[str, int] = dict.fromkeys(MOMENTS, 0)
        self.on_moment: Callable[[str, int], None] | None = None
        self._lives: dict[int, int] = {}
        self._led: dict[tuple[int, int, str], int] = {}
        self._isrs: dict[tuple[int, int, str], int] = {}
        self._logs: dict[tuple[int, TopicPartition], ParsedLog] = {}
        self._cleaned: set[str] = set()  # partitions of which a replica began to be compacted

    # Hooks.

    def hook(self, node_id: int, env: SimEnv, broker: Broker) -> None:
        life = env.incarnation.number
        self._lives[node_id] = life
        broker.machine.listeners.append(_Listener(self, node_id, life))
        self.world.disk(env.name).on_create = self._created
        self._witness(broker)
        self.synced.hook(node_id, env.name, broker)
        manager: Any = broker.replicas
        told_written, told_committed = manager.on_write, manager.on_high_watermark

        def on_write(partition: Partition, error: OSError | None) -> None:
            told_written(partition, error)
            if error is None and partition.is_leader:
                self._look(broker, life, partition)
                self._moment("append", node_id)

        def on_high_watermark(partition: Partition) -> None:
            told_committed(partition)
            if partition.is_leader:
                self._look(broker, life, partition)
                self._moment("commit", node_id)

        manager.on_write, manager.on_high_watermark = on_write, on_high_watermark
        open_log = manager.store.open

        def opened(name: TopicPartition, *others: Any) -> Log:
            try:
                log: Log = open_log(name, *others)
            except LogDamaged as why:
                self._see_damage(node_id, name, why)
                self.synced.forget(node_id, name)
                raise
            if self.nodes is not None and self.nodes.rotten == node_id:
                self.synced.forget(node_id, name)
            self.report(self.synced.opened(node_id, name, others[0], log))
            return log

        manager.store.open = opened

    def _created(self, path: str) -> None:
        """From the first file of a round on its replicas differ by what each has cleaned: their tables are the same."""
        if path.endswith(CLEANED):
            self._cleaned.add(path.split("/")[-2])

    def _see_damage(self, node_id: int, name: TopicPartition, why: LogDamaged) -> None:
        """Whatever was killed and lost its power: only bits that flip may make a log that is no log."""
        if self.nodes is not None and self.nodes.rotten != node_id:
            self.report([Anomaly("damaged", str(name), f"says node {node_id}: {why}")])

    def _witness(self, broker: Broker) -> None:
        """Raft's properties, from the start of the quorum on. One that is broken ends the node with an assertion."""
        quorum: Any = broker.quorum
        start = quorum.start

        async def started() -> None:
            await start()
            self.witness.watch(quorum)

        quorum.start = started
        quorum.on_leader_change.append(self._look_who_controls)

    def _look_who_controls(self) -> None:
        """A controller that may decide by itself, on its lease, is the only one: however fast its clock goes, if it goes."""
        if self.nodes is None:
            return
        awake = [id_ for id_ in self.nodes.up() if not self.nodes.has_slept(id_, ELECTION_S)]
        running = [(id_, self.nodes.brokers[id_].quorum) for id_ in awake]
        leading = [f"{id_} in term {quorum.term}" for id_, quorum in running if quorum.is_leader]
        if len(leading) > 1:
            self.report([Anomaly("two-controllers", "metadata", f"at once: nodes {leading}")])

    def _look_at_features(self) -> None:
        """Whoever is registered can work at the level of every feature (KIP-584)."""
        image = None if self.nodes is None else self.nodes.image
        if image is None:
            return
        for broker in image.brokers.values():
            for name, level in image.features.items():
                low, high = broker.features.get(name, (0, 0))
                if not low <= level <= high:
                    what = f"node {broker.broker_id} knows {low} to {high}, it is at {level}"
                    self.report([Anomaly("feature-unknown", name, what)])

    def on_image(self, node_id: int, life: int, delta: ImageDelta) -> None:
        for topic, state in delta.partitions_changed:
            key = key_of(topic.topic_id, state.partition)
            self.report(self.epochs.see(_described(node_id, life, key, state)))
            self._note_moments(node_id, life, key, state)

    def _note_moments(self, node_id: int, life: int, key: str, state: PartitionState) -> None:
        place = (node_id, life, key)
        led, isr = self._led.get(place), self._isrs.get(place)
        self._led[place], self._isrs[place] = state.leader_epoch, len(state.isr)
        if led is not None and led != state.leader_epoch:
            self._moment("leader changed", node_id)
            if state.leader == node_id:
                self._moment("leads", node_id)
        if isr is not None and isr != len(state.isr):
            self._moment("isr shrunk" if len(state.isr) < isr else "isr grew", node_id)

    def given_up(self, topic_id: UUID, partition: int) -> None:
        """A person asks for whoever is alive to lead it."""
        self.epochs.given_up.add(key_of(topic_id, partition))

    def told(self, seen: Told) -> None:
        """A client's answer."""
        self.report(self.commits.see(seen))

    def positioned(self, seen: Position) -> None:
        """A group's committed offset, as its client knows it."""
        self.report_heard(self.group_offsets.see(seen))

    def _moment(self, what: str, node_id: int) -> None:
        self.seen[what] += 1
        if self.on_moment is not None:
            self.on_moment(what, node_id)

    # Looking.

    def _look(self, broker: Broker, life: int, partition: Partition) -> None:
        """At one partition that this node leads, or thinks that it does."""
        node_id, machine = broker.config.node_id, partition.machine
        key = key_of(partition.topic_id, partition.topic_partition.partition)
        leads = Leads(node_id, life, key, machine.leader_epoch, machine.epoch_start_offset)
        self.report(self.epochs.see(leads) + self.commits.see(leads))
        committed = Committed(
            node_id,
            life,
            key,
            machine.leader_epoch,
            machine.high_watermark,
            partition.last_stable_offset,
            tuple(sorted(machine.isr.isr)),
            needed_in_sync(
                broker.image, broker.config, partition.topic_id, partition.topic_partition.partition
            ),
        )
        self.report(self.commits.see(committed))
        self.report(self._missing(key, partition))

    def _missing(self, key: str, partition: Partition) -> list[Anomaly]:
        """Whoever is in the ISR or ELR has what is committed, at the moment in which it is."""
        machine, newest = partition.machine, self.epochs.newest.get(key)
        if self.nodes is None or newest is None or newest.leader_epoch != machine.leader_epoch:
            return []
        found = []
        for node_id in (*newest.isr, *newest.elr):
            broker = self.nodes.brokers[BrokerId(node_id)]
            if not self.nodes.is_up(node_id) or not broker.is_ready:
                continue
            copy = broker.replicas.partitions.get(partition.topic_partition)
            if copy is None:
                if machine.high_watermark and self._should_hold(broker, partition, newest):
                    what = f"node {node_id}, in the ISR or ELR, has no log of it"
                    found.append(Anomaly("commit-missing", key, what))
                continue
            if copy.topic_id != partition.topic_id or copy.closed is not None:
                continue
            start, end = copy.log.log_start_offset, copy.log.log_end_offset
            who = f"node {node_id}, in the ISR or ELR"
            if copy.log.failed is None and end < machine.high_watermark:
                what = f"{who}, ends at {end}; {machine.high_watermark} is committed"
                found.append(Anomaly("commit-missing", key, what))
            if start and partition.topic_partition.topic not in self.shortened:
                what = f"{who}, begins at {start}, and nobody deletes anything there"
                found.append(Anomaly("commit-missing", key, what))
        return found

    def _should_hold(self, broker: Broker, partition: Partition, newest: Described) -> bool:
        """By what it knows itself, unless its log can't be used: that is another's to say."""
        name, node_id = partition.topic_partition, broker.config.node_id
        state = broker.image.partition_by_id(partition.topic_id, name.partition)
        if state is None or node_id not in state.replicas:
            return False
        return node_id not in newest.offline and name not in broker.replicas.offline

    def sweep(self, *, producers: bool = False) -> None:
        """Compare all logs of all running nodes, and with `producers` their producer state with a replay."""
        assert self.nodes is not None
        self.sweeps += 1
        self._look_who_controls()
        self._look_at_features()
        producers = producers or self.sweeps % PRODUCERS_EVERY == 0
        if producers:
            running = [(id_, self.nodes.brokers[id_].image) for id_ in self.nodes.up()]
            self.report(compare_images(running))
        for node_id in self.nodes.up():
            broker = self.nodes.brokers[node_id]
            for name, partition in broker.replicas.partitions.items():
                self._look_for_damage(node_id, name, partition.log)
                if partition.closed is None:
                    self._sweep(node_id, broker, name, partition, producers=producers)

    def _look_for_damage(self, node_id: BrokerId, name: TopicPartition, log: Log) -> None:
        """What a scrub calls damaged; where a disk does not read it names no offsets."""
        for each in log.damage:
            if each.next_offset > each.first_offset:
                self._see_damage(node_id, name, each.told())

    def _sweep(
        self,
        node_id: BrokerId,
        broker: Broker,
        name: TopicPartition,
        partition: Partition,
        *,
        producers: bool,
    ) -> None:
        log, life = partition.log, self._lives[node_id]
        if partition.is_leader:
            self._look(broker, life, partition)
        if str(name) in self._cleaned or log.failed is not None:
            return
        key = key_of(partition.topic_id, name.partition)
        parsed = self._parsed(node_id, name, log)
        batches = parsed.up_to_now(self._find_on(node_id))
        newest = self.epochs.newest.get(key)
        eligible = set() if newest is None else {*newest.isr, *newest.elr} - {*newest.offline}
        # One that waits for the disk that it had, or for a person, is elected by nobody.
        counted = broker.is_ready and node_id in eligible
        self.report(
            self.prefixes.see(
                Held(
                    node_id,
                    key,
                    log.log_start_offset,
                    batches,
                    partition.high_watermark,
                    counted=counted,
                )
            )
        )
        if producers and log.log_start_offset == 0:
            self.report(producer_state.check(node_id, key, parsed.producers(), known_of(log)))

    def _parsed(self, node_id: int, name: TopicPartition, log: Log) -> ParsedLog:
        parsed = self._logs.get((node_id, name))
        if parsed is None or parsed.log is not log:
            parsed = self._logs[node_id, name] = ParsedLog(log)
        return parsed

    def compare_bytes(self) -> int:
        """At the end, the members of an ISR hold the same bytes, as far as all of them go, and know the same producers; how
        many partitions were compared."""
        assert self.nodes is not None
        found: dict[str, list[tuple[BrokerId, Partition]]] = {}
        cleaned: dict[str, list[tuple[BrokerId, Partition]]] = {}
        for node_id in self.nodes.up():
            for name, partition in self.nodes.brokers[node_id].replicas.partitions.items():
                key = key_of(partition.topic_id, name.partition)
                newest = self.epochs.newest.get(key)
                if newest is not None and node_id in newest.isr:
                    some = cleaned if str(name) in self._cleaned else found
                    some.setdefault(key, []).append((node_id, partition))
        for key, members in cleaned.items():
            self.report(know_their_logs(key, members, self._find_on))
        for key, members in found.items():
            self.report(compare_producers(key, members))
            self.report(compare_bytes(key, members, self._find_on))
        return len(found)

    def _find_on(self, node_id: int) -> Callable[[str], Any]:
        return self.world.disk(node_name(node_id)).files.find

    def compare_tables(self) -> int:
        """At the end, of compacted logs; how many were compared."""
        assert self.nodes is not None
        running = {id_: self.nodes.brokers[id_] for id_ in self.nodes.up()}
        finds = {id_: self._find_on(id_) for id_ in running}
        count, anomalies = compare_tables(running, finds)
        self.report(anomalies)
        return count

    def report(self, anomalies: list[Anomaly]) -> None:
        """What was seen inside of nodes."""
        if self.inside:
            self.report_heard(anomalies)

    def report_heard(self, anomalies: list[Anomaly]) -> None:
        """What clients were told, and who looks into no node sees, too."""
        if anomalies:
            for each in anomalies:
                self.world.trace.event("watch", each.rule, key=each.key, what=each.what)
            self.world.fail(ClusterBroken("; ".join(str(each) for each in anomalies)))


class _Listener:
    """See `ImageListener`: one for each life of a node."""

    def __init__(self, watch: ClusterWatch, node_id: int, life: int) -> None:
        self._watch = watch
        self._node_id = node_id
        self._life = life

    def on_image(self, delta: ImageDelta) -> None:
        self._watch.on_image(self._node_id, self._life, delta)


@lru_cache(KEYS_KEPT)
def key_of(topic_id: object, partition: int) -> str:
    return f"{topic_id}-{partition}"


def _described(node_id: int, life: int, key: str, state: PartitionState) -> Described:
    return Described(
        node_id,
        life,
        key,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        tuple(state.elr),
        tuple(state.adding),
        tuple(state.offline),
    )
