"""Rounds of compaction that a death ends between the names of their files, and what is left of transactions behind them."""

from uuid import UUID

from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.batch import headers_of
from log_helpers import START_MS, Node, append, put, read_all

COPY = TopicPartition("copy", 0)
LATER_MS = 1_000


def compacting(world: World) -> Node:
    """What may go goes at once."""
    return Node(world, compact=True, delete=False, delete_retention_ms=0, segment_bytes=1 << 20)


async def round_of(node: Node, now_ms: int) -> None:
    await node.log.compact(now_ms, node.log.log_end_offset, force=True)


async def four_rounds(node: Node) -> None:
    """By then all has gone that may, markers too."""
    for number in range(1, 5):
        put(node.log, ("k", f"{number}"))
        node.log.roll(START_MS)
        put(node.log, ("z", f"{number}"))
        await node.settle()
        await round_of(node, START_MS + number * LATER_MS)


def open_in_a_copy(node: Node) -> int:
    """How many transactions are open for whoever copies the log."""
    copy = node.store.open(COPY, UUID(int=7), node.config)
    data = read_all(node.log)
    for position, header in headers_of(data):
        append(copy, data[position : position + header.size])
    return copy.producers.open_count()
