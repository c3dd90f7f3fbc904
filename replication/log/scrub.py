"""A piece of a segment, read again and checked to the last bit. Off the loop; nothing here waits or decides.

INVARIANT  what is called whole has its checksums, offsets that follow each other, epochs that do not fall, and ends at the
           offset where the segment does.
PREVENTS   a bit that flipped while a node was stopped cleanly being trusted for ever.
PROVED BY  tests/replication/log/test_scrub.py::test_every_bit_that_flips_is_found

A file of its own is opened for each piece: the pool's belong to those who are served, and what is renamed or removed
meanwhile is seen by who asked for the piece.
"""

import errno
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.cluster.base.errors import NO_DESCRIPTOR_ERRNOS, LogDamaged
from fencepost.cluster.base.ports import Disk, File
from fencepost.cluster.wire.batch import HEADER_SIZE, BatchRefused, parse_header

from .config import INT_MAX
from .damage import Damage, joined
from .scan import Bad, good_batch_behind, scan

if TYPE_CHECKING:
    from .log import Log
    from .segment import Segment

PIECE_BYTES: Final = 256 * 1024
# A thread that parses headers holds the interpreter: so many take 1 ms, and the loop waits for no more than that.
PIECE_BATCHES: Final = 200
# What says nothing of the bytes: there is no descriptor, or no memory, now.
NOT_THE_FILE: Final = NO_DESCRIPTOR_ERRNOS | {errno.ENOMEM, errno.EAGAIN}


class Place(NamedTuple):
    """In a segment: how far it was checked, and the leader epoch of the last batch."""

    position: int
    offset: int
    leader_epoch: int = -1


class Extent(NamedTuple):
    """A segment as its log knew it when the piece was asked for; `next_offset`: where the next one begins."""

    path: str
    size: int
    next_offset: int
    log_start_offset: int


class Piece(NamedTuple):
    place: Place  # up to where it was checked, and what is damaged passed over
    size: int
    damage: Damage | None = None


class _Once:
    """A file as `scan` reads it: pieces, none of them kept in memory for it."""

    def __init__(self, file: File) -> None:
        self._file = file

    def read(self, position: int, length: int) -> bytes:
        return self._file.read_once(position, length)


def extent_of(log: "Log", segment: "Segment") -> Extent:
    """On the loop. A gap that `roll` had to leave is open; only Kafka's own cleaner leaves others."""
    if segment is log.segments[-1]:
        following = segment.next_offset
    else:
        following = log.bases[log.bases.index(segment.base_offset) + 1]
    return Extent(segment.path, segment.size, following, log.log_start_offset)


def place_before(segment: "Segment", offset: int) -> Place:
    """At the index entry before this offset. An entry that lies about it has the segment looked at from its start."""
    try:
        return _entry_before(segment, offset)
    except (OSError, LogDamaged, BatchRefused):
        return Place(0, segment.base_offset)


def _entry_before(segment: "Segment", offset: int) -> Place:
    index, _ = segment.load_indexes()
    slot = index.slot_before(offset - segment.base_offset)
    if slot < 0 or index.positions[slot] + HEADER_SIZE > segment.size:
        return Place(0, segment.base_offset)
    position, last = index.positions[slot], index.offsets[slot] + segment.base_offset
    header = parse_header(segment.file().read(position, HEADER_SIZE))
    if header.last_offset != last:
        return Place(0, segment.base_offset)
    return Place(position, header.base_offset)


def check_piece(disk: Disk, extent: Extent, place: Place) -> Piece:
    """From `place` on. OSError: nothing can be said now."""
    try:
        file = disk.open(extent.path)
    except FileNotFoundError:
        why = "the file is missing"
        damage = Damage(place.offset, extent.next_offset, extent.path, place.position, why)
        return Piece(Place(extent.size, extent.next_offset), 0, damage)
    try:
        once = _Once(file)
        found, cause = _look(once, extent, place)
        size = found.position - place.position
        if cause is None:
            return Piece(found, size)
        piece = _damaged(once, extent, found, cause)
        return piece._replace(size=piece.size + size)
    finally:
        file.close()


def _look(file: _Once, extent: Extent, place: Place) -> tuple[Place, str | OSError | None]:
    """How far all is well; and why not further, if that is not where the piece ends."""
    start = before = place
    batches = 0
    try:
        for checked in scan(file, place.position, extent.size, place.offset, chunk=PIECE_BYTES):
            header = checked.header
            if header.leader_epoch < place.leader_epoch:
                epochs = f"{header.leader_epoch} behind one of {place.leader_epoch}"
                return place, f"a batch of leader epoch {epochs}"
            before = place
            end = checked.position + header.size
            # What was deleted may be of a history that is none any more.
            counts = header.next_offset > extent.log_start_offset
            place = Place(end, header.next_offset, header.leader_epoch if counts else -1)
            batches += 1
            if end - start.position >= PIECE_BYTES or batches >= PIECE_BATCHES:
                break
    except Bad as bad:
        return place, bad.why
    except OSError as error:
        if error.errno in NOT_THE_FILE:
            raise
        return place, error
    gap = extent.next_offset - place.offset
    if place.position >= extent.size and gap and gap <= INT_MAX:  # as at a start after a crash
        return before, f"the last batch ends at {place.offset}, and {extent.next_offset} is next"
    return place, None


def _damaged(file: _Once, extent: Extent, place: Place, cause: str | OSError) -> Piece:
    end = Place(extent.size, extent.next_offset, place.leader_epoch)
    if isinstance(cause, OSError):
        damage = Damage(place.offset, place.offset, extent.path, place.position, str(cause))
        return Piece(end, 0, damage)
    behind = good_batch_behind(file, place.position, extent.size, place.offset)
    if behind is not None:
        base = parse_header(file.read(behind, HEADER_SIZE)).base_offset
        end = Place(behind, base, place.leader_epoch)
    damage = Damage(place.offset, end.offset, extent.path, place.position, cause)
    return Piece(end, end.position - place.position, damage)


def check_around(log: "Log", offset: int) -> tuple[Damage, ...]:
    """At a start: all of the segment in which this offset was damaged when the last run ended. Blocks. OSError."""
    found: tuple[Damage, ...] = ()
    if not log.log_start_offset <= offset < log.log_end_offset:
        return found
    segment = log.segments[log.index_of(offset)]
    extent = extent_of(log, segment)
    place = Place(0, segment.base_offset)
    while place.position < extent.size:
        piece = check_piece(log.env.disk, extent, place)
        place = piece.place
        if piece.damage is not None:
            found = joined(found, piece.damage)
    return tuple(each for each in found if each.reaches(log.log_start_offset))
