"""DeleteRecords takes what tells where two logs part: a former leader with an end above it begins anew."""

from asyncio import sleep

from fencepost.cluster.base.errors import ErrorCode
from parted import leave_behind
from replica_cluster import Cluster, play
from replica_helpers import batch
from test_partition_waits import marker


def test_a_former_leader_whose_end_is_inside_a_batch_of_its_successor_comes_back() -> None:
    """DeleteRecords up to just where the old leader's own history ends, inside a batch of its successor."""

    async def scene(cluster: Cluster) -> None:
        await leave_behind(cluster, batch("a"), (batch(f"never {n}") for n in range(5)))
        await cluster[2].write(batch(*[f"w{n}" for n in range(10)]))  # 1..10
        leader = cluster[2].partition()
        cluster[2].do(leader.delete_records, 4)
        assert await leader.deleted(4) is ErrorCode.none
        await cluster.restart(1)
        await sleep(60)
        assert 1 in cluster.state().isr

    play(scene)


def test_a_former_leader_forgets_who_wrote_what_nobody_has() -> None:
    """The same, at the edge of a batch: the old leader keeps the producer by which it knows what it alone had."""

    async def scene(cluster: Cluster) -> None:
        await leave_behind(
            cluster, batch("a", pid=7, sequence=0), [batch("b", pid=7, sequence=1), batch("c")]
        )
        for n in range(4):
            await cluster[2].write(batch(f"w{n}"))  # 1..4
        leader = cluster[2].partition()
        cluster[2].do(leader.delete_records, 3)
        assert await leader.deleted(3) is ErrorCode.none
        await cluster.restart(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        cluster.elect(1)
        await sleep(1.0)
        done = cluster[1].produce(batch("b", pid=7, sequence=1))
        assert not getattr(done, "duplicate", False)

    play(scene)


def test_a_transaction_that_a_former_leader_alone_had_does_not_hold_up_readers() -> None:
    """Its abort marker is among what was deleted."""

    async def scene(cluster: Cluster) -> None:
        await leave_behind(
            cluster, batch("a"), [batch("b", pid=7, sequence=0, transactional=True), batch("c")]
        )
        leader = cluster[2].partition()
        # its transaction is aborted by its coordinator: the marker is at 1, where the records were on node 1
        cluster[2].do(
            leader.append_as_leader,
            marker(7, commit=False),
            required_acks=-1,
            now_ms=0,
            origin_client=False,
        )
        for n in range(4):
            await cluster[2].write(batch(f"w{n}"))  # 2..5
        cluster[2].do(leader.delete_records, 3)
        assert await leader.deleted(3) is ErrorCode.none
        await cluster.restart(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        cluster.elect(1)
        await cluster[1].write(batch("later"))
        await sleep(5.0)
        first = cluster[1].partition()
        assert first.last_stable_offset == first.high_watermark

    play(scene)
