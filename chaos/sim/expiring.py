"""A scene of the cluster campaign: the records of its partitions are kept for a second or two, or up to some kilobytes, whatever fails.

It is in a part of the seeds that delete nothing on request, by dice of its own: a seed without it is the run that it was. `--workloads
expiring` asks for it. In half of them there are producers that sleep until what they have under way has expired, and partitions that move
(`--workloads expiring,sleepers`). Judged are every replica at every sweep, and what clients are told; at the end nobody writes any
more, and all that is old has to go from every replica.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from fencepost.cluster.base.ids import TopicPartition
from fencepost.node.broker import Broker
from fencepost.replication.log.log import Log
from fencepost.replication.partition import Partition

from ..checkers.expired import Expired
from ..checkers.history import Anomaly
from ..checkers.observations import Began, Begins, Deletion, Wrote
from ..workloads.cluster_client import ClusterClient
from ..workloads.deleter import Judge
from .clock import WALL_START_MS
from .cluster_nodes import ClusterNodes, node_name
from .cluster_watch import ClusterWatch
from .deleting import DELETIONS, SLEEPERS, Deleting, has_sleepers
from .deleting import is_drawn as deletes
from .parsed_log import batches_between
from .plan import Plan

EXPIRING: Final = "expiring"
ODDS: Final = 0.2
CLOCK: Final = "clock"  # the fault
NO_LIMIT: Final = -1
# Beyond its time: rounds of retention, and a disk that was full until just now.
GONE_WITHIN_S: Final = 10.0
LOOK_S: Final = 0.1
Stream = Callable[[str], random.Random]  # `World.stream`


def scene_of(plan: Plan, stream: Stream) -> tuple[str, bool]:
    """`DELETIONS`, `EXPIRING` or "", and whether producers sleep."""
    if plan.workloads:
        naps = SLEEPERS in plan.workloads
        if EXPIRING in plan.workloads:
            return EXPIRING, naps
        return DELETIONS if naps or DELETIONS in plan.workloads else "", naps
    if deletes(stream):
        return DELETIONS, has_sleepers(stream)
    dice = stream(f"scene/{EXPIRING}")
    if dice.random() >= ODDS:
        return "", False
    return EXPIRING, dice.random() < 1 / 2


class Expiring(Deleting):
    """Its nodes have the settings of `deleting.settings`: small segments, which go at once or soon."""

    def __init__(
        self,
        nodes: ClusterNodes,
        watch: ClusterWatch,
        place: tuple[str, int],
        client: Callable[[int, str], ClusterClient],
    ) -> None:
        super().__init__(nodes, watch, place, client)
        self.deleters = []
        dice = watch.world.stream(f"scene/{EXPIRING}/retention")
        self.retention_ms, self.retention_bytes = dice.choice(
            ((1_000, NO_LIMIT), (2_000, NO_LIMIT), (NO_LIMIT, 6_000), (1_500, 10_000))
        )
        self.expired = Expired(self.retention_ms, self.retention_bytes)
        self.judge = Judge(self.see, lambda _: 0, lambda _: -1)
        self._ahead_ms = 0.0  # how far any clock was, at most

    @property
    def configs(self) -> dict[str, str]:
        return {
            "retention.ms": str(self.retention_ms),
            "retention.bytes": str(self.retention_bytes),
        }

    @property
    def counts(self) -> dict[str, int]:
        keys = [f"{self.topic}-{index}" for index in range(self.partitions)]
        return {
            "expired": sum(self.expired.low(key) for key in keys),
            "readers overtaken": sum(each.overtaken for each in self.readers),
            "slept": sum(each.slept for each in self.sleepers),
        }

    # Looking.

    def hook(self, node_id: int, broker: Broker) -> None:
        manager: Any = broker.replicas
        told = manager.on_write
        noted: dict[TopicPartition, tuple[Log, int, int]] = {}  # up to where, in which epoch

        def on_write(partition: Partition, error: OSError | None) -> None:
            told(partition, error)
            name = partition.topic_partition
            if error is None and partition.is_leader and name.topic == self.topic:
                log, epoch = partition.log, partition.machine.leader_epoch
                known, known_epoch, end = noted.get(name, (None, -1, 0))
                is_known = known is log and known_epoch == epoch
                self._note(node_id, partition, end if is_known else log.log_start_offset)
                noted[name] = log, epoch, log.log_end_offset

        manager.on_write = on_write

    def _note(self, node_id: int, partition: Partition, since: int) -> None:
        log, find = partition.log, self.watch.world.disk(node_name(node_id)).files.find
        key = str(partition.topic_partition)
        for _, _, header in batches_between(find, log, since, log.log_end_offset):
            wrote = Wrote(
                key,
                partition.machine.leader_epoch,
                header.base_offset,
                header.next_offset,
                header.max_timestamp,
                header.size,
            )
            self.expired.wrote(wrote)

    def see(self, seen: Deletion | Begins) -> None:
        """What a client was told."""
        if isinstance(seen, Begins) and seen.is_exact:
            self._see(seen.who, seen.key, seen.start)

    def look(self) -> None:
        for node_id, name, partition in self._copies():
            if partition.closed is None:
                self._see(node_name(node_id), str(name), partition.log.log_start_offset)

    def _see(self, who: str, key: str, start: int) -> None:
        true_ms = WALL_START_MS + self.watch.world.loop.time() * 1000
        for name in self.nodes.names:
            ahead_ms = self.watch.world.machine(name).wall.now_ms() - true_ms
            self._ahead_ms = max(self._ahead_ms, ahead_ms)
        # Of a clock that was set and set again, who knows what it said?
        by_time = list(self.struck()).count(CLOCK) < 2
        began = Began(who, key, start, int(true_ms + self._ahead_ms))
        self.watch.report(self.expired.see(began, by_time=by_time))

    # The end.

    def not_everywhere(self) -> str:
        return ""

    async def at_the_end(self) -> None:
        """But where a clock was set: what is old there?"""
        if CLOCK in self.struck():
            return
        loop = self.watch.world.loop
        end = loop.time() + max(0, self.retention_ms) / 1000 + GONE_WITHIN_S
        while left := self._too_much():
            self.look()
            if loop.time() >= end:
                self.watch.report([Anomaly("never-expired", self.topic, left)])
                return
            await asyncio.sleep(LOOK_S)
        self.watch.sweep(producers=True)
        self.watch.compare_bytes()

    def _too_much(self) -> str:
        if why := self.nodes.not_whole():
            return why
        for node_id, name, partition in self._copies():
            log = partition.log
            if self.retention_ms >= 0 and log.log_start_offset < log.log_end_offset:
                return f"{name} begins at {log.log_start_offset} on {node_id}, and all is old"
            least = log.size_bytes - log.segments[0].size
            if 0 <= self.retention_bytes <= least:
                return f"{name} has {log.size_bytes} bytes on {node_id}"
            if left := self._left_on(node_id, name, log):
                return left
        return ""
