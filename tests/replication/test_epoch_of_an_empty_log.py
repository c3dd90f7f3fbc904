"""All of a log has been deleted by retention. Its last epoch stands at its end, and a start after a kill drops it: nothing tells
a former leader any more that its history is its own."""

from asyncio import sleep

import pytest
from fencepost.cluster.base.ids import BrokerId
from parted import comes_back_and_leads, leave_behind, retention_takes_all
from replica_cluster import Cluster, play
from replica_helpers import batch


async def all_is_deleted(cluster: Cluster, how: str) -> None:
    await retention_takes_all(cluster, up_to=5)
    leader = cluster[2].partition()
    assert leader.log.epochs.epochs == [1], leader.log.epochs.epochs
    if how == "none":
        return
    for each in (2, 3):
        if how == "clean":
            await cluster.stop(each)
        else:
            getattr(cluster, how)(each)
    cluster.elect(2, isr=(BrokerId(2), BrokerId(3)))
    for each in (2, 3):
        await cluster.restart(each)
    await sleep(1.0)
    leader = cluster[2].partition()
    assert leader.log_start_offset == leader.log_end_offset == 5


@pytest.mark.parametrize("how", ["none", "clean", "kill", "crash"])
def test_a_former_leader_forgets_who_wrote_what_nobody_has(how: str) -> None:
    async def scene(cluster: Cluster) -> None:
        await leave_behind(
            cluster,
            batch("a", pid=7, sequence=0),
            [batch("b", pid=7, sequence=1), *(batch(f"c{n}") for n in range(4))],
        )
        for n in range(4):
            await cluster[2].write(batch(f"w{n}"))  # 1..4
        await sleep(1.0)
        await all_is_deleted(cluster, how)
        await comes_back_and_leads(cluster)
        done = cluster[1].produce(batch("b", pid=7, sequence=1))
        assert not getattr(done, "duplicate", False), done

    play(scene)
