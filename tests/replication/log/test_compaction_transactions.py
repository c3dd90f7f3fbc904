"""Compaction while transactions begin, overlap and end: readers of committed records find the newest of each key, and nothing else."""

from itertools import cycle
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.wire.batch import headers_of
from fencepost.replication.log.log import Log
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import read_all, run
from test_compaction import DAY_MS, START_MS, compact, compacted, end_txn, put
from written_helpers import seen

PRODUCERS = 3
PAIRS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "x", "y" * 300])),
    min_size=1,
    max_size=3,
)
STEPS = st.one_of(
    st.tuples(st.just("put"), PAIRS),
    st.tuples(st.just("write"), st.integers(1, PRODUCERS), PAIRS),
    st.tuples(st.just("write"), st.integers(1, PRODUCERS), PAIRS),
    st.tuples(st.just("end"), st.integers(1, PRODUCERS), st.booleans()),
    st.tuples(st.just("compact"), st.sampled_from([0, DAY_MS // 2, 2 * DAY_MS])),
    st.tuples(st.just("restart"), st.sampled_from(["clean", "kill"])),
)


class Model:
    """All that was ever written, and which of it counts."""

    def __init__(self) -> None:
        self.written: dict[int, tuple[str, str | None]] = {}
        self.open: dict[int, list[int]] = {}  # producer -> offsets
        self.aborted: set[int] = set()
        self.sequences: dict[int, int] = {}

    def wrote(self, end: int, pairs: Any) -> list[int]:
        for at, pair in enumerate(pairs, end):
            self.written[at] = pair
        return list(range(end, end + len(pairs)))

    def stable_end(self, end: int) -> int:
        return min((offsets[0] for offsets in self.open.values()), default=end)

    def newest(self, stable_end: int) -> dict[str, int]:
        """Key -> the offset of what counts, of all that a reader may see."""
        found: dict[str, int] = {}
        for offset in sorted(self.written):
            if offset < stable_end and offset not in self.aborted:
                found[self.written[offset][0]] = offset
        return found


def check(log: Log, model: Model, share: float) -> None:
    end = log.log_end_offset
    stable_end = model.stable_end(end)
    newest = model.newest(stable_end)
    for since in (0, round(share * stable_end)):
        got = seen(log, since, stable_end)
        assert all(model.written[offset] == pair for offset, pair in got.items())
        assert not got.keys() & model.aborted, "an aborted record is shown"
        want = {offset for offset in newest.values() if offset >= since}
        missing = {at for at in want - got.keys() if model.written[at][1] is not None}
        assert not missing, "the newest value of a key is not shown"
    there = {
        offset
        for position, header in headers_of(read_all(log))
        if not header.is_control
        for offset in range(header.base_offset, header.next_offset)
    }
    of_open = {offset for offsets in model.open.values() for offset in offsets}
    assert of_open <= there, "a record of an open transaction was cleaned away"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("shadowed", [False, True])
def test_a_marker_stays_while_its_transaction_has_records_and_goes_in_time_without(
    commit: bool, shadowed: bool
) -> None:
    """Whoever copies records without their marker holds back every reader of committed ones, for good."""

    async def scenario(world: World) -> None:
        node = compacted(world, delete_retention_ms=0)
        log = await node.start()
        of_txn = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
        put(log, ("first", "x"))
        put(log, ("own", "x"), base_sequence=0, **of_txn)
        end_txn(log, 1, commit=commit)
        at = log.log_end_offset - 1
        # Its producer goes on: of its last five batches none is of that transaction.
        for number in range(5):
            put(log, (f"other{number}", "x"), base_sequence=1 + number, **of_txn)
        end_txn(log, 1, commit=True)
        for number in range(6):
            put(log, ("own" if shadowed else "third", str(number)))
            await compact(node, START_MS + number)
        markers = {
            header.base_offset
            for _, header in headers_of(read_all(log))
            if header.is_control and header.record_count
        }
        assert (at in markers) is (commit and not shadowed)

    run(scenario)


@pytest.mark.slow
@given(st.lists(STEPS, max_size=40), st.floats(0, 1), st.booleans())
@settings(max_examples=100)
def test_compaction_shows_readers_the_newest_committed_value_whatever_is_open(
    steps: list[tuple[Any, ...]], share: float, replicas_come: bool
) -> None:
    # Where replicas come one is there before each swap that was not there before, so each segment is cleaned twice.
    forgets = cycle((True, False) if replicas_come else (True,)).__next__

    async def scenario(world: World) -> None:
        node = compacted(world)
        log = await node.start()
        model, now_ms = Model(), START_MS
        for step in steps:
            match step:
                case ("put", pairs):
                    end = log.log_end_offset
                    put(log, *pairs)
                    model.wrote(end, pairs)
                case ("write", producer, pairs):
                    end, sequence = log.log_end_offset, model.sequences.get(producer, 0)
                    put(log, *pairs, producer_id=producer, producer_epoch=0,
                        base_sequence=sequence, transactional=True)  # fmt: skip
                    model.sequences[producer] = sequence + len(pairs)
                    model.open.setdefault(producer, []).extend(model.wrote(end, pairs))
                case ("end", producer, commit) if producer in model.open:
                    end_txn(log, producer, commit=commit)
                    offsets = model.open.pop(producer)
                    model.aborted.update(() if commit else offsets)
                case ("compact", later):
                    now_ms += later
                    log.roll(now_ms)
                    limit = model.stable_end(log.log_end_offset)
                    await log.compact(now_ms, limit, force=True, forgets=forgets)
                case ("restart", how):
                    await node.settle()
                    log = await node.restart(how)
            check(log, model, share)

    run(scenario)
