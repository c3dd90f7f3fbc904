"""Compaction: the log keeps, of every key, the last value.

INVARIANT  what is cleaned is sealed, committed and decided; offsets do not change; until the new files stand
           complete and durable the old ones are the log.
PREVENTS   a reader or a crash in the middle of a round seeing a log that never was.
PROVED BY  tests/replication/log/test_compaction.py::test_compaction_keeps_the_last_value_of_every_key

One round: read the dirty part into a map of keys, as far as the map has room; then copy everything from the log's start
to there, segments grouped so that they do not get ever smaller, without what is superseded. All reading and
packing is done off the loop, a piece at a time; the map is the memory it takes.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.cluster.base.ports import Buffer, File
from fencepost.cluster.wire.batch import BatchHeader, parse_header
from fencepost.cluster.wire.records import read_records

from . import aborted
from .burial import Burial
from .checkpoint import Kind
from .cleaner import Cleaner, Transactions
from .config import INT_MAX
from .halfway import Halfway
from .index import OFFSET_ENTRY_SIZE
from .key_map import KeyMap
from .names import CLEANED, INDEX, SWAP, TIMEINDEX, TXNINDEX
from .segment import Segment
from .segment_files import NamesLost, rename_all, sync_folder, sync_if_there
from .swap import commit_swap, make_way, remove_cleaned, to_swap
from .sync import lose
from .txn_index import AbortedIndex
from .walk import pieces

if TYPE_CHECKING:
    from .log import Log

MAP_BYTES: Final = 32 * 1024 * 1024  # a million keys a round; Kafka gives 128 MB to its threads


@dataclass(slots=True)
class CompactionStats:
    """One round. `end_offset`: cleaned up to here; -1 when there was nothing to do. `leaves_some`: its map was full, or it was aborted."""

    end_offset: int = -1
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    leaves_some: bool = False


class Dirt(NamedTuple):
    """What a round could clean, and whether it is time."""

    first_dirty: int
    end: int  # exclusive; where a segment begins
    ratio: float
    is_due: bool


class Place(NamedTuple):
    """In a segment: the position of the next batch, and the offset that it has at least."""

    position: int
    offset: int


class CleaningAborted(Exception):
    """The log was truncated, or lost segments that were being cleaned: another round will do it."""


def dirt(log: "Log", now_ms: int, last_stable_offset: int) -> Dirt | None:
    """None when nothing can be cleaned. Kafka's LogCleanerManager."""
    config = log.config
    start = log.log_start_offset
    first_dirty = log.cleaned_to if start <= log.cleaned_to <= log.log_end_offset else start
    sealed = log.segments[:-1]
    end = min(last_stable_offset, log.active.base_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in sealed[log.index_of(first_dirty) :]:
            if segment.largest_timestamp() > now_ms - config.min_compaction_lag_ms:
                end = min(end, segment.base_offset)
                break
    end = log.bases[log.index_of(end)]  # whole segments
    if end <= first_dirty:
        return None
    dirty = [segment for segment in sealed if first_dirty < _end_of(log, segment) <= end]
    dirty_bytes = sum(segment.size for segment in dirty)
    clean_bytes = sum(segment.size for segment in sealed if _end_of(log, segment) <= first_dirty)
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / (dirty_bytes + clean_bytes)
    oldest = min((at for at in map(Segment.timestamp_of_first, dirty) if at > 0), default=now_ms)
    is_late = oldest < now_ms - max(config.max_compaction_lag_ms, 0)
    return Dirt(first_dirty, end, ratio, is_late or ratio > config.min_cleanable_dirty_ratio)


def _end_of(log: "Log", segment: Segment) -> int:
    at = log.index_of(segment.base_offset) + 1
    return log.bases[at] if at < len(log.bases) else log.log_end_offset


async def always() -> bool:
    return True


async def compact(
    log: "Log",
    now_ms: int,
    last_stable_offset: int,
    *,
    force: bool = False,
    forgets: Callable[[], bool] = lambda: True,
    is_heard: Callable[[], Awaitable[bool]] = always,
    map_bytes: int = MAP_BYTES,
) -> CompactionStats:
    """One round, if it is due. LogDamaged: a batch is not what was written, and stays as it is.

    Only one that `forgets` drops tombstones and markers. A replica that was away while they went would copy only
    what is left of the log: it would keep a deleted value for good, and a transaction open, and may lead one day.
    (Kafka drops them all the same: `delete.retention.ms` is how long a replica may be away.) It is asked again before
    each swap: a replica that is added meanwhile may copy the value from a leader that has not compacted yet. And what `forgets` goes
    by may be of long ago: before something goes `is_heard` says whether it is of now, or of later than what goes was committed.
    """
    stats = CompactionStats()
    found = dirt(log, now_ms, last_stable_offset)
    if found is None or log.cleaning or log.failed is not None or not (force or found.is_due):
        return stats
    if not log.is_start_durable:
        # A crash would bring segments back before the log's start. What is cleaned must not go without them: the entry of an aborted
        # transaction, or a tombstone, of which only they have the records.
        return stats
    log.cleaning = True
    try:
        await _Round(log, found, now_ms, stats, map_bytes, forgets, is_heard).run()
    except CleaningAborted:
        stats.leaves_some = True
        log.env.log.info("cleaning_aborted", partition=str(log.topic_partition))
    except NamesLost as error:
        lose(log, error)
        raise
    finally:
        log.cleaning = False
    return stats


class _Round:
    def __init__(
        self,
        log: "Log",
        found: Dirt,
        now_ms: int,
        stats: CompactionStats,
        map_bytes: int,
        forgets: Callable[[], bool],
        is_heard: Callable[[], Awaitable[bool]],
    ) -> None:
        self.log = log
        self.dirt = found
        self.now_ms = now_ms
        self.stats = stats
        self.forgets = forgets
        self.is_heard = is_heard
        self.cuts = log.cuts
        self.keys = KeyMap(map_bytes, found.end - found.first_dirty)

    async def run(self) -> None:
        log = self.log
        await self._map_keys()
        if not log.is_start_durable:
            raise CleaningAborted  # retention came in between: as in `compact`
        end = self.keys.latest + 1
        chosen = [segment for segment in log.segments[:-1] if segment.base_offset < end]
        transactions = Transactions(aborted.between(log, chosen[0].base_offset, self.dirt.end))
        producers = log.producers

        def still_needs(header: BatchHeader) -> bool:
            return header.has_producer and producers.still_needs(
                header.producer_id, header.producer_epoch, header.last_offset,
                is_control=header.is_control,
            )  # fmt: skip

        cleaner = Cleaner(
            self.keys,
            transactions,
            still_needs,
            now_ms=self.now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            round_end=self.dirt.end,
            epoch_starts=log.epochs.later_starts,
        )
        for group in _groups(log, chosen):
            cleaner.begin(forgets=self.forgets())
            if not await self._clean(group, cleaner):
                cleaner.begin_again()
                await self._clean(group, cleaner)
        self.stats.records_read, self.stats.records_kept = (
            cleaner.records_read,
            cleaner.records_kept,
        )
        self.stats.end_offset = log.cleaned_to = end
        self.stats.leaves_some = end < self.dirt.end
        log.put(Kind.CLEANED, end)

    def _check(self, segments: list[Segment]) -> None:
        """After every await: is this still the log that the round began with?"""
        log = self.log
        gone = log.cuts != self.cuts or log.failed is not None
        if gone or any(segment not in log.segments for segment in segments):
            raise CleaningAborted

    # -- the map of keys -------------------------------------------------------------------------------

    async def _map_keys(self) -> None:
        log, found = self.log, self.dirt
        transactions = Transactions(aborted.between(log, found.first_dirty, found.end))
        for segment in log.segments[log.index_of(found.first_dirty) : -1]:
            if segment.base_offset >= found.end:
                return
            following = _end_of(log, segment)
            place = Place(0, segment.base_offset)
            while place.position < segment.size:
                taken = await log.env.disk.run(
                    self._map_piece, segment.file(), segment.size, place, following, transactions
                )
                self._check([segment])
                if taken is None:
                    return  # the map is full
                place = taken
                await log.env.clock.sleep(0)
            self.keys.latest = following - 1

    def _map_piece(
        self, file: File, end: int, place: Place, limit: int, transactions: Transactions
    ) -> Place | None:
        """The place behind what was taken in; None when the map is full. Off the loop."""
        for at, header, batch in pieces(file, place.position, end, place.offset, limit):
            place = Place(at + header.size, header.next_offset)
            if header.is_control:
                transactions.is_done_with(header, read_records(batch))
            elif header.last_offset >= self.dirt.first_dirty:
                if not transactions.is_aborted(header) and not self._map_batch(header, batch):
                    return None
                self.keys.latest = header.last_offset
        return place

    def _map_batch(self, header: BatchHeader, batch: Buffer) -> bool:
        keys = self.keys
        records = read_records(batch)  # as many as it claims: a header alone may claim any number
        if not keys.has_room(len(records)):
            if keys.latest >= self.dirt.first_dirty:
                return False
            while not keys.has_room(len(records)):
                keys.grow()  # one batch at least, or the log would never be cleaned
        for record in records:
            if record.key is not None and record.offset >= self.dirt.first_dirty:
                keys.put(record.key, record.offset)
        return True

    # -- one new segment -------------------------------------------------------------------------------

    async def _clean(self, group: list[Segment], cleaner: Cleaner) -> bool:
        """False: there may be a replica now that lacks what went. The old segments are still the log."""
        log = self.log
        new = Segment(
            log.shared.pool, log.folder, group[0].base_offset,
            interval=log.config.index_interval_bytes, fresh=True, extra=CLEANED,
            created_ms=group[-1].created_ms,
        )  # fmt: skip
        await log.env.disk.run(make_way, log.env.disk, log.folder, new.base_offset)
        self._check(group)
        new.dirty = True  # so that its file is not closed before it is the log
        try:
            changed = len(group) > 1
            for segment in group:
                changed |= await self._copy(segment, new, cleaner, is_last=segment is group[-1])
            return not changed or await self._finish(group, new, cleaner)
        finally:
            if new.extra == CLEANED:
                log.shared.pool.close(new)
                remove_cleaned(log.env.disk, log.folder, new.base_offset)

    async def _copy(
        self, segment: Segment, new: Segment, cleaner: Cleaner, *, is_last: bool
    ) -> bool:
        """Whether anything of it was left out or changed."""
        log, place = self.log, Place(0, segment.base_offset)
        file, limit = segment.file(), _end_of(self.log, segment)
        changed = False
        while place.position < segment.size:
            kept, taken, left_as_was = await log.env.disk.run(
                _clean_piece, file, segment.size, place, limit, cleaner, is_last
            )
            self._check([segment])
            changed |= not left_as_was
            self.stats.bytes_read += taken.position - place.position
            place = taken
            if kept:
                headers = [(0, header) for header, _ in kept]
                data = b"".join(batch for _, batch in kept)
                new.append(data, headers)
                self.stats.bytes_written += len(data)
            await log.env.clock.sleep(0)
        return changed

    async def _finish(self, group: list[Segment], new: Segment, cleaner: Cleaner) -> bool:
        log = self.log
        disk = log.env.disk
        new.next_offset = _end_of(log, group[-1])
        new.seal()
        new.write_indexes()
        new.aborted = AbortedIndex(cleaner.transactions.kept)
        # Where there was one there is one, though empty: a start that finishes the swap takes what has no `.swap` for the new one.
        if new.aborted or disk.exists(group[0].path_of(TXNINDEX)):
            aborted.write(log, new)
        paths = [new.path_of(suffix) for suffix in (INDEX, TIMEINDEX, TXNINDEX)]
        await disk.sync((new.file(),))
        if cleaner.forgot:
            if not await self.is_heard():
                return False
            self._check(group)
        await disk.run(_sync_and_name, log, new.base_offset, paths)
        self._check(group)
        # from here ...
        if cleaner.forgot and not self.forgets():
            return False
        with Halfway(log, harmless=(OSError,)):
            commit_swap(disk, log.folder, new.base_offset)
        new.extra = SWAP
        with Halfway(log):  # the next start finishes it
            self._replace(group, new)
        # ... to here no await: a truncation, or who copies the log, finds the old segments or the new one
        return True

    def _replace(self, group: list[Segment], new: Segment) -> None:
        log = self.log
        disk = log.env.disk
        at = log.segments.index(group[0])
        for segment in group:
            Burial(log, segment)
            for waiting in (log.dirty, log.rolled, log.aborted_unsynced):
                if segment in waiting:
                    waiting.remove(segment)
            log.shared.pool.index_gone(segment)
        sync_folder(disk, log.folder)
        rename_all(disk, log.folder, new.base_offset, SWAP, "")
        new.extra = ""
        log.folder_version += 1
        new.dirty = False
        new.synced_size = new.size
        log.segments[at : at + len(group)] = [new]
        log.bases[at : at + len(group)] = [new.base_offset]
        log.size_bytes += new.size - sum(segment.size for segment in group)


def _sync_and_name(log: "Log", base_offset: int, paths: list[str]) -> None:
    """Off the loop: the indexes beside a cleaned log are durable before their names change."""
    for path in paths:
        sync_if_there(log.env.disk, path)
    to_swap(log.env.disk, log.folder, base_offset)


def _clean_piece(
    file: File, end: int, place: Place, limit: int, cleaner: Cleaner, is_last_segment: bool
) -> tuple[list[tuple[BatchHeader, Buffer]], Place, bool]:
    """What is kept of the next piece, the place behind it, whether that is all of it. Off the loop."""
    kept: list[tuple[BatchHeader, Buffer]] = []
    left_as_was = True
    for at, header, batch in pieces(file, place.position, end, place.offset, limit):
        place = Place(at + header.size, header.next_offset)
        left = cleaner.keep(batch, header, is_last=is_last_segment and place.position == end)
        left_as_was &= left is batch
        if left is not None:
            kept.append((parse_header(left), left))
    return kept, place, left_as_was


def _groups(log: "Log", chosen: list[Segment]) -> Iterator[list[Segment]]:
    """Neighbours that fit one segment together."""
    config = log.config
    group: list[Segment] = []
    size = entries = 0
    for segment in chosen:
        index, _ = segment.load_indexes()
        if group and (
            size + segment.size > config.segment_bytes
            or entries + len(index) > config.segment_index_bytes // OFFSET_ENTRY_SIZE
            or _end_of(log, segment) - 1 - group[0].base_offset > INT_MAX
        ):
            yield group
            group, size, entries = [], 0, 0
        group.append(segment)
        size += segment.size
        entries += len(index)
    if group:
        yield group
