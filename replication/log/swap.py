"""Putting cleaned segments in the place of what they were made from, whatever a crash does in between.

INVARIANT  at every moment the folder says which of the two is the log: the old files while a `.cleaned` is there, the
           new ones from the moment the `.log.swap` is.
PREVENTS   a crash that leaves both, or neither, or the one's data with the other's aborted transactions.
PROVED BY  tests/replication/log/test_compaction_crash.py::test_a_crash_at_any_step_leaves_the_old_or_the_new

The steps are Kafka's (LocalLog.replaceSegments, LogLoader), with the folder synced between them: a power cut may
undo any rename that was not.

1. The `.cleaned` files are written and synced, then the folder.      crash: they are removed
2. The indexes become `.swap`, then the folder.                        crash: the same
3. The log becomes `.swap`, then the folder.                           crash: from here on the swap is finished
4. The old files become `.deleted`, then the folder.
5. The `.swap` files take their names (durable with the next group commit; until then a start does it again).
"""

from collections.abc import Sequence

from fencepost.cluster.base.ports import Disk

from .names import CLEANED, DELETED, INDEX, LOG, SEGMENT_FILES, SWAP, TIMEINDEX, TXNINDEX, split
from .names import file_name as name_of
from .segment_files import remove_if_there, rename_all, rename_if_there, sync_folder
from .walk import LONG_CHUNK, walk


def make_way(disk: Disk, folder: str, base_offset: int) -> None:
    """Before step 1, off the loop. What an earlier swap left to be made durable must be so before a `.cleaned` is there again; and
    what an end of power brought back of a round that was given up would be taken for a part of this one."""
    remove_cleaned(disk, folder, base_offset)
    sync_folder(disk, folder)


def to_swap(disk: Disk, folder: str, base_offset: int) -> None:
    """Step 1's end and step 2, off the loop: a cleaning can still be given up."""
    path = f"{folder}/{name_of(base_offset, '')}"
    sync_folder(disk, folder)
    for suffix in (INDEX, TIMEINDEX, TXNINDEX):
        rename_if_there(disk, path + suffix + CLEANED, path + suffix + SWAP)
    sync_folder(disk, folder)


def commit_swap(disk: Disk, folder: str, base_offset: int) -> None:
    """Step 3, on the loop, with 4 and 5 right behind it: a truncation must not come in between."""
    path = f"{folder}/{name_of(base_offset, LOG)}"
    disk.rename(path + CLEANED, path + SWAP)
    sync_folder(disk, folder)


def remove_cleaned(disk: Disk, folder: str, base_offset: int) -> None:
    """The cleaning was given up. A `.log.swap` goes first: a start would finish the swap with what is left beside it."""
    remove_if_there(disk, f"{folder}/{name_of(base_offset, LOG)}{SWAP}")
    for suffix in SEGMENT_FILES:
        for extra in (CLEANED, SWAP):
            remove_if_there(disk, f"{folder}/{name_of(base_offset, suffix)}{extra}")


def tidy_folder(disk: Disk, folder: str) -> list[str]:
    """After a crash: finish or undo what was going on. The names that are left."""
    names = disk.list(folder)
    swaps = [name for name in names if _base_if(name, SWAP) is not None]
    given_up = {_base_if(name, CLEANED) for name in names}
    done = [base for name in swaps if (base := _base_if(name, LOG + SWAP)) is not None]
    done = [base for base in done if base not in given_up]
    for name in names:
        is_void = name in swaps and _base_if(name, SWAP) not in done
        if is_void or name.endswith((CLEANED, DELETED, ".tmp")):
            disk.remove(f"{folder}/{name}")
    for base in done:
        _remove_covered(disk, folder, base, names)
        disk.sync_folder(folder)
        rename_all(disk, folder, base, SWAP, "")
        disk.sync_folder(folder)
    return disk.list(folder) if names else names


def _base_if(name: str, extra: str) -> int | None:
    parts = split(name) if name.endswith(extra) else None
    return None if parts is None else parts[0]


def _remove_covered(disk: Disk, folder: str, base: int, names: Sequence[str]) -> None:
    """The files that a finished swap was made from, that of its own name too.

    But not an index of aborted transactions that has no `.swap` beside it: it is the new one, which has its name already. (A new
    segment has one if the old one had, though nothing is in it: an entry without its marker would hide what was committed later.)
    """
    file = disk.open(f"{folder}/{name_of(base, LOG)}{SWAP}")
    end = base
    try:
        for step in walk(file, 0, file.size(), base, block=True, chunk=LONG_CHUNK):
            end = step.next_offset
    finally:
        file.close()
    of_aborted = name_of(base, TXNINDEX)
    for other in names:
        if other == of_aborted and of_aborted + SWAP not in names:
            continue
        found = split(other)
        if found and found[1] in SEGMENT_FILES and (base <= found[0] < end or base == found[0]):
            remove_if_there(disk, f"{folder}/{other}")
