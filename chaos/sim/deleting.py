"""A scene of the cluster campaign: records of its partitions are deleted on request (DeleteRecords), whatever fails.

It is in a part of the seeds, by dice of its own: a seed without it is the run that it was. `--workloads deletions` asks for it. In half
of those (or with `--workloads sleepers`) there are producers that sleep with batches under way, and partitions that move all the while.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.base.ports import Env
from fencepost.node.broker import Broker
from fencepost.replication.log.log import Log
from fencepost.replication.partition import Partition

from ..checkers.deletions import Deletions
from ..checkers.history import History
from ..checkers.observations import Begins, Deletion
from ..workloads.cluster_client import ClusterClient
from ..workloads.deleted_reader import DeletedReader
from ..workloads.deleter import Deleter, Judge
from ..workloads.sleeping_producer import SleepingProducer
from .cluster_admin import Mover
from .cluster_nodes import ClusterNodes, node_name
from .cluster_watch import ClusterWatch, key_of

DELETIONS: Final = "deletions"
SLEEPERS: Final = "sleepers"
ODDS: Final = 0.2
SLEEPERS_ODDS: Final = 0.5  # of those
SLEEPERS_NODES: Final = (4, 5)  # where a partition has nodes that it can move to
# After these a file may not have been given up.
OF_DISKS: Final = frozenset(
    [
        "full-disk",
        "failing-disk",
        "failing-log",
        "failing-files",
        "full-then-power",
        "full-at-a-sync",
        "read-only",
    ]
)


def is_drawn(stream: Callable[[str], random.Random]) -> bool:
    """`stream` is `World.stream`."""
    return stream(f"scene/{DELETIONS}").random() < ODDS


def has_sleepers(stream: Callable[[str], random.Random]) -> bool:
    """Where `is_drawn`."""
    return stream(f"scene/{SLEEPERS}").random() < SLEEPERS_ODDS


def settings(stream: Callable[[str], random.Random]) -> tuple[str, ...]:
    """Of every node: segments small enough that files go, soon or late."""
    dice = stream(f"scene/{DELETIONS}/settings")
    return (
        f"log.internal.segment.bytes={dice.choice((1024, 2048, 4096))}",
        f"log.retention.check.interval.ms={dice.choice((50, 500))}",
        f"log.segment.delete.delay.ms={dice.choice((0, 300, 60000))}",
    )


class Deleting:
    """Who deletes, and what of it is looked at: every answer, every leader at every sweep, every replica and its files at the end."""

    def __init__(
        self,
        nodes: ClusterNodes,
        watch: ClusterWatch,
        place: tuple[str, int],
        client: Callable[[int, str], ClusterClient],
    ) -> None:
        self.nodes = nodes
        self.watch = watch
        self.topic, self.partitions = place
        watch.shortened.add(self.topic)
        self.struck: Callable[[], Iterable[str]] = tuple  # faults, by name
        self.deletions = Deletions(self._committed)
        self.readers: list[DeletedReader] = []
        self.sleepers: list[SleepingProducer] = []
        self.movers: list[Mover] = []
        self._restarted: set[int] = set()
        self._topic_id: UUID | None = None
        self.judge = Judge(self.see, self.deletions.acknowledged, self._newest_epoch)
        self.deleters = [
            Deleter(client(index, f"d{index}"), self.topic, index, self.judge)
            for index in range(self.partitions)
        ]

    @property
    def counts(self) -> dict[str, int]:
        keys = [f"{self.topic}-{index}" for index in range(self.partitions)]
        return {
            "deletions": sum(self.deletions.acknowledged(key) for key in keys),
            "deletions asked for": sum(sum(each.answers.values()) for each in self.deleters),
            "deleted": sum(self.deletions.low(key) for key in keys),
            "readers overtaken": sum(each.overtaken for each in self.readers),
            "slept": sum(each.slept for each in self.sleepers),
        }

    @property
    def configs(self) -> dict[str, str]:
        """Of the topic."""
        return {}

    def hook(self, node_id: int, broker: Broker) -> None:
        """Before it starts."""

    async def at_the_end(self) -> None:
        """When all was read and judged."""

    @property
    def clients(self) -> list[Deleter | SleepingProducer | Mover]:
        return [*self.deleters, *self.sleepers, *self.movers]

    def stop(self) -> None:
        """But for those who sleep: what they have under way has to be acknowledged."""
        for deleter in self.deleters:
            deleter.stopping = True
        for mover in self.movers:
            mover.stopping = True

    def add_sleepers(self, client: Callable[[int, str], ClusterClient], history: History) -> None:
        for index in range(self.partitions):
            one = SleepingProducer(client(index, f"s{index}"), self.topic, index, history)
            self.sleepers.append(one)
        self.movers.append(Mover(client(0, "mover"), self.nodes, self.topic))

    def reader(
        self, client: ClusterClient, partition: int, history: History, **how: Any
    ) -> DeletedReader:
        reader = DeletedReader(client, self.topic, partition, history, **how)
        reader.judge = self.judge
        self.readers.append(reader)
        return reader

    def see(self, seen: Deletion | Begins) -> None:
        self.watch.report(self.deletions.see(seen))

    def look(self) -> None:
        """At where all that lead say that they begin, and at replicas, which may lag and may not run ahead."""
        for node_id, name, partition in self._copies():
            if partition.closed is not None:
                continue
            key = str(name)
            start, epoch = partition.log.log_start_offset, partition.machine.leader_epoch
            since = self.deletions.acknowledged(key) if partition.is_leader else 0
            self.see(Begins(node_name(node_id), key, epoch, start, since))

    def not_everywhere(self) -> str:
        """Where something is left of what was deleted: followers hear of it, and files go in the next round. What a disk could not
        rename stays until its node's next start."""
        if why := self.nodes.not_whole():
            return why
        for node_id, name, partition in self._copies():
            low, start = self.deletions.low(str(name)), partition.log.log_start_offset
            if start < low:
                return f"{name} begins at {start} on {node_id}; all before {low} was deleted"
            if left := self._left_on(node_id, name, partition.log):
                return left
        return ""

    async def settle(
        self,
        on: Callable[[Env, Coroutine[Any, Any, None]], Coroutine[Any, Any, None]],
        within_s: float,
    ) -> None:
        """Nobody writes any more: what was deleted goes everywhere, without help from another deletion. Then there is one more of each
        partition, or nodes that refuse all of them would pass."""
        await self.nodes.until("of deletions", self.not_everywhere, within_s=within_s)
        asking = asyncio.gather(*(on(each.client.env, each.once_more()) for each in self.deleters))

        def complaint() -> str:
            answers = {each.client.name: each.answers for each in self.deleters}
            return "" if asking.done() else f"answers so far: {answers}"

        await self.nodes.until("of one more deletion", complaint, within_s=within_s)
        await asking
        await self.nodes.until("of that deletion", self.not_everywhere, within_s=within_s)

    def _copies(self) -> Iterator[tuple[BrokerId, TopicPartition, Partition]]:
        """Of this topic, on nodes that are up."""
        for node_id in self.nodes.up():
            for index in range(self.partitions):
                name = TopicPartition(self.topic, index)
                partition = self._replicas(node_id).get(name)
                if partition is not None:
                    yield node_id, name, partition

    def _left_on(self, node_id: int, name: TopicPartition, log: Log) -> str:
        """Files in which nothing is left, in a sentence. A node whose disk could not rename them is started again, once."""
        left = self._files_left(node_id, log)
        if not left:
            return ""
        self._maybe_restart(node_id)
        return f"{name} begins at {log.log_start_offset} on {node_id}, which has {left}"

    def _maybe_restart(self, node_id: int) -> None:
        if node_id not in self._restarted and OF_DISKS.intersection(self.struck()):
            self._restarted.add(node_id)
            self.nodes.start(node_id)

    def _files_left(self, node_id: int, log: Log) -> list[str]:
        """Those of segments in which nothing is left."""
        if not log.created:
            return []  # nobody has written to it yet: it has no folder
        folder = self.watch.world.disk(node_name(node_id)).files.folder(log.folder)
        files = sorted(name for name in folder.names if name.endswith(".log"))
        bases = [int(name.removesuffix(".log")) for name in files]
        behind = [*bases[1:], log.log_start_offset + 1]
        return [
            name for name, end in zip(files, behind, strict=True) if end <= log.log_start_offset
        ]

    def _replicas(self, node_id: int) -> Mapping[TopicPartition, Partition]:
        return self.nodes.broker(node_id).replicas.partitions

    def _key(self, partition: int) -> str:
        """An answer may come when all nodes have died since: the topic is what it was."""
        image = self.nodes.image
        found = None if image is None else image.topics.get(self.topic)
        if found is not None:
            self._topic_id = found.topic_id
        assert self._topic_id is not None, "somebody has answered"
        return key_of(self._topic_id, partition)

    def _newest_epoch(self, partition: int) -> int:
        newest = self.watch.epochs.newest.get(self._key(partition))
        return -1 if newest is None else newest.leader_epoch

    def _committed(self, key: str) -> int:
        return self.watch.commits.of(self._key(int(key.rpartition("-")[2])))
