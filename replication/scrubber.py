"""All logs of a node are read again, slowly: what was written once may have rotted since.

INVARIANT  between two pieces it rests so long that neither the bytes of a second nor its share of the time go over what
           they may; what is called damaged was found so twice, in a log that was not cut meanwhile.
PREVENTS   a bit that flips while a node is stopped cleanly being served to whoever asks; a check of the disk that
           producers can feel; one bad read of a good disk, or a truncation, taking a replica out of use.
PROVED BY  tests/replication/test_scrubber.py::test_what_flipped_while_a_node_was_stopped_is_found_after_the_start

One task, one piece at a time. It begins when the logs are open, and again when `log.scrub.interval.ms` is over; what a
follower was sent and did not take, or a reader was about to be sent (`first_reads.py`), is looked at before all others. In
between nothing is awake.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.broker_config import BrokerValues

from .log.damage import Damage, joined
from .log.scrub import Extent, Piece, Place, check_piece, extent_of, place_before
from .log.segment import Segment

if TYPE_CHECKING:
    from .manager import ReplicaManager
    from .partition import Partition

NEVER: Final = -1
# Of the time at most so much goes into pieces: where disk or processor are busy these take longer, and so do the rests.
SHARE_MAX: Final = 0.01
REST_S_MAX: Final = 10.0  # behind one piece, however long it took
AGAIN_S: Final = 1.0  # what is damaged, or could not be read, is read once more
TRIES_MAX: Final = 3  # where there is no descriptor, or no memory
SUSPECTS_MAX: Final = 100


class _Stretch:
    """A part of one segment that is being looked at."""

    def __init__(
        self, partition: "Partition", segment: Segment, place: Place, end: int | None = None
    ) -> None:
        self.partition = partition
        self.segment = segment
        self.place = place
        self.found: list[Damage] = []
        self._end = end
        self._cuts = partition.log.cuts

    def is_there(self) -> bool:
        """After every await: is this still the log that was read from?"""
        log = self.partition.log
        is_same = self.partition.closed is None and log.cuts == self._cuts
        return is_same and not log.removed and self.segment in log.segments

    @property
    def limit(self) -> int:
        """What is not on the disk yet is not looked at, unless somebody was sent it. Not the high watermark: a start knows
        less of that than what was committed, and what is cut beyond it is cut under the eyes of `is_there`."""
        log = self.partition.log
        return log.recovery_point if self._end is None else min(self._end, log.log_end_offset)

    def is_over(self, extent: Extent) -> bool:
        return self.place.position >= extent.size or self.place.offset >= self.limit

    def counts(self, damage: Damage) -> bool:
        return damage.first_offset < self.limit and damage.reaches(
            self.partition.log.log_start_offset
        )


class Scrubber:
    def __init__(self, env: Env, manager: "ReplicaManager") -> None:
        self._env = env
        self._manager = manager
        self._interval_s: float = NEVER
        self._bytes_a_second = 0
        self._suspects: dict[Partition, tuple[int, int]] = {}
        self._wanted = asyncio.Event()
        self._is_suspicious = asyncio.Event()
        self._is_urgent = False  # a suspect is being looked at
        self._since: float | None = None  # when the last pass that is over began, or this node
        self._is_passed = False

    def read_settings(self, values: BrokerValues) -> None:
        interval_ms = values.integer("log.scrub.interval.ms")
        self._interval_s = NEVER if interval_ms == NEVER else interval_ms / 1000
        self._bytes_a_second = values.integer("log.scrub.bytes.per.second")
        if self._bytes_a_second == 0:
            for partition in self._manager.partitions.values():
                partition.log.unread = None
        self._wanted.set()

    @property
    def age_s(self) -> float:
        """Since then all that was in the logs has been looked at."""
        return 0.0 if self._since is None else self._env.clock.steady() - self._since

    def suspect(self, partition: "Partition", first: int, end: int) -> None:
        """A follower was sent these offsets and did not take them, or a reader was about to be."""
        if partition in self._suspects or len(self._suspects) < SUSPECTS_MAX:
            self._suspects[partition] = (first, end)
            self._wanted.set()
            self._is_suspicious.set()

    def forget(self, partition: "Partition") -> None:
        self._suspects.pop(partition, None)

    # -- the task --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The logs are open, and nobody has asked for anything yet."""
        self._since = self._env.clock.steady()
        self._manager.store.shared.on_suspicion = self._suspect
        if self._bytes_a_second > 0:
            for partition in self._manager.partitions.values():
                log = partition.log
                if log.log_end_offset > log.log_start_offset:
                    log.unread = log.log_start_offset, log.log_end_offset

    def _suspect(self, name: TopicPartition, first: int, end: int) -> None:
        partition = self._manager.partitions.get(name)
        if partition is not None:
            self.suspect(partition, first, end)

    async def run(self) -> None:
        while True:
            self._wanted.clear()
            await self._look_at_suspects()
            due = self._due()
            if due is not None and self._env.clock.steady() >= due:
                began = self._env.clock.steady()
                await self._pass()
                self._since, self._is_passed = began, True
                self._tell_passed(began)
            await self._wait(self._due())

    def _due(self) -> float | None:
        """When the next pass begins. The first one is that of the start."""
        if self._bytes_a_second == 0 or self._since is None:
            return None
        if not self._is_passed:
            return self._since
        return None if self._interval_s == NEVER else self._since + self._interval_s

    async def _wait(self, due: float | None) -> None:
        """Until then, or until somebody wants something."""
        if due is None:
            await self._wanted.wait()
            return
        try:
            async with asyncio.timeout(max(due - self._env.clock.steady(), 0.0)):
                await self._wanted.wait()
        except TimeoutError:
            return

    async def _pass(self) -> None:
        """Those that are led here first: they are read from."""
        partitions = list(self._manager.partitions.values())
        for partition in sorted(partitions, key=lambda each: not each.is_leader):
            for _ in range(TRIES_MAX):  # one that was cut meanwhile is begun again
                if self._bytes_a_second == 0 or await self._log(partition):
                    break

    def _tell_passed(self, began: float) -> None:
        counters = self._manager.counters
        self._env.log.info(
            "logs_read_again",
            seconds=round(self._env.clock.steady() - began, 3),
            bytes=counters.scrubbed_bytes,
            damaged=counters.damaged_batches,
        )

    async def _look_at_suspects(self) -> None:
        self._is_urgent = True
        while self._suspects:
            partition, (first, end) = next(iter(self._suspects.items()))
            del self._suspects[partition]
            log = partition.log
            while partition.closed is None and first < min(end, log.log_end_offset):
                segment = log.segments[log.index_of(first)]
                stretch = _Stretch(partition, segment, place_before(segment, first), end)
                await self._segment(stretch)
                if not stretch.is_there() or segment is log.active:
                    break
                first = extent_of(log, segment).next_offset
        self._is_urgent = False
        self._is_suspicious.clear()

    # -- one log ---------------------------------------------------------------------------------------

    async def _log(self, partition: "Partition") -> bool:
        """All of it that is synced. What is found to be well is not called damaged any more. False: it was cut meanwhile."""
        log, found = partition.log, set[Damage]()
        cuts, before = log.cuts, set(log.damage)
        for segment in list(log.segments):
            stretch = _Stretch(partition, segment, Place(0, segment.base_offset))
            await self._segment(stretch)
            found.update(stretch.found)
            if partition.closed is not None or log.cuts != cuts:
                return partition.closed is not None
            if log.unread is not None:
                log.unread = max(log.unread[0], stretch.place.offset), log.unread[1]
        log.unread = None
        if log.damage:  # what a suspicion has found behind this pass it did not look at
            log.damage = tuple(sorted(found | (set(log.damage) - before)))
        await self._manager.store.damaged.keep(log)
        return True

    async def _segment(self, stretch: _Stretch) -> None:
        tries = 0
        while stretch.is_there():
            extent = extent_of(stretch.partition.log, stretch.segment)
            if stretch.is_over(extent):
                return
            piece = await self._piece(extent, stretch.place)
            if not stretch.is_there():
                return
            if piece is None or (piece.damage is not None and tries == 0):
                if tries == TRIES_MAX:
                    return  # the next pass comes
                tries += 1
                await self._env.clock.sleep(AGAIN_S)
                continue
            tries = 0
            stretch.place = piece.place
            if piece.damage is not None and stretch.counts(piece.damage):
                await self._found(stretch, piece.damage)
            if self._suspects and not self._is_urgent:
                await self._look_at_suspects()

    async def _piece(self, extent: Extent, place: Place) -> Piece | None:
        """And the rest behind it. None: nothing could be opened now."""
        clock, disk = self._env.clock, self._env.disk
        began = clock.steady()
        try:
            piece = await disk.run_aside(check_piece, disk, extent, place)
        except OSError:
            piece = None
        took_s = clock.steady() - began
        size = 0 if piece is None else piece.size
        self._manager.counters.scrubbed_bytes += size
        by_rate_s = size / self._bytes_a_second if self._bytes_a_second else 0.0
        if not self._is_urgent:
            rest_s = max(by_rate_s, took_s / SHARE_MAX) - took_s
            await self._rest(min(rest_s, REST_S_MAX))
        return piece

    async def _rest(self, seconds: float) -> None:
        """Unless there is something that can't wait."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_suspicious.wait()
        except TimeoutError:
            return

    async def _found(self, stretch: _Stretch, damage: Damage) -> None:
        """Said once, remembered over restarts, and the copy taken out of use where another one is."""
        partition, log = stretch.partition, stretch.partition.log
        stretch.found.append(damage)
        if damage in log.damage:
            return
        log.damage = joined(log.damage, damage)
        self._manager.counters.damaged_batches += 1
        name = str(partition.topic_partition)
        self._env.log.error("log_damaged", partition=name, cause=damage.sentence)
        await self._manager.store.damaged.keep(log)
        partition.weigh_damage()
