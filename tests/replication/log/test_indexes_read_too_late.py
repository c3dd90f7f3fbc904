"""Two ask for an index that is not in memory, or it is needed at once while a thread reads it: what comes too late is not kept."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log.segment import Segment
from fencepost.replication.log.walk import Cold
from log_helpers import START_MS, Node, append, batch_at, read_bytes, run


async def sealed(world: World) -> tuple[Node, Segment]:
    """A segment of ten batches, with an entry for each but the first, that is not in memory."""
    node = Node(world, index_interval_bytes=0)
    log = await node.start()
    for at in range(10):
        append(log, batch_at(at, timestamp=START_MS + at))
    log.roll(START_MS)
    await node.settle()
    segment = log.segments[0]
    segment.forget_index()
    return node, segment


def is_in_memory(segment: Segment) -> bool:
    try:
        segment.load_indexes(block=False)
    except Cold:
        return False
    return True


def asked(segment: Segment) -> Cold:
    with pytest.raises(Cold) as raised:
        segment.load_indexes(block=False)
    return raised.value


def test_the_second_of_two_readers_leaves_no_copy_in_memory() -> None:
    """The pool counts what is loaded, and knows of nothing else: of each segment that two groups read side by side, one would stay."""

    async def scenario(world: World) -> None:
        _, segment = await sealed(world)
        first, second = asked(segment), asked(segment)
        first.work()
        assert is_in_memory(segment)
        second.work()
        segment.forget_index()
        assert not is_in_memory(segment)

    run(scenario)


def test_an_index_that_was_read_before_a_cut_is_not_taken_for_that_of_what_came_behind_it() -> None:
    async def scenario(world: World) -> None:
        node, segment = await sealed(world)
        log, cold = node.log, asked(segment)
        log.truncate_to(4)
        cold.work()  # the file is as it was before the cut
        for at in range(4, 30):
            append(log, batch_at(at, timestamp=START_MS + at, size=33))
        log.roll(START_MS)
        assert log.segments[0] is segment
        segment.forget_index()
        index, times = segment.load_indexes()
        assert (len(index), len(times)) == (29, 29)
        assert read_bytes(log, 20, 1) == batch_at(20, timestamp=START_MS + 20, size=33)

    run(scenario)
