"""Power that is lost: of what a node had written, only what it had synced is sure to be there.

INVARIANT  all that was synced survives; of the rest each file keeps a prefix of its writes, the next of them perhaps
           torn, and names a prefix of their changes.
PREVENTS   a proof of durability on a page cache that never lost anything.
PROVED BY  tests/chaos/test_faults_power.py::test_what_was_synced_survives_and_what_was_not_may_be_gone

world.c has noted each change and what it replaced, since `World.track`. After the process was killed `lose_power` undoes,
newest first, those that no sync came after. A file's content is durable by a sync of the file, its name by one of its
folder (POSIX). Two things are kinder than a disk may be: what was written before the tracking began counts as synced,
and removed folders stay removed.
"""

import os
import random
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from .world import World

HEAD: Final = struct.Struct("<II7QII")
MAGIC: Final = 0x46454E43


class Op(IntEnum):
    """As in world.c."""

    WRITE = 1
    TRUNCATE = 2
    SYNC = 3
    CREATE = 4
    RENAME = 5
    UNLINK = 6
    MKDIR = 7
    RMDIR = 8


BYTES: Final = (Op.WRITE, Op.TRUNCATE)


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the journal; `at` is where it stands in it."""

    at: int
    op: Op
    inode: int
    folder: int
    other_folder: int
    position: int
    length: int
    old_size: int
    path: str
    other_path: str
    old: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """What a power cut took."""

    writes: int
    bytes: int
    names: int
    torn: int

    def __str__(self) -> str:
        return (
            f"{self.writes} writes with {self.bytes} bytes and {self.names} changes of names were lost, "
            f"{self.torn} writes torn"
        )


def read_journal(path: Path) -> list[Change]:
    """A last entry that is not whole was not done."""
    data = path.read_bytes() if path.exists() else b""
    found: list[Change] = []
    at = 0
    while at + HEAD.size <= len(data):
        magic, op, inode, folder, other, position, length, old_size, old, size, more = (
            HEAD.unpack_from(data, at)
        )
        assert magic == MAGIC, f"{path} has no entry at {at}"
        start = at + HEAD.size
        end = start + size + more + old
        if end > len(data):
            break
        texts = data[start : start + size], data[start + size : start + size + more]
        found.append(
            Change(
                at,
                Op(op),
                inode,
                folder,
                other,
                position,
                length,
                old_size,
                os.fsdecode(texts[0]),
                os.fsdecode(texts[1]),
                data[end - old : end],
            )
        )
        at = end
    return found


def lose_power(world: World, rng: random.Random, *, all_of_it: bool) -> Lost:
    """Of a node that was killed. With `all_of_it` nothing is kept that was not synced."""
    changes = read_journal(world.journal)
    synced: dict[int, int] = {}  # inode -> all before this place of the journal is durable
    for change in changes:
        if change.op is Op.SYNC:
            synced[change.inode] = max(synced.get(change.inode, 0), change.position)
    data = [c for c in changes if c.op in BYTES and c.at >= synced.get(c.inode, 0)]
    names = [c for c in changes if c.op not in (*BYTES, Op.SYNC) and not _is_named(c, synced)]
    lost = _lose_bytes(world, data, rng, all_of_it=all_of_it)
    kept = 0 if all_of_it else rng.randint(0, len(names))
    for change in reversed(names[kept:]):
        _undo_name(change)
    world.forget()
    world.new_boot_id()
    return Lost(lost[0], lost[1], len(names) - kept, lost[2])


def _is_named(change: Change, synced: dict[int, int]) -> bool:
    folders = (change.folder, change.other_folder)
    return any(change.at < synced.get(folder, 0) for folder in folders if folder)


def _lose_bytes(
    world: World, changes: Sequence[Change], rng: random.Random, *, all_of_it: bool
) -> tuple[int, int, int]:
    """How many writes, how many bytes of them, how many torn."""
    paths = _paths(world.around, world.graves)
    of_file: dict[int, list[Change]] = {}
    for change in changes:
        of_file.setdefault(change.inode, []).append(change)
    writes = lost = torn = 0
    for inode, mine in of_file.items():
        kept = 0 if all_of_it else rng.randint(0, len(mine))
        cuts = not all_of_it and kept < len(mine) and rng.random() < 0.5
        path = paths.get(inode)
        if path is None:
            continue
        with path.open("r+b") as file:
            for change in reversed(mine[kept + cuts :]):
                lost += _undo_bytes(file.fileno(), change, 0)
                writes += 1
            if cuts:
                torn += 1
                lost += _undo_bytes(file.fileno(), mine[kept], rng.randint(0, mine[kept].length))
    return writes, lost, torn


def _undo_bytes(fd: int, change: Change, keep: int) -> int:
    """All but the first `keep` bytes of a write. How many bytes are gone."""
    size = os.fstat(fd).st_size
    if change.op is Op.TRUNCATE:
        os.pwrite(fd, change.old, change.position)
        return 0
    os.pwrite(fd, change.old[keep:], change.position + keep)
    os.ftruncate(fd, min(size, max(change.old_size, change.position + keep)))
    return max(0, change.length - keep)


def _paths(*folders: Path) -> dict[int, Path]:
    """Every file by its inode."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                found[path.stat().st_ino] = path
    return found


def _undo_name(change: Change) -> None:
    path, new = Path(change.path), Path(change.other_path)
    if change.op is Op.RMDIR:
        return
    if change.op is Op.RENAME:
        if _inode(new) == change.inode and path.parent.is_dir() and not path.exists():
            new.rename(path)
        _revive(change, new)
    elif change.op is Op.UNLINK:
        _revive(change, path)
    elif _inode(path) == change.inode:
        if change.op is Op.MKDIR:
            shutil.rmtree(path)
        else:
            path.unlink()


def _revive(change: Change, path: Path) -> None:
    """Under its old name, what had it before."""
    grave = Path(os.fsdecode(change.old)) if change.old else None
    if grave is not None and grave.exists() and path.parent.is_dir() and not path.exists():
        os.link(grave, path)


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return 0
