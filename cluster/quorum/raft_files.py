"""The last snapshot, in a file beside the journal.

INVARIANT  a file is read whole and sound, or the node does not start.
PREVENTS   a node that begins with half of a state, and tells it to others.
PROVED BY  tests/cluster/quorum/test_raft_files.py::test_a_damaged_snapshot_is_refused_and_none_is_none
"""

from typing import Any, Final, NamedTuple

import msgpack
from crc32c import crc32c

from ..base.errors import LogDamaged
from ..base.ports import Env
from .segment_format import Entry
from .voters import Voters, pack_voters, unpack_voters

FORMAT: Final = 1
CHECKSUM_SIZE: Final = 4


class Rotten(LogDamaged):
    """It is not what was written: the disk has lost it."""


def write_packed(body: list[Any]) -> bytes:
    data = bytes(msgpack.packb([FORMAT, body], use_bin_type=True))
    return data + int(crc32c(data)).to_bytes(CHECKSUM_SIZE, "big")


def read_packed(path: str, data: bytes) -> Any:
    content, checksum = data[:-CHECKSUM_SIZE], data[-CHECKSUM_SIZE:]
    if len(checksum) < CHECKSUM_SIZE or crc32c(content) != int.from_bytes(checksum, "big"):
        raise Rotten(f"{path} is damaged: its checksum does not match. {ADVICE}")
    form, body = msgpack.unpackb(content, raw=False, strict_map_key=False)
    if form != FORMAT:
        raise LogDamaged(f"{path} has format {form}; this version of Fencepost reads {FORMAT}.")
    return body


ADVICE: Final = (
    "What was written is not there whole, so the disk has lost it. Where other voters are well, empty the folder and let this node"
    " join anew: a backup has forgotten what it acknowledged since. Only who votes alone is restored from a backup."
)


class Snapshot(NamedTuple):
    """A state of the machine, the last two entries that are in it, and who voted then."""

    previous: Entry
    last: Entry
    machine: bytes
    voters: Voters


def write_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of the file, which also travel to who is far behind."""
    packed = pack_voters(snapshot.voters)
    return write_packed([list(snapshot.previous), list(snapshot.last), snapshot.machine, packed])


def read_snapshot(path: str, data: bytes) -> Snapshot:
    """LogDamaged when it is not whole and sound."""
    previous, last, machine, *rest = read_packed(path, data)
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
