"""What a client makes of batches and the aborted transactions that come with them (Java's CompletedFetch)."""

from collections.abc import Sequence

from fencepost.cluster.base.ports import FileSlice
from fencepost.cluster.wire.batch import parse_header
from fencepost.cluster.wire.records import read_control, read_records
from fencepost.replication.partition import Partition, Read


def committed_values(
    data: bytes, aborted: Sequence[tuple[int, int]], since: int
) -> tuple[list[bytes], int]:
    """The values from an offset on, and where the next fetch begins. `aborted`: producer id and first offset."""
    values: list[bytes] = []
    waiting = sorted(aborted, key=lambda each: each[1])
    hidden: set[int] = set()
    position, next_offset = 0, since
    while position < len(data):
        header = parse_header(data, position)
        records = read_records(data, position)
        while waiting and waiting[0][1] <= header.last_offset:
            hidden.add(waiting.pop(0)[0])
        if header.is_control:
            marker = read_control(records[0]) if records else None
            if marker is not None and not marker.commit:
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            values += [each.value or b"" for each in records if each.offset >= since]
        position += header.size
        next_offset = header.next_offset
    return values, next_offset


def seen_by_a_client(partition: Partition, start: int, *, max_bytes: int = 1 << 20) -> list[bytes]:
    """All that a read_committed reader of this replica gets, fetch by fetch."""
    values: list[bytes] = []
    offset = start
    while True:
        read = partition.read(offset, max_bytes, isolation=1, min_one=True, leader_only=False)
        assert isinstance(read, Read) and read.aborted is not None, read
        data = b"".join(
            piece.file.read(piece.position, piece.length)
            if isinstance(piece, FileSlice)
            else bytes(piece)
            for piece in read.records
        )
        if not data:
            return values
        more, offset = committed_values(data, read.aborted, offset)
        values += more
