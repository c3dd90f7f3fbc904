"""The Raft log of one voter, on disk: numbered segments that only ever grow at their end.

INVARIANT  what `make_durable` returned for is read back by every later `open`, after any crash.
PREVENTS   a voter that forgets an entry it has acknowledged: Raft's quorums then no longer overlap.
PROVED BY  tests/cluster/quorum/test_journal.py::test_no_crash_at_any_disk_operation_loses_what_was_durable,
           tests/cluster/quorum/test_journal_doubtful.py::test_what_a_failed_sync_left_is_written_again_before_anything_follows_it,
           tests/regressions/test_seeds.py::test_a_voter_whose_journal_saw_a_sync_fail_comes_back_after_an_end_of_power

pysyncobj's own journal maps a file into memory, never syncs it, has no checksums, ends at 4 GiB and rewrites itself in
place to drop its head. Here entries are added in memory; `make_durable` writes all new ones as one *group* and
syncs it, off the loop. A group is written only when the one before it is synced. Hence, at an end of power, at most the
last group can be torn, in any of its sectors: it was acknowledged to nobody, and is cut off. Damage with a whole group
behind it was durable once: that is no tear, and the node refuses to start on it.

Nothing is overwritten or cut in place. A group says at which index it begins; one that begins at or before the last
index takes the place of what was there (a conflict with a new leader), one marked RESET of all before it (a snapshot was
installed). The head is dropped by whole segments.
"""

from dataclasses import dataclass
from typing import Final

from ..base.errors import LogDamaged, Trouble
from ..base.metrics import Histogram
from ..base.ports import Env, File
from .raft_files import ADVICE
from .segment_format import (
    FORMAT,
    RESET,
    SEAL,
    SEGMENT_HEADER_SIZE,
    Entry,
    Group,
    SegmentHeader,
    is_group_behind,
    read_group,
    read_segment_header,
    write_group,
    write_segment_header,
)
from .vote_file import VoteFile

SEGMENT_BYTES_MAX: Final = 4 * 1024 * 1024  # then the next group begins a new segment
_SUFFIX: Final = ".journal"


class JournalLost(Trouble):
    """A sync failed: nobody knows what of the journal is on the disk, and trying again would not tell."""


@dataclass(slots=True)
class _Segment:
    number: int
    path: str
    first_index: int  # of its first group


class Journal:
    """What `SyncObj` takes for its journal; the names in camelCase are pysyncobj's."""

    def __init__(self, env: Env, folder: str, vote: VoteFile) -> None:
        self._env = env
        self._folder = folder
        self.vote = vote
        self._entries: list[Entry] = []
        self._segments: list[_Segment] = []
        self._file: File | None = None
        self._salt = 0
        self._commit_index = 1
        # The first index whose group is not written yet, and the last one that the files hold.
        self._next_write = 1
        self._disk_last = 0
        self._reset = False
        self._heads_dropped = False
        self._synced = True  # the last group that was written
        self._group_last = 0  # of that group, or before it where that was cut since
        self.sync_s = Histogram()
        self.durable_last = 0  # the last entry that survives an end of power
        self._unsure: list[
            tuple[int, bytes]
        ] = []  # positions and bytes that `open` may not take for synced

    # --- opening ---

    @classmethod
    def open(cls, env: Env, folder: str, vote: VoteFile) -> "Journal":
        """Read all segments; cut a torn tail. LogDamaged names file and position of any other damage."""
        journal = cls(env, folder, vote)
        env.disk.make_folders(folder)
        env.disk.sync_folder(folder.rpartition("/")[0])
        names = [name for name in env.disk.list(folder) if name.endswith(_SUFFIX)]
        for name in names:
            journal._read_segment(f"{folder}/{name}", is_last=name == names[-1])
        if journal._file is not None:
            journal._write_again(journal._file)
        # So with names: of the last segment, and of the vote that was read and may be told to others.
        env.disk.sync_folder(folder)
        journal._group_last = journal.durable_last = journal._disk_last
        return journal

    def _write_again(self, file: File) -> None:
        """A killed process may have written this and not synced it: from now on it counts.

        It may even have seen the sync fail: the kernel then takes the pages for clean, and a sync alone would pass them
        over. Only the header or the last group can be so, because each waits for the sync of what is before it.
        """
        for position, data in self._unsure:
            file.write_at(position, data)
        self._unsure.clear()
        file.sync()

    def _read_segment(self, path: str, *, is_last: bool) -> None:
        disk = self._env.disk
        data = disk.read_all(path)
        header = self._read_header(path, data, is_last=is_last)
        if header is None:
            disk.remove(path)
            disk.sync_folder(self._folder)
            return
        number, salt = header.number, header.salt
        if self._segments and number != self._segments[-1].number + 1:
            missing = self._path(self._segments[-1].number + 1)
            raise LogDamaged(f"The metadata journal lacks {missing}. {ADVICE}")
        position = last_group = SEGMENT_HEADER_SIZE
        segment: _Segment | None = None
        while position < len(data):
            group = read_group(data, position, salt)
            if group is None:
                if not is_last or is_group_behind(data, position + 1, salt):
                    raise LogDamaged(
                        f"The metadata journal {path} is damaged at position {position}, and what"
                        f" follows was durable once. {ADVICE}"
                    )
                self._cut(path, position, lost=len(data) - position)
                break
            if segment is None:
                segment = _Segment(number, path, group.first_index)
                self._segments.append(segment)
            self._replay(path, position, group)
            last_group, position = position, group.end
        if segment is None:
            # Begun, and nothing was written to it: begin it again.
            segment = _Segment(number, path, self._next_write)
            self._segments.append(segment)
        if is_last:
            self._file, self._salt = disk.open(path), salt
            self._unsure = [(0, data[:SEGMENT_HEADER_SIZE])]
            if position > last_group:
                self._unsure.append((last_group, data[last_group:position]))

    def _read_header(self, path: str, data: bytes, *, is_last: bool) -> SegmentHeader | None:
        """None for a last segment that a crash kept from being begun."""
        header = read_segment_header(data)
        if header is not None and header.format != FORMAT:
            raise LogDamaged(f"{path} has format {header.format}; this version reads {FORMAT}.")
        if header is not None and path == self._path(header.number):
            return header
        # The header is synced before the first group is written.
        if is_last and len(data) <= SEGMENT_HEADER_SIZE:
            return None
        raise LogDamaged(f"The metadata journal {path} is damaged at position 0. {ADVICE}")

    def _replay(self, path: str, position: int, group: Group) -> None:
        if group.flags & RESET:
            self._entries.clear()
        if self._entries:
            first, last = self._entries[0].idx, self._entries[-1].idx
            if group.first_index > last + 1:
                raise LogDamaged(
                    f"The metadata journal {path} goes from entry {last} to {group.first_index} at"
                    f" position {position}. {ADVICE}"
                )
            # Before the first one: a conflict reached back into a segment that was dropped since, as a snapshot has it.
            del self._entries[max(0, group.first_index - first) :]
        self._entries.extend(group.entries)
        self._disk_last = group.first_index + len(group.entries) - 1
        self._next_write = self._disk_last + 1

    def _cut(self, path: str, position: int, lost: int) -> None:
        file = self._env.disk.open(path)
        file.truncate(position)
        file.sync()
        file.close()
        self._env.log.warn("journal_torn_tail_cut", path=path, position=position, bytes=lost)

    def start_at(self, previous: Entry, last: Entry, *, may_lag: bool) -> None:
        """Drop what a snapshot, of which these are the last two entries, has made needless.

        A crash between the snapshot's rename and this leaves more; pysyncobj would clear it all. Where the journal
        ends before the snapshot it is replaced by the snapshot's entries, if that may be (`may_lag`).
        """
        first = self._entries[0].idx if self._entries else 0
        if self._entries and first <= previous.idx:
            here = self._entries[previous.idx - first :]
            if here[:2] == [previous, last]:
                self._entries = here
                self._heads_dropped = True
                self._commit_index = last.idx
                return
        if not may_lag or first > previous.idx:  # or there is a hole between the two
            raise LogDamaged(
                f"The metadata journal in {self._folder} does not hold the entries {previous.idx} and"
                f" {last.idx} on which the snapshot ends. {ADVICE}"
            )
        self.clear()
        self.add(*previous)
        self.add(*last)
        self._commit_index = last.idx

    # --- what pysyncobj calls ---

    def add(self, command: bytes, idx: int, term: int) -> None:
        assert not self._entries or idx == self._entries[-1].idx + 1, "the log has a hole"
        if not self._entries:
            self._next_write = idx
        self._entries.append(Entry(command, idx, term))

    def clear(self) -> None:
        self._entries.clear()
        self._reset = self._heads_dropped = True
        self._group_last = self.durable_last = 0

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        del self._entries[entryFrom:]
        last = self._entries[-1].idx
        self._next_write = min(self._next_write, last + 1)
        self._group_last = min(self._group_last, last)
        self.durable_last = min(self.durable_last, last)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        del self._entries[:entryTo]
        assert self._entries[0].idx <= self._next_write, "dropped what was not written"
        self._heads_dropped = True

    def __getitem__(self, item: int) -> Entry:
        return self._entries[item]

    def between(self, start: int, count: int) -> list[Entry]:
        """Entries by their place."""
        return self._entries[start : start + count]

    def __len__(self) -> int:
        return len(self._entries)

    def _destroy(self) -> None:
        """The shell closes, after the last sync."""

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Kept in memory: a leader finds it again by committing an entry of its own term."""
        self._commit_index = raftCommitIndex

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return self._commit_index

    def setCurrentTerm(self, term: int, votedForNodeId: int | None) -> None:  # noqa: N802, N803
        self.vote.store(term, votedForNodeId)

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self.vote.term

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        return self.vote.voted_for

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """There is nothing that would be written later."""

    # --- durability ---

    @property
    def dirty(self) -> bool:
        """Whether `make_durable` has something to write, to sync or to drop."""
        return self.undurable or self._heads_dropped

    @property
    def undurable(self) -> bool:
        """Whether something that was added, or that there is less, would not survive an end of power."""
        return self.unwritten or not self._synced

    @property
    def unwritten(self) -> bool:
        """Whether entries, or that there are fewer of them, are only in memory."""
        last = self._entries[-1].idx if self._entries else self._disk_last
        return self._reset or last >= self._next_write or self._disk_last >= self._next_write

    async def make_durable(self) -> None:
        """Write and sync what was added since; then drop segments that nobody needs.

        OSError when it could not be written: nothing of it was, and it may be tried again. JournalLost when it could
        not be synced. What is added while this waits is for the next call.
        """
        await self._sync()  # of a call that was cancelled
        if self.unwritten:
            await self._write()
        if self._heads_dropped:
            self._heads_dropped = False
            try:
                await self._drop_segments()
            except OSError:
                self._heads_dropped = True
                raise

    async def _write(self) -> None:
        await self._make_room(self._next_write)
        # from here ...
        flags = RESET if self._reset else 0
        first_index = self._next_write
        new = self._entries[first_index - self._entries[0].idx :] if self._entries else []
        self._append(write_group(self._salt, first_index, new, flags))
        self._reset = False
        self._disk_last = first_index + len(new) - 1
        self._next_write = self._disk_last + 1
        self._group_last = self._disk_last
        # ... to here no await: entries may be added and cut by what a peer sends
        await self._sync()

    def _append(self, group: bytes) -> None:
        assert self._file is not None and self._synced, "two groups may be torn at once"
        self._file.append([group])
        self._synced = False

    async def _sync(self) -> None:
        if self._synced:
            return
        assert self._file is not None
        await self._sync_file(self._file)
        self._synced = True
        self.durable_last = self._group_last

    async def _sync_file(self, file: File) -> None:
        began = self._env.clock.steady()
        try:
            await self._env.disk.sync([file])
            self.sync_s.observe(self._env.clock.steady() - began)
        except OSError as trouble:
            raise JournalLost(
                f"The metadata journal in {self._folder} could not be synced: {trouble}. What it"
                " holds is read again when the node is started anew."
            ) from trouble

    async def _make_room(self, first_index: int) -> None:
        if self._file is not None and self._file.size() < SEGMENT_BYTES_MAX:
            return
        number = self._segments[-1].number + 1 if self._segments else 1
        path = self._path(number)
        salt = self._env.rng.getrandbits(64)
        file = self._env.disk.open(path, create=True)
        try:
            file.truncate(0)
            file.append([write_segment_header(number, salt)])
            await self._sync_file(file)
            await self._env.disk.run(self._env.disk.sync_folder, self._folder)
        except OSError:
            file.close()  # or each try would keep one: there may be no descriptors left
            raise
        if self._file is not None:
            self._file.close()
        self._file, self._salt = file, salt
        self._segments.append(_Segment(number, path, first_index))

    async def _drop_segments(self) -> None:
        """Those before the last one that begins at or before the first entry that is needed.

        One by one, the oldest first: a crash must not leave a hole among them.
        """
        needed = self._entries[0].idx
        while len(self._segments) > 1 and self._segments[1].first_index <= needed:
            if self._env.disk.exists(self._segments[0].path):
                self._env.disk.remove(self._segments[0].path)
            # else removed before, and the folder could not be opened to be synced
            await self._env.disk.run(self._env.disk.sync_folder, self._folder)
            del self._segments[0]

    async def close(self) -> None:
        """Mark that all before was durable: damage to the last entries will not pass for a torn tail."""
        self.vote.close()
        if self._file is None:
            return
        try:
            await self._sync()
            if not self.unwritten:
                self._append(write_group(self._salt, self._next_write, [], SEAL))
                await self._sync()
        except (OSError, JournalLost) as trouble:
            self._env.log.warn("journal_not_sealed", folder=self._folder, cause=str(trouble))
        self._file.close()
        self._file = None

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}{_SUFFIX}"
