"""A log that begins in what compaction has taken out: a copy of it knows its first epoch from a later offset on.

`cleanup.policy=compact,delete`: deletion moves the start to where a segment ended, or where somebody said, and the batch with which
the epoch began has gone.
"""

from asyncio import sleep
from collections.abc import Awaitable, Callable
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from replica_cluster import Cluster, play, values_of
from replica_helpers import batch
from test_partition_waits import marker

B = BrokerId
HOUR_MS = 3_600_000
SIZE = 400_000  # two or three fill a segment


def create(cluster: Cluster, **more: str) -> None:
    policy = {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": "0"}
    cluster.create(**policy, min_insync_replicas="2", **more)


async def a_former_leader_is_back(
    cluster: Cluster,
    put: Callable[..., bytes],
    *,
    alone: Callable[[], Any],
    meanwhile: Callable[[], Awaitable[None]],
    delete: Callable[[], Awaitable[None]],
) -> None:
    """1. node 1 leads, and is cut off with what nobody else has   2. node 2 leads; its first records are superseded, and its log
    then begins among them   3. node 3 copies that log anew, and leads   4. node 1 is back, in sync, and leads."""
    await cluster[1].write(put("k", "committed"))  # 0
    await cluster[1].write(put("x", "0"))  # 1
    await sleep(1.0)
    cluster.world.net.cut("node-1", "node-2")
    cluster.world.net.cut("node-1", "node-3")
    cluster.deaf.add(1)
    for number in range(3):
        cluster[1].append(put(f"n{number}", f"never {number}"))  # 2 to 4
    alone()  # 5
    await sleep(1.0)
    cluster.kill(1)
    cluster.deaf.discard(1)
    cluster.elect(2, isr=(B(2), B(3)))
    cluster.world.net.heal_all()
    await meanwhile()
    await sleep(60)
    await delete()
    cluster.change(replicas=(B(1), B(2)), isr=(B(2),))
    await sleep(1)
    cluster.change(replicas=(B(1), B(2), B(3)))
    await cluster.until(lambda: 3 in cluster.state().isr)
    copied = cluster[3].partition().log
    assert copied.epochs.starts[0] > copied.log_start_offset > 0, "there is no hole at the start"
    cluster.elect(3)
    await sleep(1.0)
    await cluster.restart(1)
    await cluster.until(lambda: 1 in cluster.state().isr)
    cluster.elect(1)
    await sleep(1.0)


def by_order(cluster: Cluster) -> Callable[[], Awaitable[None]]:
    async def delete() -> None:
        leader = cluster[2].partition()
        cluster[2].do(leader.delete_records, 4)
        assert await leader.deleted(4) is ErrorCode.none

    return delete


def test_what_is_acknowledged_once_is_there_once() -> None:
    """A producer's batch reaches the leader that is cut off, and is sent again to the next one."""

    async def scene(cluster: Cluster) -> None:
        create(cluster)
        now = cluster[1].env.clock.now_ms

        def put(key: str, value: str, **more: Any) -> bytes:
            return batch(value, key=key.encode(), timestamp=now(), **more)

        def paid() -> bytes:
            return put("paid", "paid", pid=7, sequence=0)

        async def meanwhile() -> None:
            for number in range(10):  # 2 to 11
                await cluster[2].write(put("x", str(number)))
            cluster[2].do(cluster[2].partition().log.roll, now())
            assert await cluster[2].write(paid()) == 12

        await a_former_leader_is_back(
            cluster,
            put,
            alone=lambda: cluster[1].produce(paid()),
            meanwhile=meanwhile,
            delete=by_order(cluster),
        )
        values = values_of(cluster[1].partition())
        assert values.count(b"paid") == 1
        assert not [each for each in values if each.startswith(b"never")]

    play(scene)


def test_no_transaction_stays_open_whose_end_was_deleted() -> None:
    async def scene(cluster: Cluster) -> None:
        create(cluster, delete_retention_ms="0")
        now = cluster[1].env.clock.now_ms

        def put(key: str, value: str, **more: Any) -> bytes:
            return batch(value, key=key.encode(), timestamp=now(), **more)

        async def meanwhile() -> None:
            leader = cluster[2].partition()
            aborted = {"required_acks": -1, "now_ms": 0, "origin_client": False}
            cluster[2].do(leader.append_as_leader, marker(7, commit=False), **aborted)  # 2
            for number in range(9):  # 3 to 11
                await cluster[2].write(put("x", str(number)))
            cluster[2].do(leader.log.roll, now())
            await cluster[2].write(put("y", "1"))

        opened = put("t", "in a transaction", pid=7, sequence=0, transactional=True)
        await a_former_leader_is_back(
            cluster,
            put,
            alone=lambda: cluster[1].produce(opened),
            meanwhile=meanwhile,
            delete=by_order(cluster),
        )
        await cluster[1].write(put("z", "later"))
        await sleep(5)
        first = cluster[1].partition()
        assert first.last_stable_offset == first.high_watermark

    play(scene)


def test_retention_alone_begins_a_log_among_what_was_compacted() -> None:
    async def scene(cluster: Cluster) -> None:
        create(cluster, segment_bytes="1048576", retention_ms=str(HOUR_MS))
        now = cluster[1].env.clock.now_ms
        old = now() - 2 * HOUR_MS

        def put(key: str, value: str, at: int | None = old) -> bytes:
            return batch(value + "." * SIZE, key=key.encode(), timestamp=at or now())

        async def meanwhile() -> None:
            for number in range(10):  # 2 to 11
                await cluster[2].write(put("x", str(number), old if number < 2 else None))
            await cluster[2].write(put("y", "1", None))

        async def delete() -> None:
            for each in (2, 3):
                node = cluster[each]
                await cluster.world.on(node.env, node.manager.rounds.retain())
            await sleep(5)

        await a_former_leader_is_back(
            cluster, put, alone=lambda: None, meanwhile=meanwhile, delete=delete
        )
        values = values_of(cluster[1].partition())
        assert values
        assert not [each for each in values if each.startswith(b"never")]

    play(scene)
