"""Whoever wrote is known at the next start, by chance: appends, deletions, cuts, syncs and checkpoints, failures and ends of all kinds."""

import asyncio
import errno
import random

import pytest
from fencepost.chaos.sim.disk_faults import DiskFaults
from fencepost.chaos.sim.world import World
from fencepost.cluster.wire.batch import headers_of
from fencepost.replication.log import snapshots
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.log import Log
from log_helpers import PARTITION, START_MS, Node, produce, read_all, run

SEEDS = range(100)


class Story:
    """What is done to a log and what happens to its node, by a seed. `written`: who wrote each offset that the log has, or had."""

    def __init__(self, world: World, seed: int, how: str) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.how = how
        self.node = Node(world, segment_bytes=self.rng.choice([300, 600, 4096]))
        self.written: list[int] = []
        self.sequences: dict[int, int] = {}
        self.checkpoint: asyncio.Future[None] | None = None
        self.high_watermark = 0
        self.trail: list[str] = []

    @property
    def faults(self) -> DiskFaults:
        return self.world.disk("n1").faults

    async def tell(self) -> None:
        log = await self.node.start()
        self.faults.run_s = (0.001, 0.02)
        for step in range(self.rng.randrange(10, 60)):
            log = self.node.log
            what = self.rng.choices(
                [self.produce, self.roll, self.sync, self.begin_checkpoint, self.end_checkpoint, self.delete, self.commit,
                 self.cut, self.begin_anew, self.fail, self.pause, self.restart],
                [30, 10, 10, 10, 5, 10, 10, 4, 1, 3, 4, 4],
            )[0]  # fmt: skip
            self.trail.append(what.__name__)
            await what(log, step)
            if self.node.log.failed is not None:
                await self.restart(self.node.log, step)
        await self.end_checkpoint(self.node.log, 0)
        await self.is_settled_in_time()

    async def produce(self, log: Log, step: int) -> None:
        producer_id = self.rng.randrange(6)
        sequence = self.sequences.get(producer_id, -1) + 1
        try:
            produce(
                log, producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
                leader_epoch=step // 12,
            )  # fmt: skip
        except OSError:
            assert log.failed is not None
            return
        self.sequences[producer_id] = sequence
        self.written.append(producer_id)

    async def roll(self, log: Log, _: int) -> None:
        log.roll(START_MS)

    async def sync(self, log: Log, _: int) -> None:
        try:
            await self.node.sync()
        except OSError:
            assert log.failed is not None

    async def begin_checkpoint(self, *_: object) -> None:
        if self.checkpoint is None or self.checkpoint.done():
            await self.end_checkpoint()
            self.checkpoint = asyncio.ensure_future(self.node.store.checkpoint())
            await asyncio.sleep(0)

    async def end_checkpoint(self, *_: object) -> None:
        if self.checkpoint is not None:
            await self.checkpoint
            self.checkpoint = None

    async def delete(self, log: Log, _: int) -> None:
        log.delete_records_before(self.rng.randint(log.log_start_offset, self.high_watermark))
        log.apply_retention(START_MS, self.high_watermark)

    async def commit(self, log: Log, _: int) -> None:
        """Of the high watermark a start knows only what reached a checkpoint."""
        log.committed = self.high_watermark = self.rng.randint(
            self.high_watermark, log.log_end_offset
        )
        if self.rng.random() < 0.7:
            self.node.store.offsets.put(Kind.HIGH_WATERMARK, PARTITION, log.committed)

    async def cut(self, log: Log, _: int) -> None:
        log.truncate_to(self.rng.randint(self.high_watermark, log.log_end_offset))
        self.is_known(log, "a cut")

    async def begin_anew(self, log: Log, _: int) -> None:
        """The leader has nothing any more of what is here."""
        start = self.rng.choice([*log.bases, log.log_end_offset + 3])
        log.truncate_fully_and_start_at(start)
        self.written = [-1] * start
        self.sequences = {}
        log.committed = self.high_watermark = start
        await self.sync(log, 0)  # an end of power may undo it until then

    async def fail(self, *_: object) -> None:
        what = self.rng.choice([
            ("append", "*.producers*", errno.EIO), ("sync", "*.producers", errno.EIO),
            ("sync", "*.index", errno.EIO), ("sync", "*.log", errno.EIO),
        ])  # fmt: skip
        kind, path, number = what
        self.faults.fail(kind, path=path, number=number, times=self.rng.randrange(1, 4))

    async def pause(self, *_: object) -> None:
        await asyncio.sleep(self.rng.random() * 0.03)

    async def restart(self, log: Log, _: int) -> None:
        await self.end_checkpoint()
        how = self.rng.choice(self.how.split())
        self.trail.append(how)
        await asyncio.sleep(0.002)  # a folder that is set aside has the time for a name
        had, synced = log.log_end_offset, 0 if log.cut_unsynced else log.recovery_point
        failed = log.failed is not None
        self.faults.planned.clear()
        log = await self.node.restart(how)
        self.faults.run_s = (0.001, 0.02)
        assert log.log_end_offset >= (synced if how == "crash" else had) or failed
        # Cuts go by leader epochs: none takes what was ever committed, whether or not the start knows how far that was.
        self.high_watermark = max(
            min(self.high_watermark, log.log_end_offset), log.log_start_offset
        )
        assert log.committed <= self.high_watermark
        self.is_known(log, how)

    def is_known(self, log: Log, after: str) -> None:
        """Whoever wrote what is in the log, or was before it."""
        here = [header.producer_id for _, header in headers_of(read_all(log))]
        self.written = self.written[: log.log_start_offset] + here
        sequences: dict[int, int] = {}
        for producer_id in self.written:
            if producer_id >= 0:
                sequences[producer_id] = sequences.get(producer_id, -1) + 1
        known = {each.producer_id: each.last_sequence for each in log.producers.states()}
        assert known == sequences, f"after {after}: {' '.join(self.trail)}"
        self.sequences = sequences

    async def is_settled_in_time(self) -> None:
        log = self.node.log
        self.faults.planned.clear()
        for number in range(10):
            if number < 7:  # a snapshot at just the high watermark stands for nothing yet
                await self.produce(log, 60)
            log.committed = log.log_end_offset
            await self.node.settle()
            await asyncio.sleep(0.3)
        assert log.is_start_durable and not log.doomed, " ".join(self.trail)
        assert log not in log.shared.unsettled
        assert log.settled_point == log.log_end_offset


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "kill crash clean"])
@pytest.mark.parametrize("at_once", [snapshots.AT_ONCE_MAX, 2])
def test_who_has_written_is_known_after_whatever_happened(
    how: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`at_once` 2: the snapshot of a few is written off the loop, as that of thousands is."""
    monkeypatch.setattr(snapshots, "AT_ONCE_MAX", at_once)

    async def scenario(world: World) -> None:
        await Story(world, seed, how).tell()

    for seed in SEEDS:
        run(scenario, seed)
