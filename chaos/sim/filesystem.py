"""A machine's file system: what programs see, and what would be left if the power went now.

INVARIANT  what a crash leaves contains everything that was synced, and nothing that was never written
           (but for zeros where a file grew before its data came).
PREVENTS   a simulated disk that is kinder than a real one, or crueller than any.
PROVED BY  tests/sim/test_filesystem.py::test_what_was_synced_survives_any_crash

A file's content is durable after a sync of the file, its name only after a sync of the folder (POSIX; ext4
is kinder). Of what was not synced a crash keeps a random part: a prefix of the writes, then, when torn,
some pages of later ones, cut at sectors or at any byte. Names survive as a prefix of all changes, as with a
journal, or as a prefix for each folder, as without.
"""

import errno
import os
import random
from collections.abc import Iterator
from typing import Final, NamedTuple

PAGE: Final = 4096
SECTOR: Final = 512
# The kernel writes back what is old on its own; it also bounds what a simulated file costs.
UNSYNCED_BYTES_MAX: Final = 32 * 1024 * 1024


class Write(NamedTuple):
    """One unsynced change: `data` at `position`, or, when `data` is None, a cut (or growth) to it."""

    position: int
    data: bytes | None
    lost: bool = False  # a sync failed on it: no later sync will write it


class FileNode:
    """One file, whatever it is called."""

    __slots__ = (
        "cold",
        "content",
        "durable",
        "first",
        "links",
        "opens",
        "unsynced",
        "unsynced_bytes",
    )

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[Write] = []
        self.unsynced_bytes = 0
        self.first = 0  # the number of unsynced[0] among all changes of this file
        self.links = 0
        self.opens = 0
        self.cold = False

    def change(self, write: Write) -> None:
        apply(self.content, write)
        self.unsynced.append(write)
        self.unsynced_bytes += len(write.data or b"")
        while self.unsynced_bytes > UNSYNCED_BYTES_MAX:
            self.make_durable(self.first + max(1, len(self.unsynced) // 2))

    def mark(self) -> int:
        """Everything up to now, for a sync that begins now and ends later."""
        return self.first + len(self.unsynced)

    def make_durable(self, mark: int) -> None:
        done = self.unsynced[: max(0, mark - self.first)]
        for write in done:
            if not write.lost:
                apply(self.durable, write)
            self.unsynced_bytes -= len(write.data or b"")
        del self.unsynced[: len(done)]
        self.first += len(done)

    def lose(self, mark: int) -> None:
        """A sync failed: the pages count as clean from now on, though they never reached the disk."""
        for index in range(min(len(self.unsynced), max(0, mark - self.first))):
            self.unsynced[index] = self.unsynced[index]._replace(lost=True)

    def crash(self, rng: random.Random, *, torn: bool) -> None:
        self.content = survivor(self.durable, self.unsynced, rng, torn=torn)
        self.durable = bytearray(self.content)
        self.first += len(self.unsynced)
        self.unsynced.clear()
        self.unsynced_bytes = 0
        self.opens = 0
        self.cold = True

    def flip(self, position: int, bit: int) -> None:
        for copy in (self.content, self.durable):
            if position < len(copy):
                copy[position] ^= 1 << bit


def apply(content: bytearray, write: Write) -> None:
    position, data, _ = write
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


def survivor(
    durable: bytearray, unsynced: list[Write], rng: random.Random, *, torn: bool
) -> bytearray:
    """One of the contents that a power cut may leave."""
    content = bytearray(durable)
    if not unsynced:
        return content
    # All and nothing are the likeliest in life, and the edges where code breaks.
    kept = rng.choice((0, len(unsynced), rng.randint(0, len(unsynced))))
    for write in unsynced[:kept]:
        if not write.lost:
            apply(content, write)
    if not torn:
        return content
    odds = rng.random()
    for write in unsynced[kept:]:
        if write.data is None:
            break  # sizes are the journal's business: in order
        for position, page in _pages(write.position, write.data):
            if rng.random() < odds:
                apply(content, _torn(position, page, rng))
    return content


def _pages(position: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(data):
        stop = min(len(data), start + PAGE - (position + start) % PAGE)
        yield position + start, data[start:stop]
        start = stop


def _torn(position: int, page: bytes, rng: random.Random) -> Write:
    """The page, its first sectors, its last sectors, or its first bytes."""
    how = rng.random()
    sectors = [cut for cut in range(1, len(page)) if (position + cut) % SECTOR == 0]
    if how < 0.35:
        return Write(position, page)
    if how < 0.55 or not sectors:
        return Write(position, page[: rng.randint(0, len(page))])
    cut = rng.choice(sectors)
    if how < 0.8:
        return Write(position, page[:cut])
    return Write(position + cut, page[cut:])


class Folder:
    """Names as programs see them, and as they would be found after a power cut."""

    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[Rename] = []


Node = FileNode | Folder


class Rename:
    """A change of names: from somewhere (None: it is new) to somewhere (None: it is gone)."""

    __slots__ = ("done", "node", "source", "target")

    def __init__(
        self,
        node: Node,
        source: tuple[Folder, str] | None,
        target: tuple[Folder, str] | None,
    ) -> None:
        self.node = node
        self.source = source
        self.target = target
        self.done = False

    def make_durable(self) -> None:
        if self.done:
            return
        self.done = True
        if self.source is not None and self.source[0].durable.get(self.source[1]) is self.node:
            del self.source[0].durable[self.source[1]]
        if self.target is not None:
            self.target[0].durable[self.target[1]] = self.node


class FileSystem:
    """The tree of one machine. Survives its nodes; what it goes through is in `crash`."""

    def __init__(self) -> None:
        self.root = Folder()
        self.capacity: int | None = None
        self.used = 0
        self._journal: list[Rename] = []  # all pending changes of names, in order

    # Looking.

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for part in _parts(path):
            if not isinstance(node, Folder):
                return None
            node = node.names.get(part)
        return node

    def file(self, path: str) -> FileNode:
        node = self.find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, Folder):
            raise _error(errno.EISDIR, path)
        return node

    def folder(self, path: str) -> Folder:
        node = self.find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, Folder):
            raise _error(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[Folder, str]:
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        return self.folder("/" + "/".join(parts[:-1])), parts[-1]

    def files(self) -> Iterator[tuple[str, FileNode]]:
        """Every file with its path, in order of their paths."""
        todo: list[tuple[str, Node]] = [("", self.root)]
        while todo:
            path, node = todo.pop()
            if isinstance(node, FileNode):
                yield path, node
            else:
                todo.extend(
                    (f"{path}/{name}", node.names[name])
                    for name in sorted(node.names, reverse=True)
                )

    # Changing.

    def create(self, path: str) -> FileNode:
        folder, name = self.parent(path)
        node = FileNode()
        node.links = 1
        self._rename(Rename(node, None, (folder, name)))
        return node

    def make_folder(self, path: str) -> Folder:
        parent, name = self.parent(path)
        if name in parent.names:
            return self.folder(path)
        made = Folder()
        self._rename(Rename(made, None, (parent, name)))
        return made

    def remove(self, path: str) -> None:
        node = self.file(path)
        self._rename(Rename(node, self.parent(path), None))
        self._unlink(node)

    def remove_tree(self, path: str) -> None:
        folder = self.folder(path)
        for name, node in sorted(folder.names.items()):
            if isinstance(node, Folder):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self._rename(Rename(folder, self.parent(path), None))

    def rename(self, source: str, target: str) -> None:
        node = self.find(source)
        if node is None:
            raise _error(errno.ENOENT, source)
        place = self.parent(target)
        old = place[0].names.get(place[1])
        if old is node:
            return
        if isinstance(old, Folder) and (old.names or isinstance(node, FileNode)):
            raise _error(errno.ENOTEMPTY if old.names else errno.EISDIR, target)
        self._rename(Rename(node, self.parent(source), place))
        if isinstance(old, FileNode):
            self._unlink(old)

    def _rename(self, change: Rename) -> None:
        if change.source is not None:
            del change.source[0].names[change.source[1]]
            change.source[0].pending.append(change)
        if change.target is not None:
            change.target[0].names[change.target[1]] = change.node
            if change.source is None or change.source[0] is not change.target[0]:
                change.target[0].pending.append(change)
        self._journal.append(change)

    def _unlink(self, node: FileNode) -> None:
        node.links -= 1
        self.forget(node)

    def forget(self, node: FileNode) -> None:
        """Give its space back once it has no name and nobody has it open."""
        if node.links == 0 and node.opens == 0:
            self.used -= len(node.content)

    def sync_folder(self, path: str) -> None:
        folder = self.folder(path)
        for change in folder.pending:
            self._commit(change)
        folder.pending.clear()
        self._journal = [change for change in self._journal if not change.done]

    def _commit(self, change: Rename) -> None:
        """Make a change durable, after those that brought its file to where the change found it."""
        for earlier in self._journal:
            if earlier is change:
                break
            if earlier.node is change.node:
                earlier.make_durable()
        change.make_durable()

    # The power goes.

    def crash(self, rng: random.Random, *, torn: bool) -> None:
        """Lose what was not synced, or some of it."""
        journal = self._journal
        if rng.random() < 0.5:
            for change in journal[: rng.choice((0, len(journal), rng.randint(0, len(journal))))]:
                change.make_durable()
        else:
            for folder in _folders(journal):
                pending = [change for change in folder.pending if not change.done]
                for change in pending[: rng.randint(0, len(pending))]:
                    self._commit(change)
        self._journal = []
        self.used = 0
        self._settle(self.root, rng, torn=torn)

    def _settle(self, folder: Folder, rng: random.Random, *, torn: bool) -> None:
        folder.names = dict(folder.durable)
        folder.pending.clear()
        for _, node in sorted(folder.names.items()):
            if isinstance(node, Folder):
                self._settle(node, rng, torn=torn)
            else:
                node.crash(rng, torn=torn)
                node.links = 1
                self.used += len(node.content)

    def close_all(self) -> None:
        """The process ended: the kernel closes its files."""
        self.used = 0
        for _, node in self.files():
            node.opens = 0
            self.used += len(node.content)


def _folders(journal: list[Rename]) -> list[Folder]:
    """The folders that a journal touches, in order."""
    found: dict[int, Folder] = {}
    for change in journal:
        for place in (change.source, change.target):
            if place is not None:
                found.setdefault(id(place[0]), place[0])
    return list(found.values())


def _parts(path: str) -> list[str]:
    assert path.startswith("/"), f"paths are absolute: {path!r}"
    return [part for part in path.split("/") if part]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
