"""Work beside requests: checkpoints, retention, compaction, scrubs. Each a task of its own, none with a timer for a partition.

INVARIANT  what a round works on may be deleted or fail meanwhile without the round, or any other partition, noticing; what
           nobody foresaw in one log's compaction or retention leaves that log out of it, and is said in full.
PREVENTS   one damaged log ending retention for all of them; a batch that compaction chokes on, which every replica has, ending
           every node, and again behind every start.
PROVED BY  tests/replication/test_manager.py::test_a_log_that_fails_its_round_does_not_end_it
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, LogDamaged
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.log import reason_of, where_of
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.broker_config import BrokerValues
from fencepost.cluster.wire.batch import BatchRefused

from .log.checkpoint import Kind
from .log.retention import know_ages
from .metrics import COMPACTION, RETENTION
from .scrubber import Scrubber

if TYPE_CHECKING:
    from .log.log import Log
    from .manager import ReplicaManager
    from .partition import Partition
    from .partition_copies import CopiedPartition

# At most four checkpoints a second, none when nothing happened: what lies behind a checkpoint's recovery point
# and does not check is damage, what lies before it may be a torn end.
CHECKPOINT_S: Final = 0.25
PARTITIONS_A_TURN: Final = 100
# Until somebody can say that the image is of now; without an answer tombstones stay.
HEARD_S: Final = 1.0


async def _of_now(_within_s: float) -> bool:
    return True


class Rounds:
    def __init__(self, env: Env, manager: "ReplicaManager") -> None:
        self._env = env
        self._manager = manager
        self.scrubber = Scrubber(env, manager)
        self._tasks: list[asyncio.Task[None]] = []
        self._moved: dict[CopiedPartition, None] = {}  # high watermarks to write down
        # Whose new log start somebody waits for: that is not put off.
        self._starts: dict[CopiedPartition, None] = {}
        self._due = asyncio.Event()
        self._at_once = asyncio.Event()
        self._checkpointing = asyncio.Lock()
        self._retention_s = 300.0
        self._compaction_s = 15.0
        self._compacts = True
        # Whether the image is of now; whoever has others to ask puts their answer here.
        self.confirm_image: Callable[[float], Awaitable[bool]] = _of_now
        # Of each at its last look: its end, and up to where a round could go.
        self._compacted: dict[Partition, tuple[int, int]] = {}
        # Left out until a restart: it would fail again, and for most of its work before it does.
        self.given_up: dict[str, dict[Partition, None]] = {COMPACTION: {}, RETENTION: {}}
        manager.store.shared.on_failed = self._failed

    def read_settings(self, values: BrokerValues) -> None:
        self._retention_s = values.integer("log.retention.check.interval.ms") / 1000
        self._compaction_s = values.integer("log.cleaner.backoff.ms") / 1000
        self._compacts = values.of("log.cleaner.enable") is True
        self.scrubber.read_settings(values)

    async def opened(self, logs: "Sequence[Log]") -> None:
        """On a full disk the node starts, and serves what it can, as it would have gone on doing."""
        manager = self._manager
        try:
            await manager.store.opened(logs)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            manager.room.refused(error)
            self._due.set()

    def start(self) -> None:
        self.scrubber.begin()
        work: tuple[tuple[Coroutine[Any, Any, None], str], ...] = (
            (self._checkpoint(), "checkpoints"),
            (self._retain(), "retention"),
            (self._compact(), "compaction"),
            (self._manager.room.watch(), "room on the disk"),
            (self.scrubber.run(), "scrub of the logs"),
        )
        self._tasks = [self._env.tasks.spawn(each, name=name) for each, name in work]

    async def stop(self) -> None:
        """A checkpoint that has begun is finished: logs have handed it what they have to settle."""
        async with self._checkpointing:
            for task in self._tasks:
                task.cancel()
        for task in self._tasks:
            try:
                await task
            except asyncio.CancelledError:
                continue  # that is what was asked of it
        self._tasks = []

    # -- what happens meanwhile ------------------------------------------------------------------------

    def moved(self, partition: "CopiedPartition") -> None:
        self._moved[partition] = None
        self._due.set()

    def moved_some(self) -> None:
        """Something was synced."""
        self._due.set()

    def start_moved(self, partition: "CopiedPartition") -> None:
        self._starts[partition] = None
        self._due.set()
        self._at_once.set()

    def _failed(self, name: TopicPartition) -> None:
        """Whoever has written or synced tells its partition himself, before the next turn of the loop. A checkpoint tells nobody, and
        for want of room a write is refused only: it would lead on, and refuse everything, for as long as the node runs."""

        def tell() -> None:
            partition = self._manager.partitions.get(name)
            if partition is None or name in self._manager.offline:
                return
            if partition.log.failed is not None:
                partition.on_log_failed(f"it can't be written any more: {partition.log.failed}")

        self._env.clock.call_later(0, tell)

    def look_again(self) -> None:
        """Settings changed: there may be something to compact."""
        self._compacted.clear()

    def forget(self, partition: "Partition") -> None:
        self._moved.pop(partition, None)
        self._starts.pop(partition, None)
        self._compacted.pop(partition, None)
        for left_out in self.given_up.values():
            left_out.pop(partition, None)
        self.scrubber.forget(partition)

    # -- checkpoints -----------------------------------------------------------------------------------

    async def _checkpoint(self) -> None:
        while True:
            await self._due.wait()
            await self._pause()
            self._due.clear()
            self._at_once.clear()
            await self.checkpoint()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(CHECKPOINT_S):
                await self._at_once.wait()
        except TimeoutError:
            return

    async def checkpoint(self) -> None:
        """Write down where logs are durable, begin and are committed. What fails is tried again with the next."""
        store = self._manager.store
        moved, self._moved = self._moved, {}
        for partition in moved:
            store.offsets.put(
                Kind.HIGH_WATERMARK, partition.topic_partition, partition.high_watermark
            )
        try:
            async with self._checkpointing:
                await store.checkpoint()
        except OSError as error:
            self._env.log.warn("checkpoint_failed", cause=str(error))
        else:
            self._manager.policies.look_again()
        starts, self._starts = self._starts, {}
        for partition in starts:
            partition.on_start_durable()
            if not partition.log.is_start_durable and partition.closed is None:
                self._starts[partition] = None
                self._due.set()
        for name, wants_sync in store.waiting().items():
            self._due.set()
            if wants_sync and name in self._manager.partitions:
                self._manager.flusher.soon(self._manager.partitions[name])

    # -- retention -------------------------------------------------------------------------------------

    async def _retain(self) -> None:
        while True:
            await self._env.clock.sleep(self._retention_s)
            await self.retain()

    async def retain(self) -> None:
        """One round over all partitions: old segments go, and idle producers are forgotten."""
        self._compacted.clear()  # time alone makes tombstones old enough to go
        now_ms = self._env.clock.now_ms()
        for number, partition in enumerate(list(self._manager.partitions.values())):
            is_served = partition.closed is None and partition.log.failed is None
            if is_served and partition not in self.given_up[RETENTION]:
                await self._retain_one(partition, now_ms)
            if number % PARTITIONS_A_TURN == PARTITIONS_A_TURN - 1:
                await self._env.clock.sleep(0)
        self._due.set()

    async def _retain_one(self, partition: "Partition", now_ms: int) -> None:
        log = partition.log
        try:
            await know_ages(log, now_ms)
            if partition.closed is not None or log.failed is not None:
                return
            gone = log.apply_retention(now_ms, partition.high_watermark)
        except (OSError, LogDamaged) as error:
            if log.removed:  # meanwhile, and its files with it
                return
            self._manager.counters.round_failures[RETENTION] += 1
            name = str(partition.topic_partition)
            self._env.log.error("retention_failed", partition=name, cause=str(error))
            return
        except MemoryError:
            raise  # no fault of this log
        except Exception as unforeseen:  # noqa: BLE001 - said in full and counted, and not met again
            self._give_up(RETENTION, partition, unforeseen)
            return
        if gone:
            self._manager.counters.retention_deletes += gone
            partition.on_log_start_moved()

    # -- compaction ------------------------------------------------------------------------------------

    async def _compact(self) -> None:
        while True:
            await self._env.clock.sleep(self._compaction_s)
            # It rests when there is nothing to compact: a log of more keys than fit a round's map takes several.
            while self._compacts and await self.compact():
                pass

    async def compact(self) -> bool:
        """One round over the compacted partitions of which more is written or stable since, or not done with. True: some are not yet."""
        leaves_some = False
        for partition in list(self._manager.partitions.values()):
            if not partition.config.compact:
                continue
            # Nothing goes for a value that the power may take yet (flush.policy `os`, `interval`): its key would be left with none.
            stable = min(partition.last_stable_offset, partition.log.recovery_point)
            look = partition.log_end_offset, stable
            if self._compacted.get(partition) == look:
                continue
            if partition.closed is not None or partition.log.failed is not None:
                continue
            if partition in self.given_up[COMPACTION]:
                continue
            if not partition.log.is_start_durable:
                continue  # the next round finds it so
            self._compacted[partition] = look
            if await self._compact_one(partition, stable):
                self._compacted.pop(partition, None)
                leaves_some = True
        return leaves_some

    async def _compact_one(self, partition: "Partition", stable: int) -> bool:
        """Whether it left something that it can go on with."""
        machine = partition.machine
        try:
            stats = await partition.log.compact(
                self._env.clock.now_ms(),
                stable,
                forgets=lambda: machine.is_everywhere,
                is_heard=lambda: self.confirm_image(HEARD_S),
            )
        except (OSError, LogDamaged, BatchRefused) as error:
            if partition.log.removed:  # meanwhile, and its files with it
                return False
            self._manager.counters.round_failures[COMPACTION] += 1
            name = str(partition.topic_partition)
            self._env.log.error("compaction_failed", partition=name, cause=str(error))
            if partition.log.failed is not None:
                partition.on_log_failed(f"a compaction failed half-way: {error}")
        except MemoryError:
            raise  # no fault of this log
        except Exception as unforeseen:  # noqa: BLE001 - said in full and counted, and not met again
            self._give_up(COMPACTION, partition, unforeseen)
        else:
            self._manager.counters.compaction_rounds += 1
            self._due.set()
            return stats.leaves_some
        return False

    # -- what nobody foresaw ---------------------------------------------------------------------------

    def _give_up(self, kind: str, partition: "Partition", error: Exception) -> None:
        """A fault of ours: every replica has these bytes, and would meet it again behind every start."""
        self.given_up[kind][partition] = None
        cause = f"{type(error).__name__}: {error}"
        has_failed = partition.log.failed is not None
        left = "The log is read and written as before, and grows."
        if has_failed:
            left = (
                "It broke off where nobody can tell what the log is, so this replica goes offline."
            )
        self._env.log.error(
            "round_given_up",
            round=kind,
            partition=str(partition.topic_partition),
            cause=cause,
            where=where_of(error),
            left=left,
            traceback=reason_of(error),
        )
        if has_failed:
            partition.on_log_failed(f"its {kind} broke off half-way: {cause}")
