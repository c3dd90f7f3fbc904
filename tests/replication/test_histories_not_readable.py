"""A transaction was open when the node was stopped cleanly, of so many producers that their history is in a file of its own. How far
the log is committed concerns it, also before anybody writes."""

import errno
from collections.abc import Awaitable, Callable

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.replication.partition import Read, Refusal
from replica_cluster import Cluster, play
from replica_helpers import PAYMENTS, Metadata, Node, Restarts, batch, topic_of


async def leave_one_open(node: Node) -> None:
    for pid in range(300):  # more than a hint carries
        await node.write(batch("a", pid=pid))
    await node.write(batch("t", pid=301, transactional=True))
    await node.write(batch("p"), PAYMENTS)


def behind_a_clean_stop(scene: Callable[[Node], Awaitable[None]]) -> None:
    """The transaction is open yet; the scene starts the node."""
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), topic_of("payments"))
        Restarts(world, metadata)(leave_one_open)
        env = world.node("a")

        async def after() -> None:
            await scene(Node(env, metadata))

        world.run(world.on(env, after()))


def fail(node: Node, number: int) -> None:
    faults = node.env.machine.disk.faults
    faults.fail("*", path="*orders-0/*.producers", number=number, times=1000)
    faults.fail("*", path="*orders-0/*.log", number=number, times=1000)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_history_that_can_not_be_read_at_a_start_keeps_no_node_from_starting(number: int) -> None:
    async def scene(node: Node) -> None:
        fail(node, number)
        await node.start()
        await node.write(batch("q"), PAYMENTS)
        assert await node.read_values(PAYMENTS) == [b"p", b"q"]
        refused = node.produce(batch("b"))
        assert isinstance(refused, Refusal)
        assert refused.error is ErrorCode.kafka_storage_error

    behind_a_clean_stop(scene)


def test_a_history_that_can_be_read_later_is_read_though_nobody_writes() -> None:
    async def scene(node: Node) -> None:
        fail(node, errno.EMFILE)
        await node.start()
        assert not node.partition().log.producers_loaded
        node.env.machine.disk.faults.heal()
        await node.env.clock.sleep(1.5)
        assert node.partition().log.producers_loaded
        await node.write(batch("b"))
        partition = node.partition()
        assert (partition.last_stable_offset, partition.high_watermark) == (300, 302)
        found = await partition.read_waiting(300, 1 << 20, isolation=1, min_one=True)
        assert isinstance(found, Read) and found.size == 0

    behind_a_clean_stop(scene)


def test_however_often_it_is_asked_for_it_is_read_again_once_a_second() -> None:
    async def scene(node: Node) -> None:
        def tries() -> int:
            return sum(event == "read_failed" for _, event, _ in node.env.machine.events)

        fail(node, errno.EMFILE)
        await node.start()
        for _ in range(5):
            node.partition()._high_watermark_moved()
        before = tries()
        await node.env.clock.sleep(10.5)
        assert tries() - before == 10

    behind_a_clean_stop(scene)


def test_a_history_for_a_follower_that_has_left_meanwhile_is_nobodys_concern() -> None:
    """The task that was to send it ended the node: it took away what had been taken away."""

    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        stream = cluster[1].replication.leading._streams[BrokerId(2)]
        (feed,) = stream._feeds.values()
        stream._leave(frozenset([feed.slot]))
        fail(cluster[1], errno.EIO)
        feed.partition.log._producers = None
        await stream._send_producers(feed)
        assert not feed.partition.log.producers_loaded

    play(scene)
