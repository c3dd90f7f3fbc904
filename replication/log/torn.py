"""Where a log ends that a crash has torn, and what is done with what lay behind.

INVARIANT  nothing is cut that may have been acknowledged, but where a person is told and the bytes are kept, or the log is
           doubted (`doubts.py`) before it is cut: others lead that have it, and this one copies it.
PREVENTS   one bad sector taking all that follows it with it, in silence.
PROVED BY  tests/replication/log/test_recovery.py::test_whole_batches_behind_a_torn_one_are_kept_aside
           tests/replication/log/test_doubts.py::test_an_end_that_no_crash_explains_is_doubted_before_it_is_cut
"""

from typing import TYPE_CHECKING, Final

from fencepost.cluster.wire.batch import CRC_FROM, HEADER_SIZE, LENGTH_PREFIX, compute_crc

from .checkpoint import Kind
from .doubts import Doubt
from .names import LOG, TORN, file_name
from .scan import LOOK_BEHIND, Bad, good_batch_behind, scan
from .segment import Segment
from .segment_files import remove_all
from .walk import LONG_CHUNK, damaged

if TYPE_CHECKING:
    from .log import Log
    from .recovery import Known

KEPT_MAX: Final = 4  # torn pieces that a partition keeps of earlier cuts, the newest
SECTOR: Final = 512  # what a disk writes as a whole
_LENGTH_AT, _CRC_AT = 8, 17  # in a batch


def cut_off(log: "Log", at: int, bad: Bad, known: "Known") -> None:
    """End the log before the bad batch, if that may be; else LogDamaged, and nothing was touched."""
    segment, later = log.segments[at], log.segments[at + 1 :]
    if known.recovery_point is not None and bad.offset < known.recovery_point:
        why = f"{bad.why} (synced up to offset {known.recovery_point}: it was whole once)"
        raise damaged(segment.path, bad.position, bad.offset, why)
    good_at = good_batch_behind(segment.file(), bad.position, segment.size, bad.offset)
    good_later = [other for other in later if _starts_good(other)]
    has_good = good_at is not None or bool(good_later)
    is_last = not any(other.size for other in later)
    if known.same_boot and not (bad.short and is_last and not has_good):
        why = f"{bad.why} (the machine has not been down since: a crash did not do this)"
        raise damaged(segment.path, bad.position, bad.offset, why)
    if known.recovery_point is None and has_good:
        where = good_at if good_at is not None else good_later[0].path
        why = f"{bad.why}; whole batches follow at {where}, and how far it was synced is not known"
        raise damaged(segment.path, bad.position, bad.offset, why)
    cut_bytes = segment.size - bad.position + sum(other.size for other in later)
    log.shared.recovered.cut_bytes += cut_bytes
    tell = log.env.log.error if has_good else log.env.log.warn
    tell(
        "torn_log_cut", path=segment.path, position=bad.position, offset=bad.offset, cause=bad.why,
        bytes_cut=cut_bytes,
        whole_batches_behind=has_good,
    )  # fmt: skip
    if _is_all_there(segment, bad):
        # The next start would find a log that ends well.
        log.env.log.warn("cut_is_doubted", path=segment.path, offset=bad.offset)
        doubt(log)
    if has_good:
        _keep_aside(log, segment, bad.position)
        for other in good_later:
            _keep_aside(log, other, 0)
        _name_kept(log, segment)
    _drop(log, at, bad)


def _is_all_there(segment: Segment, bad: Bad) -> bool:
    """Whether the bad batch reached the disk, so that it may have been synced, and have rotted since. A crash leaves zeros where a
    sector did not, or the end of the file."""
    data = segment.file().read(bad.position, min(segment.size - bad.position, LOOK_BEHIND))
    if len(data) < HEADER_SIZE:
        return False
    size = LENGTH_PREFIX + int.from_bytes(data[_LENGTH_AT:LENGTH_PREFIX], "big")
    if not HEADER_SIZE <= size <= len(data):  # this may be what has rotted
        return compute_crc(data, 0, len(data)) == int.from_bytes(data[_CRC_AT:CRC_FROM], "big")
    first = SECTOR - bad.position % SECTOR
    sectors = [data[: min(first, size)]]
    sectors += [data[at : min(at + SECTOR, size)] for at in range(first, size, SECTOR)]
    return all(map(any, sectors))


def doubt(log: "Log") -> None:
    """It may lack what it had acknowledged. On the disk before anything else is: a sync, of a log in a million."""
    log.put(Kind.DOUBT, Doubt.LACKS)
    if log.shared.offsets is not None:
        log.shared.offsets.flush_now()


def _starts_good(segment: Segment) -> bool:
    if segment.size == 0:
        return False
    file = segment.file()
    try:
        next(scan(file, 0, segment.size, segment.base_offset))
    except Bad:
        return good_batch_behind(file, 0, segment.size, segment.base_offset) is not None
    return True


def _keep_aside(log: "Log", segment: Segment, position: int) -> None:
    """Copy from `position` on to a `.torn` file. A disk too full for that is one more error in the log."""
    disk = log.env.disk
    name = f"{file_name(segment.base_offset, LOG)}.{position}{TORN}"
    try:
        kept = disk.open(f"{log.folder}/{name}", create=True)
        try:
            kept.truncate(0)
            while position < segment.size:
                piece = segment.file().read(position, LONG_CHUNK)
                kept.append((piece,))
                position += len(piece)
            kept.sync()
        finally:
            kept.close()
    except OSError as error:
        log.env.log.error("torn_bytes_not_kept", path=segment.path, cause=str(error))


def _name_kept(log: "Log", segment: Segment) -> None:
    """Durably, before anything is cut; and of cuts before this one, which lay further down, not too many pieces stay."""
    disk = log.env.disk
    try:
        disk.sync_folder(log.folder)
    except OSError as error:
        log.env.log.error("torn_bytes_not_kept", path=segment.path, cause=str(error))
    first = file_name(segment.base_offset, LOG)
    older = [name for name in disk.list(log.folder) if name.endswith(TORN) and name < first]
    for name in older[:-KEPT_MAX]:
        disk.remove(f"{log.folder}/{name}")


def _drop(log: "Log", at: int, bad: Bad) -> None:
    for other in reversed(log.segments[at + 1 :]):
        log.shared.pool.close(other)
        remove_all(log.env.disk, log.folder, other.base_offset, "")
    del log.segments[at + 1 :], log.bases[at + 1 :]
    segment = log.segments[at]
    segment.sealed = False
    segment.file().truncate(bad.position)
    segment.size, segment.next_offset = bad.position, bad.offset
    segment.synced_size = bad.position
    log.mark_dirty(segment)
    log.folder_version += 1
    log.cut_unsynced = True
