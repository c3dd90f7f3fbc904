"""The lives of its peers' folders that a node has seen, kept in its own folder; its own, which it begins anew by and by.

INVARIANT  what can't be read, or was damaged, is as good as not there: nobody is kept out by it.
PREVENTS   a cluster that was down as a whole, and has forgotten with its processes which life each node was in.
PROVED BY  tests/node/test_folder_of_before.py::test_what_was_acknowledged_outlives_a_voters_folder_of_before

Nobody waits for the file: a slow disk, or a full one, must not keep nodes apart. It is written beside the greetings, and a
node that dies within that moment, and whose peer dies before the two meet again, has not seen that life.

A node may run for a year, and be put back to where it was last night: it begins another life every RENEW_S, and tells its
peers. So a copy passes for the folder only if it was made in the life that is the last one that anybody has seen.
"""

import asyncio
import zlib
from typing import Final
from uuid import UUID

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.image import NO_DISK
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.cluster.wire.peer_lives import Folder, PeerLives, Seen

from .node_folder import NodeFolder

FILE: Final = "peer.lives"
RENEW_S: Final = 600.0
RETRY_S: Final = 10.0  # after a disk that was full
CHECK: Final = "check="


class KeptLives:
    def __init__(self, env: Env, folder: NodeFolder) -> None:
        self._env = env
        self._folder = folder
        self._path = f"{folder.path}/{FILE}"
        self.lives = PeerLives(lambda: folder.told_life)
        self._news = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None

    def start(self, door: PeerDoor) -> None:
        """Before any peer is heard."""
        self._load()
        self.lives.on_news = self._news.set
        if self._folder.why_no_life:
            self._env.log.warn("life_not_written", cause=self._folder.why_no_life)
        self._env.tasks.spawn(self._keep(), name="lives of peers")
        self._renewal = self._env.tasks.spawn(self._renew(door), name="another life")

    async def close(self) -> None:
        """When it returns nothing more is written of this node's life: the next process may begin with the folder, and what
        it told would be written over."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def _load(self) -> None:
        disk = self._env.disk
        try:
            if disk.exists(self._path):
                self.lives.seen = read_lives(disk.read_all(self._path))
        except (OSError, ValueError) as trouble:
            self._env.log.warn("peer_lives_unreadable", path=self._path, cause=str(trouble))

    async def _renew(self, door: PeerDoor) -> None:
        env, folder = self._env, self._folder
        while True:
            await env.clock.sleep(RENEW_S)
            if folder.disk_id == NO_DISK or folder.cluster_id is None:
                continue  # it belongs to nobody yet, and whoever joins writes that file
            self._writing = env.tasks.spawn(self._begin_life(door), name="a life's first line")
            await asyncio.wait([self._writing])

    async def _begin_life(self, door: PeerDoor) -> None:
        life = self._folder.next_life()
        try:
            await self._env.disk.run(self._folder.write_life, life)
        except OSError as trouble:
            self._env.log.warn("life_not_written", cause=str(trouble))
            return
        self._folder.begin_life(life)
        door.tell_life()

    async def _keep(self) -> None:
        env = self._env
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await env.disk.run(env.disk.replace, self._path, write_lives(self.lives.seen))
            except OSError as trouble:
                env.log.warn("peer_lives_not_kept", path=self._path, cause=str(trouble))
                await env.clock.sleep(RETRY_S)
                self._news.set()


def write_lives(seen: dict[Folder, Seen]) -> bytes:
    """A line a folder, the oldest news first."""
    lines = [
        f"{node_id} {UUID(bytes=disk)} {life} {name:x}\n"
        for (node_id, disk), (life, name) in seen.items()
    ]
    text = "".join(lines)
    return f"{text}{CHECK}{zlib.crc32(text.encode()):08x}\n".encode()


def read_lives(data: bytes) -> dict[Folder, Seen]:
    """ValueError for what this was not written as."""
    text, separator, check = data.decode().rpartition(CHECK)
    if not separator or check.strip() != f"{zlib.crc32(text.encode()):08x}":
        raise ValueError("its last line does not fit the others")
    seen = {}
    for line in text.splitlines():
        node_id, disk, life, name = line.split()
        seen[BrokerId(int(node_id)), UUID(disk).bytes] = Seen(int(life), int(name, 16))
    return seen
