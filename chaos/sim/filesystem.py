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
from functools import lru_cache
from typing import Final

from .file_node import FileNode

PATHS_KEPT: Final = (
    4096  # whose parts are remembered: the same few hundred are asked for all the time
)


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


@lru_cache(PATHS_KEPT)
def _parts(path: str) -> tuple[str, ...]:
    assert path.startswith("/"), f"paths are absolute: {path!r}"
    return tuple(part for part in path.split("/") if part)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
