"""A replica that was copied anew when all had been deleted has no epoch at all, and leads with none until it writes."""

from asyncio import sleep

from fencepost.cluster.base.ids import BrokerId
from parted import comes_back_and_leads, leave_behind, retention_takes_all
from replica_cluster import Cluster, play
from replica_helpers import batch


async def copied_anew(cluster: Cluster) -> None:
    """All is deleted; then node 3 has an empty disk, copies what there is, which is nothing, and leads."""
    await retention_takes_all(cluster, up_to=5)
    one, two, three = map(BrokerId, (1, 2, 3))
    cluster.change(replicas=(one, two), isr=(two,), leader=2)
    cluster.change(replicas=(one, two, three))
    await cluster.until(lambda: 3 in cluster.state().isr)
    cluster.elect(3)
    await sleep(1.0)
    leader = cluster[3].partition()
    assert leader.log_start_offset == leader.log_end_offset == 5
    assert not leader.log.epochs.epochs


async def comes_back_to_a_leader_of_nothing(cluster: Cluster) -> None:
    for n in range(4):
        await cluster[2].write(batch(f"w{n}"))  # 1..4
    await sleep(1.0)
    await copied_anew(cluster)
    await comes_back_and_leads(cluster)


def test_who_comes_back_to_a_leader_that_has_no_epoch_forgets_who_wrote_what_nobody_has() -> None:
    async def scene(cluster: Cluster) -> None:
        await leave_behind(
            cluster,
            batch("a", pid=7, sequence=0),
            [batch("b", pid=7, sequence=1), *(batch(f"c{n}") for n in range(4))],
        )
        await comes_back_to_a_leader_of_nothing(cluster)
        done = cluster[1].produce(batch("b", pid=7, sequence=1))
        assert not getattr(done, "duplicate", False), done

    play(scene)


def test_who_comes_back_to_a_leader_that_has_no_epoch_holds_no_reader_at_what_nobody_has() -> None:
    """Its open transaction is of a history of its own: no coordinator ends that once more."""

    async def scene(cluster: Cluster) -> None:
        await leave_behind(
            cluster,
            batch("a"),
            [batch("t", pid=7, transactional=True), *(batch(f"c{n}") for n in range(4))],
        )
        await comes_back_to_a_leader_of_nothing(cluster)
        await cluster[1].write(batch("x"))
        led = cluster[1].partition()
        assert led.last_stable_offset == led.high_watermark

    play(scene)
