"""A stretch of one partition's log: a file of batches, and what is known of it.

INVARIANT  `size` and `next_offset` are those of the last whole batch written; what is served ends at a batch's end.
PREVENTS   half a batch, or bytes of a write that failed, reaching a reader.
PROVED BY  tests/replication/log/test_log_model.py::test_the_log_answers_as_a_plain_list_does

The last batches of the segment being written are remembered (`nexts`, `ends`), so that those who follow the
end of the log find their place without reading.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ports import Buffer, File
from fencepost.cluster.wire.batch import HEADER_SIZE, BatchHeader, BatchRefused, parse_header

from . import segment_files, youngest
from .config import INT_MAX
from .index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex, parsed
from .names import INDEX, LOG, TIMEINDEX, file_name
from .pool import FilePool
from .txn_index import AbortedIndex, IndexDamaged
from .walk import HOW_TO_MEND, Cold, damaged, walk_headers

UNKNOWN: Final = -2  # a timestamp that nobody has looked up yet
TAIL_MAX: Final = 64  # remembered batches; 1 KiB for each partition that is written
INDEX_WRITE_BATCH: Final = 512  # entries that wait before they are appended to the file


class Segment:
    __slots__ = (
        "_index", "_read", "_times", "aborted", "base_offset", "bytes_since_index",
        "created_ms", "dirty", "ends", "extra", "first_timestamp", "folder", "found_largest", "fresh", "index_written", "interval",
        "jitter_ms", "max_timestamp", "next_offset", "nexts", "offset_of_max", "open_file", "pool", "raw_aborted",
        "sealed", "size", "synced_size", "syncs_wanted", "times_written", "used",
    )  # fmt: skip

    def __init__(
        self,
        pool: FilePool,
        folder: str,
        base_offset: int,
        *,
        interval: int,
        next_offset: int = -1,
        size: int = 0,
        fresh: bool = False,
        extra: str = "",
        created_ms: int = 0,
    ) -> None:
        self.pool = pool
        self.folder = folder
        self.base_offset = base_offset
        self.interval = interval
        self.next_offset = max(next_offset, base_offset)
        self.size = self.synced_size = size
        self.fresh = fresh  # not on disk yet
        self.extra = extra  # behind every file's name: "", ".cleaned", ".swap", ".deleted"
        self.created_ms = (
            created_ms  # or opened: what segment.ms counts from when batches bear no time
        )
        self.jitter_ms = 0
        self.open_file: File | None = None
        self.used = self.dirty = self.sealed = False
        self.syncs_wanted = 0  # beside those that `size` asks for
        known = -1 if size == 0 else UNKNOWN
        self.max_timestamp = self.first_timestamp = known
        self.offset_of_max = base_offset
        self.found_largest: youngest.Largest | None = None  # on a thread
        self.bytes_since_index = 0
        self.index_written = self.times_written = 0
        self._index: OffsetIndex | None = None  # loaded when first needed
        self._times: TimeIndex | None = None
        self._read: tuple[OffsetIndex | None, TimeIndex | None] | None = None  # of their files
        self.nexts = array("q", (self.next_offset,))
        self.ends = array("q", (size,))
        self.raw_aborted: AbortedIndex | IndexDamaged | None = None  # as it was read, on a thread
        self.aborted = AbortedIndex() if size == 0 else None  # None: in the file

    # -- the file --------------------------------------------------------------------------------------

    def path_of(self, suffix: str) -> str:
        return f"{self.folder}/{file_name(self.base_offset, suffix)}{self.extra}"

    @property
    def path(self) -> str:
        return self.path_of(LOG)

    def file(self) -> File:
        file = self.open_file
        if file is None:
            file = self._open()
        self.used = True
        return file

    def _open(self) -> File:
        offsets = f"offsets {self.base_offset} to {self.next_offset - 1}"
        try:
            file = self.pool.open(self, create=self.fresh)
        except FileNotFoundError:
            message = f"{self.path} is missing, and with it {offsets}. {HOW_TO_MEND}"
            raise LogDamaged(message) from None
        self.fresh = False
        if file.size() != self.size:
            found = file.size()
            self.pool.close(self)
            raise LogDamaged(
                f"{self.path} is damaged at position {min(found, self.size)}: it holds {found} bytes where"
                f" {self.size} were written for {offsets}"
            )
        return file

    # -- writing ---------------------------------------------------------------------------------------

    def append(self, buffer: Buffer, headers: Sequence[tuple[int, BatchHeader]]) -> None:
        """Write whole batches at the end. OSError leaves the segment as it was, once that is synced (`want_sync`)."""
        if self._index is None:
            self.load_indexes()
        assert self.synced_size <= self.size, "a sync of what is not there is believed"
        file = self.file()
        self.dirty = True
        try:
            file.append((buffer,))
        except OSError:
            self.want_sync()
            raise
        position = self.size
        nexts, ends = self.nexts, self.ends
        for _, header in headers:
            self.note(header, position)
            position += header.size
            nexts.append(header.base_offset + header.last_offset_delta + 1)
            ends.append(position)
        if len(nexts) > TAIL_MAX:
            del nexts[: -TAIL_MAX // 2], ends[: -TAIL_MAX // 2]
        self.size = position
        self.next_offset = nexts[-1]

    def want_sync(self) -> None:
        """By one that begins from now on, though all up to `size` is synced. An append that failed wants it, and a seal:

        1. A disk is full: half a batch is written, and cut off again. Its process may be killed just then.
        2. There is room again. The next batch begins another segment, is synced and acknowledged.
        3. The power fails, and the half batch is back: what stands behind it would be cut off with it.
        """
        self.dirty = True
        self.syncs_wanted += 1

    def note(self, header: BatchHeader, position: int) -> None:
        """Take a batch that stands at `position` into the indexes."""
        last = header.base_offset + header.last_offset_delta
        timestamp = header.max_timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max = timestamp, last
        if position == 0:
            self.first_timestamp = timestamp
        if self.bytes_since_index > self.interval:
            if last - self.base_offset > INT_MAX:  # no checksum covers a batch's offset
                why = f"a batch of offset {header.base_offset} can't be here"
                raise damaged(self.path, position, self.base_offset, why)
            assert self._index is not None and self._times is not None
            self._index.append(last - self.base_offset, position)
            self._times.maybe_append(self.max_timestamp, self.offset_of_max - self.base_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += header.size

    def seal(self) -> None:
        """Nothing is appended any more."""
        if self._index is None:
            self.load_indexes()
        assert self._times is not None
        self._times.maybe_append(self.max_timestamp, self.offset_of_max - self.base_offset)
        self.mark_sealed()
        self.pool.index_loaded(self)

    def mark_sealed(self) -> None:
        self.sealed = True
        self.nexts, self.ends = array("q"), array("q")

    def unseal(self) -> None:
        """The end of the log is in this segment again."""
        self.sealed = False
        self.pool.index_gone(self)
        self.reset_tail()

    def reset_tail(self) -> None:
        self.nexts, self.ends = array("q", (self.next_offset,)), array("q", (self.size,))

    def cut(self, position: int, end: int) -> None:
        """Remove all behind `position`, where the last batch that stays ends, with `end` as the next offset."""
        self.file().truncate(position)
        self.dirty = True
        self.size, self.next_offset = position, end
        self.synced_size = min(self.synced_size, position)
        index, times = self.load_indexes()
        relative = end - self.base_offset
        index.cut(relative)
        times.cut(relative)
        self.index_written = min(self.index_written, len(index))
        self.times_written = min(self.times_written, len(times))
        self.reset_tail()
        self._recount_from_last_entry()

    def _recount_from_last_entry(self) -> None:
        """Largest timestamp and bytes since the last entry, of what is left."""
        index, times = self.load_indexes()
        start = index.positions[-1] if index.positions else 0
        stays = self.max_timestamp != UNKNOWN and self.offset_of_max < self.next_offset
        if not stays or not self.size:
            self._take_max_from(times)
            if start and not self._is_max_there(start, damaged_is=True):
                self.rebuild_indexes()
                return
        self.bytes_since_index = self.size - start
        if self.size == 0:
            self.first_timestamp = -1
            return
        for position, header in walk_headers(self.file(), start, self.size, self.base_offset):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max = header.max_timestamp, header.last_offset
            if position == 0:
                self.first_timestamp = header.max_timestamp

    # -- the indexes -----------------------------------------------------------------------------------

    def index_bytes(self) -> int:
        if self._index is None or self._times is None:
            return 0
        return OFFSET_ENTRY_SIZE * len(self._index) + 12 * len(self._times) + 500

    def forget_index(self) -> None:
        """It is on disk, or can be made anew."""
        if self.sealed:
            self._index = self._times = self._read = None

    def load_indexes(self, *, block: bool = True) -> tuple[OffsetIndex, TimeIndex]:
        if self._index is not None and self._times is not None:
            return self._index, self._times
        if self.size == 0:
            return self.start_indexes()
        if self._read is None:
            if not block:
                raise Cold(self._read_indexes)
            self._read_indexes()
        if not self._take_indexes():
            return self.rebuild_indexes()
        assert self._index is not None and self._times is not None
        loaded = self._index, self._times
        if self.sealed:
            self.pool.index_loaded(self)  # which may make it forget them again
        return loaded

    def _take_indexes(self) -> bool:
        """Take over what was read; False when that is not usable."""
        assert self._read is not None
        (index, times), self._read = self._read, None
        if index is None or times is None or not index.fits(self.size):
            return False
        self._index, self._times = index, times
        self.index_written, self.times_written = len(index), len(times)
        self.bytes_since_index = self.size - (index.positions[-1] if index.positions else 0)
        return True

    def _take_max_from(self, times: TimeIndex) -> None:
        self.max_timestamp, relative = times.last()
        self.offset_of_max = self.base_offset + relative

    def _read_indexes(self) -> None:
        """May run on a thread: of a file of 1 GiB it takes up to 85 ms to tell that they hold together."""
        paths = self.path_of(INDEX), self.path_of(TIMEINDEX)
        read = parsed(*(segment_files.read_if_there(self.pool.disk, path) for path in paths))
        if self._index is None:  # else somebody was quicker, and may have written since
            self._read = read

    def rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """From the log itself. LogDamaged when that is not whole either; then all stays as it was."""
        before = self._index, self._times, self.max_timestamp, self.offset_of_max
        self.start_indexes()
        try:
            for position, header in walk_headers(self.file(), 0, self.size, self.base_offset):
                self.note(header, position)
        except LogDamaged:
            self._index, self._times, self.max_timestamp, self.offset_of_max = before
            raise
        assert self._index is not None and self._times is not None
        rebuilt = self._index, self._times
        if self.sealed:
            relative = self.offset_of_max - self.base_offset
            self._times.maybe_append(self.max_timestamp, relative)
            self.pool.index_loaded(self)
        return rebuilt

    def start_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Empty ones, for a pass over all batches that calls `note`."""
        self._index, self._times = index, times = OffsetIndex(), TimeIndex()
        self.max_timestamp, self.offset_of_max = -1, self.base_offset
        self.bytes_since_index = self.index_written = self.times_written = 0
        return index, times

    def resume_indexes(self, offset: int) -> int:
        """Keep what the files say of batches below `offset`; the position from which to `note` the rest."""
        if self._index is None:
            self._read_indexes()
            self._take_indexes()
        index, times = self._index, self._times
        if index is not None:
            index.cut(offset - self.base_offset)
        if index is None or times is None or not index.positions:
            self.start_indexes()
            return 0
        position, last = index.positions[-1], index.offsets[-1] + self.base_offset
        data = self.file().read(position, HEADER_SIZE)
        try:
            fits = parse_header(data).last_offset == last
        except BatchRefused:
            fits = False  # the file is of a history that was truncated
        if not fits:
            self.start_indexes()
            return 0
        # As it was just before that entry's batch was counted.
        times.cut(index.offsets[-1] + 1)
        self._take_max_from(times)
        # An end of power may have left less of the times.
        if not self._is_max_there(position, damaged_is=True):
            self.start_indexes()
            return 0
        self.bytes_since_index = 0
        self.index_written = min(self.index_written, len(index))
        self.times_written = min(self.times_written, len(times))
        return position

    def index_waits(self) -> bool:
        """Whether enough entries are only in memory that they should be written."""
        return (
            self._index is not None and len(self._index) - self.index_written >= INDEX_WRITE_BATCH
        )

    def write_indexes(self) -> None:
        """Bring the index files up to date. They are not synced here."""
        if self._index is None or self._times is None:
            return
        if self.index_written == len(self._index) and self.times_written == len(self._times):
            return
        disk = self.pool.disk
        # Times first: whoever resumes at an offset entry needs what the times said up to there.
        data = self._times.to_bytes(self.times_written)
        at = self.times_written * TIME_ENTRY_SIZE
        if not segment_files.extend(disk, self.path_of(TIMEINDEX), at, data):
            segment_files.extend(disk, self.path_of(TIMEINDEX), 0, self._times.to_bytes())
        self.times_written = len(self._times)
        data = self._index.to_bytes(self.index_written)
        at = self.index_written * OFFSET_ENTRY_SIZE
        if not segment_files.extend(disk, self.path_of(INDEX), at, data):
            segment_files.extend(disk, self.path_of(INDEX), 0, self._index.to_bytes())
        self.index_written = len(self._index)

    def is_index_full(self, segment_index_bytes: int) -> bool:
        index, times = self.load_indexes()
        return (
            len(index) >= segment_index_bytes // OFFSET_ENTRY_SIZE
            or len(times) >= segment_index_bytes // TIME_ENTRY_SIZE - 1
        )

    def largest_timestamp(self, *, block: bool = True) -> int:
        """By which retention goes, so the index is not believed without a look at the batch it names."""
        if self.max_timestamp == UNKNOWN:
            found, self.found_largest = self.found_largest, None
            if found is None and not block:
                raise Cold(youngest.look_into(self))
            if found is not None and found is not youngest.UNTOLD:
                self.max_timestamp, self.offset_of_max = found
                return self.max_timestamp
            self._take_max_from(self.load_indexes()[1])
            if not self._is_max_there(self.size):
                self.rebuild_indexes()
        return self.max_timestamp

    def _is_max_there(self, end: int, *, damaged_is: bool = False) -> bool:
        index, _ = self.load_indexes()
        largest = self.max_timestamp, self.offset_of_max
        return youngest.is_there(
            largest, index, self.file(), self.base_offset, self.size, end=end, damaged_is=damaged_is
        )

    def timestamp_of_first(self) -> int:
        """Of the first batch; -1 when it has none or there is no batch."""
        if self.first_timestamp == UNKNOWN:
            headers = walk_headers(self.file(), 0, self.size, self.base_offset)
            self.first_timestamp = next(headers)[1].max_timestamp
        return self.first_timestamp
