"""The scene that deletes records: it happens, it is judged, and seeds without it are what they were."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from cluster_scene import TOPIC, Scene
from fencepost.chaos.campaigns.campaign import Outcome, run_plan
from fencepost.chaos.checkers.observations import Deletion
from fencepost.chaos.sim.cluster import ClusterRun
from fencepost.chaos.sim.cluster_admin import Admin
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.chaos.sim.cluster_watch import ClusterBroken
from fencepost.chaos.sim.deleting import DELETIONS, ODDS, Deleting, is_drawn
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.cluster_stream import StreamReader, ToldToEnd
from fencepost.chaos.workloads.deleter import where_it_begins
from fencepost.cluster.base.ids import TopicPartition

NAME = TopicPartition(TOPIC, 0)
KEY = f"{TOPIC}-0"
SMALL = ("log.internal.segment.bytes=1024", "log.retention.check.interval.ms=50")


def run(seed: int, **what: object) -> Outcome:
    plan = Plan(campaign="cluster", seed=seed, seconds=5.0, workloads=(DELETIONS,), **what)  # type: ignore[arg-type]
    return run_plan(plan)


def play(scenario: Callable[[Scene, Deleting], Awaitable[None]]) -> None:
    """With a scene whose deleters do nothing by themselves; nodes keep small files."""

    async def all_of_it(scene: Scene) -> None:
        await scene.start()
        deleting = Deleting(
            scene.nodes, scene.watch, (TOPIC, 1), lambda _, name: scene.client(name)
        )
        await scenario(scene, deleting)
        deleting.look()
        await asyncio.sleep(0)

    with World(1, time_limit_s=600) as world:
        world.run(all_of_it(Scene(world, config=SMALL)))


async def delete(scene: Scene, deleting: Deleting, before: int) -> None:
    deleter = deleting.deleters[0]

    async def once() -> None:
        leader = await deleter.client.leader_now(TOPIC, 0)
        await deleter._delete(leader, before)

    while not deleter.answers.get("none"):
        await scene.world.on(scene.env, once())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_records_are_deleted_and_nothing_else_is_lost_whatever_fails(seed: int) -> None:
    outcome = run(seed)
    assert not outcome.failure, outcome.failure
    assert outcome.counts["deletions"] > 5
    assert outcome.counts["deleted"] > 50
    assert outcome.counts["readers overtaken"] > 0


def test_it_is_in_about_a_fifth_of_the_seeds_and_in_those_that_ask_for_it() -> None:
    drawn = 0
    for seed in range(300):
        with World(seed) as world:
            drawn += is_drawn(world.stream)
    assert 0.7 * ODDS < drawn / 300 < 1.4 * ODDS
    for workloads, is_there in (((DELETIONS,), True), (("light",), False)):
        made = ClusterRun(Plan(campaign="cluster", seed=1, workloads=workloads))
        made.world.close()
        assert (made.deleting is not None) is is_there


def test_a_log_that_begins_where_nobody_asked_is_seen() -> None:
    async def scenario(scene: Scene, deleting: Deleting) -> None:
        await delete(scene, deleting, 5)
        log = scene.nodes.broker(scene.leader).replicas.partitions[NAME].log
        assert log.log_start_offset == 5
        deleting.look()
        log.delete_records_before(6)

    with pytest.raises(ClusterBroken, match=f"over-deleted: {KEY}: it begins at 6"):
        play(scenario)


def test_a_leader_that_shows_what_was_deleted_is_seen() -> None:
    async def scenario(scene: Scene, deleting: Deleting) -> None:
        await delete(scene, deleting, 5)
        scene.nodes.broker(scene.leader).replicas.partitions[NAME].log.log_start_offset = 4

    with pytest.raises(ClusterBroken, match=f"undeleted: {KEY}: it begins at 4"):
        play(scenario)


def test_a_reader_that_nobody_has_overtaken_is_told_to_end() -> None:
    """It goes on only where a leader says that its log begins behind the reader."""

    async def scenario(scene: Scene, deleting: Deleting) -> None:
        reader = deleting.reader(scene.client("r"), 0, scene.history)
        reader.offset = 1 << 40  # behind the end
        await scene.world.on(scene.env, reader.run())

    with pytest.raises(ToldToEnd, match="offset_out_of_range"):
        play(scenario)


def test_a_reader_that_was_overtaken_goes_on_where_the_log_begins() -> None:
    async def scenario(scene: Scene, deleting: Deleting) -> None:
        await delete(scene, deleting, 5)
        scene.producer.stopping = True
        reader = deleting.reader(scene.client("r"), 0, scene.history)
        await scene.world.on(scene.env, reader.read_all())
        seen = [op.offset for op in scene.history if op.f == "read"]
        assert seen == list(range(5, reader.offset))
        assert reader.overtaken == 1
        with pytest.raises(ToldToEnd):
            await scene.world.on(
                scene.env, StreamReader(scene.client("other"), TOPIC, 0, []).read_all()
            )

    play(scenario)


def test_a_file_of_which_all_was_deleted_and_which_stays_is_seen() -> None:
    async def scenario(scene: Scene, deleting: Deleting) -> None:
        await scene.until_acknowledged(200)
        log = scene.nodes.broker(scene.leader).replicas.partitions[NAME].log
        first, behind = log.segments[0].path, log.bases[2]
        await delete(scene, deleting, behind)
        assert first.rpartition("/")[2] in deleting.not_everywhere()
        await scene.nodes.until("files go", deleting.not_everywhere, within_s=5)
        files = scene.world.disk(node_name(scene.leader)).files
        assert files.find(first) is None

    play(scenario)


def test_a_log_that_nobody_has_written_to_has_no_folder_and_nothing_left() -> None:
    """The scene ended with an error of its own (transactions, seed 115114)."""

    async def scenario(scene: Scene, _: Deleting) -> None:
        admin = Admin(scene.client("admin"), scene.nodes, "quiet")
        await scene.world.on(scene.env, admin.create("quiet", 1))
        await scene.nodes.until_whole()
        quiet = Deleting(scene.nodes, scene.watch, ("quiet", 1), lambda _, name: scene.client(name))
        assert len(list(quiet._copies())) == 3
        assert quiet.not_everywhere() == ""

    play(scenario)


def test_who_is_told_nothing_knows_nothing_of_where_it_begins() -> None:
    """An answer that is lost leaves it open what was deleted: neither the old start nor the new one is wrong."""

    async def scenario(scene: Scene, deleting: Deleting) -> None:
        deleting.see(Deletion("d", KEY, "asked", 5))
        deleting.look()
        scene.nodes.broker(scene.leader).replicas.partitions[NAME].log.delete_records_before(5)
        deleting.see(Deletion("d", KEY, "info", 5))
        deleting.look()
        client = scene.client("looks")

        async def ask() -> int | None:
            leader = await client.leader_now(TOPIC, 0)
            return await where_it_begins(leader, TOPIC, 0, deleting.judge, "looks")

        assert await scene.world.on(scene.env, ask()) == 5
        assert deleting.deletions.low(KEY) == 0

    play(scenario)
