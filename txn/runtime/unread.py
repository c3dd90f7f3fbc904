"""What the log says of groups or transactional ids that nobody has asked about yet: bytes, by owner.

INVARIANT  an owner whose records are applied in the order in which each key was last written is as it would be
           if every record of the log had been applied.
PREVENTS   a coordinator that takes over making everybody wait until the last group of a hundred thousand is decoded.
PROVED BY  tests/txn/test_unread.py::test_an_owner_that_is_read_late_is_the_same_as_one_that_was_read_at_once,
           tests/txn/test_unread.py::test_a_key_that_was_written_again_is_applied_where_it_was_written_last,
           tests/txn/test_unread.py::test_what_a_late_marker_commits_counts_by_its_place_in_the_log

Decoding is nearly all that loading costs (profile in `tests/benchmarks/bench_loading.py`), and what is asked for
first is one group, not all. So the loader only keeps, per owner, the last value of each of its keys; the shard
decodes an owner when a command names it, and the others bit by bit while nothing else is to do.
"""

from itertools import islice

from .ports import Codec, IsUrgent, Machine

# key -> (offset, value), in the order of the last write
Rows = dict[bytes, tuple[int, bytes | None]]


class Unread:
    __slots__ = ("_codec", "_unsorted", "rows", "skipped")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.rows: dict[bytes, Rows] = {}  # by owner; an owner is here until it has been read
        self._unsorted: set[bytes] = (
            set()
        )  # owners whose rows are not in the order of their offsets
        self.skipped = 0  # records of kinds that this version does not know

    def __len__(self) -> int:
        return len(self.rows)

    def urgent(self, is_urgent: IsUrgent) -> list[bytes]:
        """Owners that can't wait until somebody asks for them."""
        return [
            owner
            for owner, rows in self.rows.items()
            if any(is_urgent(key, value) for key, (_, value) in rows.items())
        ]

    def first(self, count: int) -> list[bytes]:
        return list(islice(self.rows, count))

    def keep(self, owner: bytes, offset: int, key: bytes, value: bytes | None) -> None:
        """The newest of this key."""
        known = self.rows.get(owner)
        if known is None:
            self.rows[owner] = {key: (offset, value)}
        else:
            known.pop(key, None)  # what is written last is applied last
            known[key] = (offset, value)

    def keep_older(self, owner: bytes, offset: int, key: bytes, value: bytes | None) -> None:
        """One whose transaction has only now been committed: it counts by its place, and may be the newest or not."""
        known = self.rows.setdefault(owner, {})
        if key not in known or known[key][0] < offset:
            known[key] = (offset, value)
            self._unsorted.add(owner)

    def read(self, owner: bytes, machine: Machine) -> bool:
        """Apply what the log says of this owner; False if there is nothing left to read. ValueError: it can't be."""
        rows = self.rows.pop(owner, None)
        if rows is None:
            return False
        decode = self._codec.decode
        if owner in self._unsorted:
            self._unsorted.remove(owner)
            rows = dict(sorted(rows.items(), key=_by_offset))
        for key, (offset, value) in rows.items():
            record = decode(key, value)
            if record is None:
                self.skipped += 1
            else:
                machine.apply(record, offset)
        return True


def _by_offset(row: tuple[bytes, tuple[int, bytes | None]]) -> int:
    return row[1][0]
