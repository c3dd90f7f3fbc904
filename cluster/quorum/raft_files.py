"""The two small files beside the journal: for whom this node voted in which term, and the last snapshot.

INVARIANT  a file is read whole and sound, or the node does not start.
PREVENTS   a voter that reads an unreadable vote as no vote, and elects a second leader in the same term.
PROVED BY  tests/cluster/quorum/test_raft_files.py::test_an_unreadable_vote_keeps_the_node_from_voting
"""

from typing import Any, Final, NamedTuple

import msgpack
from crc32c import crc32c

from ..base.errors import LogDamaged
from ..base.ports import Env
from .segment_format import Entry
from .voters import Voters, pack_voters, unpack_voters

_FORMAT: Final = 1
_CHECKSUM_SIZE: Final = 4


def _write(body: list[Any]) -> bytes:
    data = bytes(msgpack.packb([_FORMAT, body], use_bin_type=True))
    return data + int(crc32c(data)).to_bytes(_CHECKSUM_SIZE, "big")


def _read(path: str, data: bytes) -> Any:
    content, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    if len(checksum) < _CHECKSUM_SIZE or crc32c(content) != int.from_bytes(checksum, "big"):
        raise LogDamaged(f"{path} is damaged: its checksum does not match. {_ADVICE}")
    form, body = msgpack.unpackb(content, raw=False, strict_map_key=False)
    if form != _FORMAT:
        raise LogDamaged(f"{path} has format {form}; this version of Fencepost reads {_FORMAT}.")
    return body


_ADVICE: Final = (
    "It is written whole or not at all, so the disk has lost it. Restore the folder from a backup, or,"
    " where other voters are well, empty it and let this node join anew."
)


class VoteFile:
    """The current term and the vote given in it, durable before any message that shows them leaves.

    `fresh`: this voter began with an empty folder and has not caught up yet (`voters.is_elected`).
    """

    def __init__(self, env: Env, path: str) -> None:
        self._env = env
        self._path = path
        self.term = 0
        self.voted_for: int | None = None
        self.fresh = True
        if env.disk.exists(path):
            self.term, self.voted_for, *rest = _read(path, env.disk.read_all(path))
            self.fresh = rest == [True]  # the first versions did not write it

    def check(self, last_term: int | None) -> None:
        """A term is stored before its first entry: LogDamaged when vote and journal disagree about that."""
        if last_term is None and self.term > 0:
            raise LogDamaged(f"There is no metadata journal beside {self._path}. {_ADVICE}")
        if last_term is not None and self.term < last_term:
            raise LogDamaged(
                f"The metadata journal has entries of term {last_term}, and {self._path} knows of"
                f" term {self.term} at most: votes were lost. {_ADVICE}"
            )

    def store(self, term: int, voted_for: int | None, *, fresh: bool | None = None) -> None:
        assert term >= self.term, "a term went backwards"
        assert term > self.term or self.voted_for in (None, voted_for), "a second vote in one term"
        fresh = self.fresh if fresh is None else fresh
        if (term, voted_for, fresh) == (self.term, self.voted_for, self.fresh):
            return
        self._env.disk.replace(self._path, _write([term, voted_for, fresh]))
        self.term, self.voted_for, self.fresh = term, voted_for, fresh


class Snapshot(NamedTuple):
    """A state of the machine, the last two entries that are in it, and who voted then."""

    previous: Entry
    last: Entry
    machine: bytes
    voters: Voters


def write_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of the file, which also travel to who is far behind."""
    packed = pack_voters(snapshot.voters)
    return _write([list(snapshot.previous), list(snapshot.last), snapshot.machine, packed])


def read_snapshot(path: str, data: bytes) -> Snapshot:
    """LogDamaged when it is not whole and sound."""
    previous, last, machine, *rest = _read(path, data)
    voters = unpack_voters(rest[0]) if rest else {}  # the first versions had one voter
    return Snapshot(Entry(*previous), Entry(*last), machine, voters)


class SnapshotFile:
    """The newest snapshot; the one before is replaced by it in one step."""

    def __init__(self, env: Env, path: str) -> None:
        self._env = env
        self._path = path

    def load(self) -> Snapshot | None:
        if not self._env.disk.exists(self._path):
            return None
        return read_snapshot(self._path, self._env.disk.read_all(self._path))

    async def store(self, snapshot: Snapshot) -> None:
        """Durable when this returns. OSError leaves the one before."""
        await self._env.disk.run(self._env.disk.replace, self._path, write_snapshot(snapshot))
