"""All that was ever written to a log, as a plain list; what of it counts, and whether the log says so, too."""

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.chaos.workloads.txn_reader import committed_records
from fencepost.cluster.wire.batch import headers_of
from fencepost.replication.log.log import Log
from log_helpers import read_all

NOBODY = -1

Pair = tuple[str, str | None]


class Written(NamedTuple):
    """One batch. `committed` is what a marker says, and None of any other batch."""

    offset: int
    next_offset: int
    producer_id: int
    pairs: Sequence[Pair] = ()
    is_transactional: bool = False
    committed: bool | None = None


class Outcome:
    """What the batches up to an end come to: by offset what was written, and which of it is open or was aborted."""

    def __init__(self, batches: Sequence[Written]) -> None:
        self.values: dict[int, Pair] = {}
        self.open: dict[int, list[int]] = {}  # producer -> offsets
        self.aborted: set[int] = set()
        self.aborts: set[tuple[int, int, int]] = set()  # producer, first offset, the marker's
        self.sequences: dict[int, int] = {}  # producer -> its last one
        for batch in batches:
            if batch.committed is None:
                self._take(batch)
            else:
                self._end(batch)

    def _take(self, batch: Written) -> None:
        at = range(batch.offset, batch.next_offset)
        self.values.update(zip(at, batch.pairs, strict=True))
        if batch.producer_id != NOBODY:
            last = self.sequences.get(batch.producer_id, -1)
            self.sequences[batch.producer_id] = last + len(at)
        if batch.is_transactional:
            self.open.setdefault(batch.producer_id, []).extend(at)

    def _end(self, marker: Written) -> None:
        ended = self.open.pop(marker.producer_id, [])
        if ended and not marker.committed:
            self.aborted.update(ended)
            self.aborts.add((marker.producer_id, ended[0], marker.offset))

    def stable_end(self, high_watermark: int) -> int:
        return min((offsets[0] for offsets in self.open.values()), default=high_watermark)

    def newest(self, stable_end: int) -> dict[str, int]:
        """Key -> the offset of what counts, of all that a reader of committed records may see."""
        return {
            self.values[offset][0]: offset
            for offset in sorted(self.values)
            if offset < stable_end and offset not in self.aborted
        }


class History:
    """The batches of a log, cut where it is cut."""

    def __init__(self) -> None:
        self.batches: list[Written] = []
        self._before_cut: list[Written] | None = None

    def up_to(self, end: int) -> Outcome:
        return Outcome([each for each in self.batches if each.offset < end])

    def whole(self) -> Outcome:
        return Outcome(self.batches)

    def add(self, batch: Written) -> None:
        """Behind a cut: what went is gone for good before anything comes in its place."""
        self.batches.append(batch)
        self._before_cut = None

    def is_about_to_be_cut(self, *, is_durable: bool) -> None:
        """is_durable: the log is so as it stands now, and no earlier cut of it may come undone."""
        if is_durable or self._before_cut is None:
            self._before_cut = list(self.batches)

    def cut_undone(self) -> None:
        """Perhaps, and in part: where the log ends is asked next."""
        if self._before_cut is not None:
            self.batches = self._before_cut

    def ends_at(self, end: int) -> None:
        self.batches = [each for each in self.batches if each.offset < end]


def seen(log: Log, since: int, stable_end: int) -> dict[int, Pair]:
    """What a reader of committed records gets from an offset on."""
    data = read_all(log)
    whole = b"".join(
        data[position : position + header.size]
        for position, header in headers_of(data)
        if header.next_offset > since and header.next_offset <= stable_end
    )
    named = [
        (each.producer_id, each.first_offset) for each in log.aborted_between(since, stable_end)
    ]
    records, _ = committed_records(whole, named, since)
    return {
        each.offset: (
            (each.key or b"").decode(),
            None if each.value is None else each.value.decode(),
        )
        for each in records
    }


def each_offset_is_there_once(log: Log) -> None:
    end = -1
    for _, header in headers_of(read_all(log)):
        assert header.base_offset >= end, f"{header.base_offset} comes behind {end}"
        end = header.next_offset


def who_wrote_is_known(log: Log, outcome: Outcome) -> None:
    states = log.producers.states()
    first = {
        each.producer_id: each.txn_first_offset for each in states if each.txn_first_offset >= 0
    }
    wanted = {producer_id: offsets[0] for producer_id, offsets in outcome.open.items()}
    assert first == wanted, f"open are {first}, not {wanted}"
    last = {each.producer_id: each.last_sequence for each in states if each.batches}
    assert last == outcome.sequences, f"known are {last}, not {outcome.sequences}"


def no_abort_is_made_up(log: Log, outcome: Outcome) -> None:
    """It may hide nothing yet, but what that producer writes next. Compaction may forget one, never make one."""
    named = {
        (each.producer_id, each.first_offset, each.last_offset)
        for each in log.aborted_between(log.log_start_offset, log.log_end_offset)
    }
    assert named <= outcome.aborts, f"never aborted: {named - outcome.aborts}"


def the_newest_is_shown(log: Log, outcome: Outcome, since: int, stable_end: int) -> None:
    shown = seen(log, since, stable_end)
    for offset, pair in shown.items():
        assert outcome.values.get(offset) == pair, f"nobody wrote what is at {offset}"
        assert offset not in outcome.aborted, f"what was aborted is shown, at {offset}"
    last = {shown[offset][0]: offset for offset in sorted(shown)}
    for key, offset in outcome.newest(stable_end).items():
        if offset < since:
            continue
        if outcome.values[offset][1] is not None:
            assert last.get(key) == offset, f"the newest {key} is not shown, at {offset}"
        elif key in last:
            assert shown[last[key]][1] is None, f"{key}, deleted at {offset}, is back"
