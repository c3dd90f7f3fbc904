"""For whom this node voted in which term.

INVARIANT  what `store` was given is on the disk when it returns, and soon twice, so that it stays there if one of the copies rots (a disk
           without room that takes nothing even to write over may have one until the next vote). Where neither can be read the node
           does not start. Once both files are there a vote takes no room on any other disk.
PREVENTS   a voter that reads an unreadable vote as no vote, and elects a second leader in the same term. And a node with a
           full disk that can't write down the term of a new leader, so follows nobody, and is fenced with all that only it has.
PROVED BY  tests/cluster/quorum/test_vote_file.py::test_an_unreadable_vote_keeps_the_node_from_voting
           tests/cluster/quorum/test_vote_file.py::test_a_vote_is_durable_when_store_returns_and_never_half
           tests/cluster/quorum/test_vote_file.py::test_a_full_disk_takes_votes

Two files have the same. They are written over where they are, one after the other, each synced before the next, and first the one
that is not known to be sound: whenever the power goes one of the two is whole. Of two that are whole the later one counts: nobody
has heard of it yet, and may. (A term only grows, and in a term there is no vote, then one, which says which is the later one.)

A vote holds up everything, for nothing may be said before it is stored; so it waits for one sync. The second copy is made by the task
that writes the journal (`copy`): on a disk that takes half a second to sync, two or four of them one after the other were longer
than the other nodes wait for a sign of life, and nobody was ever elected.

`vote` is what builds before this one read and write, and all that they know of: so a node can go back to them, after a clean stop (one
that was killed while it wrote `vote` has that only in the other file). What is in them is as long whatever it says: `_pack`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from crc32c import crc32c

from ..base.errors import DISK_FULL_ERRNOS, NO_ROOM_ERRNOS, LogDamaged
from ..base.ports import Env, File
from .raft_files import ADVICE, CHECKSUM_SIZE, FORMAT, Rotten, read_packed

_COPY: Final = "-copy"


class Vote(NamedTuple):
    term: int = 0
    voted_for: int | None = None
    fresh: bool = True

    @property
    def age(self) -> tuple[int, bool, bool]:
        """Of two that a node gives one after the other the second has more of it."""
        return self.term, self.voted_for is not None, not self.fresh

    def excludes(self, other: Self) -> bool:
        """Another vote in one term: a node gives one of the two."""
        return self.term == other.term and self.voted_for not in (None, other.voted_for)


def _pack(vote: Vote) -> bytes:
    """As `raft_files.write_packed` does, but always as long: so it is written over without taking room. The array is written in four
    bytes more where nobody was voted for, which takes four less."""
    array = b"\xdd\0\0\0\2" if vote.voted_for is None else b"\x92"
    voted_for = b"\xc0" if vote.voted_for is None else b"\xd2" + vote.voted_for.to_bytes(4, "big")
    fresh = b"\xc3" if vote.fresh else b"\xc2"
    body = b"\x93\xcf" + vote.term.to_bytes(8, "big") + voted_for + fresh
    data = array + bytes((FORMAT,)) + body
    return data + int(crc32c(data)).to_bytes(CHECKSUM_SIZE, "big")


SIZE: Final = len(_pack(Vote()))


class VoteFile:
    """The current term and the vote given in it, durable before any message that shows them leaves.

    `fresh`: this voter began with an empty folder and has not caught up yet (`voters.is_elected`).
    """

    def __init__(self, env: Env, path: str) -> None:
        self._env = env
        self._paths = (path, path + _COPY)
        self._files: list[File | None] = [None, None]
        self._copies: list[File | None] = [None, None]  # the same files, for `copy`
        self._sound = 0  # which of them is known to have it on the disk
        self._owed = False  # the other one has not
        self.to_copy = False  # nor has anybody tried since
        self._writes = 0  # begun, well or not
        self._is_made = self._has_rotten = False
        self._is_settled = True
        self._now = Vote()
        self._load()

    @property
    def term(self) -> int:
        return self._now.term

    @property
    def voted_for(self) -> int | None:
        return self._now.voted_for

    @property
    def fresh(self) -> bool:
        return self._now.fresh

    def _load(self) -> None:
        disk = self._env.disk
        found: list[Vote | None] = [None, None]
        damage: list[Rotten] = []
        for place, path in enumerate(self._paths):
            if not disk.exists(path):
                continue
            try:
                found[place] = _read(path, disk.read_all(path))
            except Rotten as rotten:
                if not self._has_size(place):
                    raise  # by an older build, which knows of one file: the other one may be of long ago
                damage.append(rotten)
        if found[0] is None and not damage and found[1] is not None:
            first, second = self._paths
            raise LogDamaged(f"There is no {first} beside {second}. {ADVICE}")
        whole = [each for each in found if each is not None]
        if damage and not whole:
            raise damage[0]
        for each in damage:
            self._env.log.warn("quorum_vote_copy_damaged", cause=str(each))
        if whole:
            self._now = max(whole, key=lambda each: each.age)
            if found[0] is not None and found[0].excludes(self._now):
                self._now = found[0]  # by an older build, which writes that one alone
            self._has_rotten = bool(damage)
            self._sound = found.index(self._now)
            self._is_settled = False

    def _has_size(self, place: int) -> bool:
        """Else it is not there yet, or an older build wrote it."""
        disk, path = self._env.disk, self._paths[place]
        return disk.exists(path) and disk.size(path) == SIZE

    def settle(self) -> None:
        """Before anybody is told what was read: a killed process may not have synced it, or have seen that sync fail; then the kernel
        takes it for written, and a sync alone would pass it over. OSError: it is not settled, and this may be called again."""
        if self._is_settled:
            return
        # A copy that is not whole is so since the power went, or rotted: the other one is on the disk then, and is not touched before.
        first = 1 - self._sound if self._has_rotten else self._sound
        if self._has_size(first):
            self._write(first, self._now)
        self._sound = first
        self._is_settled = self._owed = True
        self.to_copy = False
        try:
            self._make()
        except OSError as trouble:
            if trouble.errno not in DISK_FULL_ERRNOS:
                raise
        self._pay()

    def _make(self) -> None:
        """Both files, as they are from now on, and open. The only thing that takes room, or descriptors."""
        if self._is_made:
            return
        found = [self._has_size(place) for place in (0, 1)]
        for path, is_there in zip(self._paths, found, strict=True):
            if not is_there:
                self._env.disk.replace(path, _pack(self._now))
        if all(found):  # and one that was killed before may not have synced their names
            self._env.disk.sync_folder(self._paths[0].rpartition("/")[0])
        for place, path in enumerate(self._paths):
            for files in (self._files, self._copies):
                files[place] = files[place] or self._env.disk.open(path)
        self._is_made = True

    def check(self, last_term: int | None) -> None:
        """A term is stored before its first entry: LogDamaged when vote and journal disagree about that."""
        path = self._paths[0]
        if last_term is None and self.term > 0:
            raise LogDamaged(f"There is no metadata journal beside {path}. {ADVICE}")
        if last_term is not None and self.term < last_term:
            raise LogDamaged(
                f"The metadata journal has entries of term {last_term}, and {path} knows of"
                f" term {self.term} at most: votes were lost. {ADVICE}"
            )

    def store(self, term: int, voted_for: int | None, *, fresh: bool | None = None) -> None:
        """OSError: it is as before."""
        assert term >= self.term, "a term went backwards"
        assert term > self.term or self.voted_for in (None, voted_for), "a second vote in one term"
        self.settle()
        vote = Vote(term, voted_for, self.fresh if fresh is None else fresh)
        if vote != self._now:
            self._make()
            # Also where it fails: who knows what is in that file then.
            self._owed = self.to_copy = True
            self._write(1 - self._sound, vote)
            self._sound, self._now = 1 - self._sound, vote

    async def copy(self) -> bool:
        """The second copy, while the loop goes on. A vote that is stored meanwhile takes its place, and has its own to come.

        The file is opened once more: what the kernel has to say of a sync that failed it says to each descriptor once.
        False: it could not be made for want of room, or of descriptors, and is to be tried again in a while.
        """
        self.to_copy = False
        if not self._owed:
            return True
        place, vote, writes = 1 - self._sound, self._now, self._writes
        try:
            file = self._copies[place] or self._env.disk.open(self._paths[place])
            self._copies[place] = file
            file.write_at(0, _pack(vote))
            await self._env.disk.sync([file])
        except OSError as trouble:
            self._close(self._copies)
            if trouble.errno not in NO_ROOM_ERRNOS:
                raise
            return False
        self._owed = writes != self._writes  # over the copy
        return self.to_copy or not self._owed

    def _pay(self) -> None:
        """The second copy. Where even writing over takes room, and there is none, the first one has to do until the next vote."""
        if not (self._owed and self._is_made):
            return
        try:
            self._write(1 - self._sound, self._now)
        except OSError as trouble:
            if trouble.errno not in DISK_FULL_ERRNOS:
                raise
        else:
            self._owed = False

    def _write(self, place: int, vote: Vote) -> None:
        """To a file that stays open: where there are no descriptors left votes are stored all the same."""
        self._writes += 1
        file = self._files[place] or self._env.disk.open(self._paths[place])
        self._files[place] = file
        try:
            file.write_at(0, _pack(vote))
            file.sync()
        except OSError:
            file.close()  # after a sync that failed it promises nothing any more
            self._files[place] = None
            raise

    def close(self) -> None:
        """Twice, if it can be: a build that knows of one file may be next."""
        try:
            self._pay()
        except OSError as trouble:  # the first one is on the disk: the node's stop goes on
            self._env.log.warn("quorum_vote_copy_owed", path=self._paths[0], cause=str(trouble))
        self._close(self._files)
        self._close(self._copies)

    def _close(self, files: list[File | None]) -> None:
        for place, file in enumerate(files):
            if file is not None:
                file.close()
            files[place] = None


def _read(path: str, data: bytes) -> Vote:
    body: Sequence[object] = read_packed(path, data)
    term, voted_for, *rest = body
    assert isinstance(term, int) and (voted_for is None or isinstance(voted_for, int))
    return Vote(term, voted_for, fresh=rest == [True])  # the first builds did not write it
