"""A node's folder is put back as it was: from a backup, or from a snapshot of its machine."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest
from fencepost.chaos.sim.cluster_disks import copy_of_disk, empty_disk, put_back
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.exit_codes import EXIT_IDENTITY, CannotRun
from fencepost.node.kept_lives import RENEW_S
from sim_cluster import Cluster

META, LIVES = "/data/meta.properties", "/data/peer.lives"
Copy = dict[str, bytes]
THREE = node_name(3)


def life_of(cluster: Cluster, node_id: int) -> int:
    lines = bytes(cluster.world.disk(node_name(node_id)).files.file(META).content).decode()
    return next(int(line[5:]) for line in lines.splitlines() if line.startswith("life="))


async def cold_copy(cluster: Cluster) -> Copy:
    """Of a node that was stopped for it."""
    await cluster.nodes.stop(3)
    copy = copy_of_disk(cluster.world, THREE)
    cluster.nodes.start(3)
    await cluster.nodes.until_whole()
    return copy


async def copy_of_the_first_day(cluster: Cluster) -> Copy:
    """Of the first process that had the folder: when it greeted its peers that belonged to no cluster yet."""
    copy = copy_of_disk(cluster.world, THREE)
    lines = [line for line in copy[META].splitlines() if not line.startswith(b"life")]
    copy[META] = b"\n".join([*lines, b"life=1", b"life.names=123", b""])  # as if it was another one
    return copy


async def warm_copy(cluster: Cluster) -> Copy:
    """Of one that ran on, and was started again some time later."""
    copy = copy_of_disk(cluster.world, THREE)
    await cluster.nodes.stop(3)
    cluster.nodes.start(3)
    await cluster.nodes.until_whole()
    return copy


async def copy_of_a_long_run(cluster: Cluster) -> Copy:
    """Of one that was not started again since, and runs for longer than a life."""
    copy = copy_of_disk(cluster.world, THREE)
    await asyncio.sleep(RENEW_S + 10)
    return copy


def play(
    make: Callable[[Cluster], Awaitable[Copy]],
    scenario: Callable[[Cluster, Copy], Awaitable[None]],
) -> Cluster:
    cluster = Cluster(seed="before", deaths_allowed=True)

    async def all_of_it() -> None:
        await cluster.create("t")
        await cluster.nodes.until_whole()
        copy = await make(cluster)
        await scenario(cluster, copy)

    cluster.play(all_of_it)
    return cluster


def check_ended(cluster: Cluster, *words: str) -> None:
    for name, reason in cluster.world.deaths:
        assert name == THREE
        assert isinstance(reason, CannotRun)
        assert reason.exit_code == EXIT_IDENTITY
        said = str(reason)
        for word in ("/data is older", "may lack what this node acknowledged", *words):
            assert word in said, said
    assert cluster.world.deaths, "it was let in"


@pytest.mark.parametrize("make", [cold_copy, warm_copy, copy_of_a_long_run, copy_of_the_first_day])
def test_what_was_acknowledged_outlives_a_voters_folder_of_before(
    make: Callable[[Cluster], Awaitable[Copy]],
) -> None:
    """1. 1 and 3 acknowledge a record and a topic while 2 is down   2. all end, the folder of 3 is put back, 2 comes first."""

    async def scenario(cluster: Cluster, copy: Copy) -> None:
        cluster.kill(2)
        await cluster.until(lambda: 2 not in cluster.partition().isr)
        assert await cluster.produce(cluster.partition().leader) is ErrorCode.none
        t = cluster.topic_id
        assert (await cluster.create("acknowledged", copies=2)).error_code is ErrorCode.none
        cluster.topic_id = t
        for each in (1, 3):
            cluster.kill(each)
        put_back(cluster.world, THREE, copy)
        for each in (2, 3):
            cluster.nodes.start(each)
        await asyncio.sleep(10)
        cluster.nodes.start(1)
        await cluster.until(lambda: {1, 2} <= set(cluster.nodes.ready()))
        for each in cluster.nodes.ready():
            assert "acknowledged" in cluster.nodes.broker(each).image.topics, f"lost on {each}"
        check_ended(cluster, "node 2 has seen", "as after a disk was replaced")
        empty_disk(cluster.world, THREE)
        cluster.nodes.start(3)
        await cluster.nodes.until_whole()
        for each in cluster.nodes.ids:
            assert "acknowledged" in cluster.nodes.broker(each).image.topics
        found = await cluster.fetch(cluster.partition().leader)
        assert found.high_watermark == 1

    play(make, scenario)


def test_a_node_that_is_put_back_while_the_others_run_ends_and_they_go_on() -> None:
    async def scenario(cluster: Cluster, copy: Copy) -> None:
        cluster.kill(3)
        put_back(cluster.world, THREE, copy)
        for _ in range(3):  # whoever starts it again hears the same
            cluster.nodes.start(3)
            await cluster.until(lambda: not cluster.nodes.is_up(3), within_s=1.0)
        check_ended(cluster)
        await cluster.until(lambda: 3 not in cluster.leaders())
        assert await cluster.produce(cluster.leaders()[0]) is ErrorCode.none
        assert any(
            "its folder is one of before" in str(each) for each in cluster.events(1, "peer_refused")
        )

    play(cold_copy, scenario)


def test_who_was_down_as_a_whole_still_knows_and_damage_keeps_nobody_out() -> None:
    async def scenario(cluster: Cluster, _copy: Copy) -> None:
        for each in cluster.nodes.ids:
            await cluster.nodes.stop(each)
        cluster.world.disk(node_name(1)).files.file(LIVES).flip(3, 1)
        before = [life_of(cluster, each) for each in cluster.nodes.ids]
        cluster.nodes.start_all()
        await cluster.nodes.until_whole()
        assert [life_of(cluster, each) for each in cluster.nodes.ids] == [
            1 + each for each in before
        ]
        assert len(cluster.events(1, "peer_lives_unreadable")) == 1
        assert not cluster.world.deaths

    play(cold_copy, scenario)


def test_who_was_down_while_it_lived_hears_of_that_from_the_others() -> None:
    """1. 3 has another life while 2 is down   2. 3 ends, 2 is back, 1 ends   3. 3 is put back, and meets 2 alone."""

    async def scenario(cluster: Cluster, _copy: Copy) -> None:
        await cluster.nodes.stop(3)
        copy = copy_of_disk(cluster.world, THREE)
        cluster.kill(2)
        cluster.nodes.start(3)
        await cluster.until(lambda: set(cluster.nodes.ready()) == {1, 3})
        cluster.kill(3)
        cluster.nodes.start(2)
        await cluster.until(lambda: set(cluster.nodes.ready()) == {1, 2})
        await asyncio.sleep(1)
        cluster.kill(1)
        put_back(cluster.world, THREE, copy)
        cluster.nodes.start(3)
        await cluster.until(lambda: bool(cluster.world.deaths), within_s=5)
        check_ended(cluster, "node 2 has seen")

    play(cold_copy, scenario)


def test_a_node_whose_disk_is_full_when_it_starts_is_let_in_and_told_apart_later() -> None:
    async def scenario(cluster: Cluster, copy: Copy) -> None:
        await cluster.nodes.stop(3)
        before = life_of(cluster, 3)
        wrong = cluster.world.disk(THREE).faults
        wrong.fail("create", path=f"{META}*", number=errno.ENOSPC)
        cluster.nodes.start(3)
        await cluster.nodes.until_whole()
        wrong.planned.clear()
        assert len(cluster.events(3, "life_not_written")) == 1
        assert life_of(cluster, 3) == before
        await asyncio.sleep(RENEW_S)
        assert life_of(cluster, 3) == before + 1
        cluster.kill(3)
        put_back(cluster.world, THREE, copy)
        cluster.nodes.start(3)
        await cluster.until(lambda: bool(cluster.world.deaths))
        check_ended(cluster)

    play(cold_copy, scenario)


def test_a_full_disk_of_the_others_keeps_nobody_out_and_they_write_it_down_later() -> None:
    async def scenario(cluster: Cluster, _copy: Copy) -> None:
        await cluster.nodes.stop(3)
        wrong = cluster.world.disk(node_name(1)).faults
        wrong.fail("append", path=f"{LIVES}*", number=errno.ENOSPC)
        cluster.nodes.start(3)
        await cluster.nodes.until_whole()
        assert len(cluster.events(1, "peer_lives_not_kept")) == 1
        kept = cluster.world.disk(node_name(1)).files.file(LIVES)
        told = f" {life_of(cluster, 3)} "
        assert told.encode() not in bytes(kept.content)
        await asyncio.sleep(15)
        kept = cluster.world.disk(node_name(1)).files.file(LIVES)
        assert told.encode() in bytes(kept.content)

    play(cold_copy, scenario)
