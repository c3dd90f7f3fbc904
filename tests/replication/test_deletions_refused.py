"""A deletion that its disk refused leaves the old log to the checkpoints, which speak of it under the name of the next one."""

import errno
from asyncio import sleep

import pytest
import replica_cluster
from replica_cluster import Cluster, play, values_of
from replica_helpers import batch, id_of


@pytest.mark.parametrize(("how", "writes"), [("kill", True), ("kill", False), ("crash", False)])
@pytest.mark.parametrize("fault", [("sync", "*partition-offsets*"), ("rename", "*/orders-0")])
def test_a_topic_made_again_is_no_other(
    monkeypatch: pytest.MonkeyPatch, how: str, writes: bool, fault: tuple[str, str]
) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(replicas=(1,), min_insync_replicas="1")
        await sleep(1.0)
        for n in range(20):
            await cluster[1].write(batch(f"old {n}"))
        kind, path = fault
        cluster.world.disk("node-1").faults.fail(kind, path=path, number=errno.EIO)
        cluster.delete()
        monkeypatch.setattr(replica_cluster, "id_of", lambda name: id_of(name + " again"))
        cluster.create(replicas=(1,), min_insync_replicas="1", flush_policy="os")
        await sleep(0.01)
        if writes:
            await cluster[1].write(batch("new"))
        await sleep(2.0)
        getattr(cluster, how)(1)
        await cluster.restart(1)
        await sleep(1.0)
        assert cluster[1].manager.offline == {}
        assert values_of(cluster[1].partition()) == [b"new"] * writes

    play(scene)
