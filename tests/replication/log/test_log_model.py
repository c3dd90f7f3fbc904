"""Random sequences of everything that happens to a log, beside a plain list of batches."""

from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.wire.batch import headers_of
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import Node, append, batch_at, read_bytes, run


class Model:
    """The log as a list of (base offset, next offset, bytes)."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.start = 0
        self.end = 0

    def append(self, data: bytes) -> None:
        for position, header in headers_of(data):
            piece = data[position : position + header.size]
            self.batches.append((header.base_offset, header.next_offset, piece))
            self.end = header.next_offset

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch[1] <= offset]

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


async def _apply(node: Node, model: Model, step: tuple[Any, ...]) -> None:
    log = node.log
    match step:
        case ("append", batches, count, size):
            data = b""
            for _ in range(batches):
                end = headers_of(data)[-1][1].next_offset if data else model.end
                data += batch_at(end, count=count, size=size, leader_epoch=len(model.batches) // 9)
            append(log, data)
            model.append(data)
        case ("gap", width):
            data = batch_at(model.end + width)
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
            model.batches = []
            log.truncate_fully_and_start_at(model.end)
            await node.store.checkpoint()
        case ("delete_before", ahead):
            model.start = min(model.start + ahead, model.end)
            log.delete_records_before(model.start)
            await node.store.checkpoint()  # as who answers DeleteRecords must
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


def _compare(node: Node, model: Model, probe: int) -> None:
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


@pytest.mark.slow
@given(st.lists(STEPS, max_size=40), st.integers(0, 10_000))
@settings(max_examples=150)
def test_the_log_answers_as_a_plain_list_does(steps: list[tuple[Any, ...]], probe: int) -> None:
    async def scenario(world: World) -> None:
        node, model = Node(world), Model()
        await node.start()
        for step in steps:
            await _apply(node, model, step)
            _compare(node, model, probe)

    run(scenario)
