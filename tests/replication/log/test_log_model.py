"""Random sequences of everything that happens to a log, beside a plain list of batches."""

from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.wire.batch import headers_of
from fencepost.replication.log import snapshots
from fencepost.replication.log.log import Log
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import Node, append, batch_at, marker_at, read_bytes, run


class Model:
    """The log as a list of (base offset, next offset, bytes), and who began and ended transactions with which of them."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.transactions: dict[
            int, tuple[int, str]
        ] = {}  # base offset -> producer id; begins, aborts or commits
        self.start = 0
        self.end = 0
        self.appended = 0

    @property
    def epoch(self) -> int:
        """The leader's; the next one every now and then."""
        return self.appended // 9

    def append(self, data: bytes) -> None:
        for position, header in headers_of(data):
            piece = data[position : position + header.size]
            self.batches.append((header.base_offset, header.next_offset, piece))
            self.appended += 1
            self.end = header.next_offset

    def sequence(self, producer_id: int) -> int:
        return sum(
            self.transactions.get(base) == (producer_id, "writes") for base, _, _ in self.batches
        )

    def aborted(self) -> list[tuple[int, list[int], int]]:
        """Producer id, the offsets of its records, and of the marker."""
        found, open_ones = [], dict[int, list[int]]()
        for base, _, _ in self.batches:
            producer_id, what = self.transactions.get(base, (-1, ""))
            if what == "writes":
                open_ones.setdefault(producer_id, []).append(base)
            elif what and (offsets := open_ones.pop(producer_id, [])) and what == "aborts":
                found.append((producer_id, offsets, base))
        return found

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch[1] <= offset]
        self.transactions = {
            base: what for base, what in self.transactions.items() if base < offset
        }

    def read(self, offset: int, max_bytes: int, limit: int, *, min_one: bool) -> bytes:
        found = b""
        for _, following, data in self.batches:
            if following <= offset:
                continue
            if following > limit or ((found or not min_one) and len(found) + len(data) > max_bytes):
                break
            found += data
        return found


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(1, 3), st.sampled_from([0, 200, 1500])),
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(1, 3), st.sampled_from([0, 200, 1500])),
    st.tuples(st.just("writes"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["aborts", "aborts", "commits"]), st.integers(1, 3)),
    st.tuples(st.just("transaction"), st.integers(1, 3), st.sampled_from(["aborts", "commits"])),
    st.tuples(st.just("transaction"), st.integers(1, 3), st.just("aborts")),
    st.tuples(st.just("gap"), st.integers(1, 50)),
    st.tuples(st.just("truncate"), st.integers(0, 40)),
    st.tuples(st.just("start_at"), st.integers(0, 1000)),
    st.tuples(st.just("delete_before"), st.integers(0, 40)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("retention")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("restart"), st.sampled_from(["clean", "kill"])),
    st.tuples(st.just("evict")),
)  # fmt: skip


FEW = [
    ("transaction", 1, "aborts"),
    ("transaction", 2, "aborts"),
    ("transaction", 1, "commits"),
    ("writes", 1),
    *(("truncate", back) for back in (1, 2, 4)),
    ("settle",),
    ("settle",),
    ("roll",),
    ("restart", "kill"),
]
AT_LAST = [("settle",), ("restart", "clean")]


def _step_of_transaction(log: Log, model: Model, what: str, producer_id: int) -> None:
    if what == "writes":
        sequence = model.sequence(producer_id)
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        data = batch_at(model.end, transactional=True, leader_epoch=model.epoch, **fields)
    else:
        commit = what == "commits"
        data = marker_at(model.end, producer_id, commit=commit, leader_epoch=model.epoch)
    model.transactions[model.end] = producer_id, what
    append(log, data)
    model.append(data)


async def _apply(node: Node, model: Model, step: tuple[Any, ...]) -> None:
    log = node.log
    match step:
        case ("append", batches, count, size):
            data = b""
            for _ in range(batches):
                end = headers_of(data)[-1][1].next_offset if data else model.end
                data += batch_at(end, count=count, size=size, leader_epoch=model.epoch)
            append(log, data)
            model.append(data)
        case ("writes" | "aborts" | "commits" as what, producer_id):
            _step_of_transaction(log, model, what, producer_id)
        case ("transaction", producer_id, end):
            for what in ("writes", end):
                _step_of_transaction(log, model, what, producer_id)
        case ("gap", width):
            data = batch_at(model.end + width, leader_epoch=model.epoch)
            append(log, data)
            model.append(data)
        case ("truncate", back):
            target = max(model.end - back, model.start)
            if target < model.end:
                model.truncate(target)
                log.truncate_to(target)
                end = max([following for _, following, _ in model.batches], default=log.bases[0])
                assert end <= log.log_end_offset <= target
                model.end = log.log_end_offset
                model.start = min(model.start, model.end)
        case ("start_at", ahead):
            model.start = model.end = model.end + ahead
            model.truncate(0)
            log.truncate_fully_and_start_at(model.end)
            await node.store.checkpoint()
        case ("delete_before", ahead):
            model.start = min(model.start + ahead, model.end)
            log.delete_records_before(model.start)
            await node.settle()  # as who answers DeleteRecords must
        case ("roll",):
            log.roll(node.env.clock.now_ms())
        case ("retention",):
            log.apply_retention(node.env.clock.now_ms(), log.log_end_offset)
        case ("settle",):
            await node.settle()
        case ("restart", how):
            await node.restart(how)
        case ("evict",):
            for segment in log.segments:
                segment.forget_index()
                if not segment.dirty:
                    node.store.shared.pool.close(segment)


def _compare_aborted(node: Node, model: Model) -> None:
    """Each that has a record to be read is told of, and nothing else; from where its records begin."""
    log = node.log
    told = {
        (txn.producer_id, txn.last_offset): txn
        for txn in log.aborted_between(model.start, model.end)
    }
    aborted = {(who, marker): offsets for who, offsets, marker in model.aborted()}
    assert told.keys() <= aborted.keys()
    for key, offsets in aborted.items():
        readable = [each for each in offsets if each >= model.start]
        assert not readable or told[key].first_offset <= readable[0]


def _compare_producers(node: Node, model: Model) -> None:
    """As long as nothing has been deleted, the log tells all that is known of its producers, and of its epochs."""
    log = node.log
    if model.start or log.bases[0]:
        return
    machine = snapshots.new_machine(log)
    epochs: list[tuple[int, int]] = []
    for segment, position, header in log.headers_from(0, log.log_end_offset):
        snapshots.replay(machine, segment, position, header, 0)
        if not epochs or epochs[-1][0] != header.leader_epoch:
            epochs.append((header.leader_epoch, header.base_offset))
    there, replayed = (
        {each.producer_id: each._replace(seen_ms=0) for each in states}
        for states in (log.producers.states(), machine.states())
    )
    assert there == replayed
    assert log.first_unstable_offset == machine.first_unstable_offset
    assert list(zip(log.epochs.epochs, log.epochs.starts, strict=True)) == epochs


def _compare(node: Node, model: Model, probe: int) -> None:
    _compare_aborted(node, model)
    _compare_producers(node, model)
    log = node.log
    assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    span = model.end - model.start
    for at in {0, span // 2, max(span - 1, 0), probe % (span + 1)}:
        offset = model.start + at
        for max_bytes in (100, 1000, 1 << 20):
            for limit in (model.end, model.start + probe % (span + 1)):
                for min_one in (True, False):
                    got = read_bytes(log, offset, max_bytes, limit=limit, min_one=min_one)
                    want = model.read(offset, max_bytes, limit, min_one=min_one)
                    # One read stays in one segment, so it may stop early, but never for nothing.
                    assert want.startswith(got), (offset, max_bytes, limit, min_one)
                    assert bool(got) == bool(want), (offset, max_bytes, limit, min_one)


async def _play(world: World, steps: list[tuple[Any, ...]], probe: int) -> None:
    node, model = Node(world), Model()
    await node.start()
    for step in steps:
        await _apply(node, model, step)
        _compare(node, model, probe)


@pytest.mark.slow
@given(st.lists(STEPS, max_size=40), st.integers(0, 10_000))
@settings(max_examples=150)
def test_the_log_answers_as_a_plain_list_does(steps: list[tuple[Any, ...]], probe: int) -> None:
    run(lambda world: _play(world, steps, probe))


@pytest.mark.slow
@given(st.lists(st.sampled_from(FEW), min_size=8, max_size=30))
@settings(max_examples=150)
def test_what_ends_transactions_is_cut_and_comes_back_with_the_log(
    steps: list[tuple[Any, ...]],
) -> None:
    """Of all steps those after which the files beside a log have to change: more rarely they meet among the others."""
    run(lambda world: _play(world, [*steps, *AT_LAST], 0))
