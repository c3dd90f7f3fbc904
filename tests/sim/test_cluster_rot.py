"""Bits that flip in what is on a disk: named, not believed, and mended from the others."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest
from cluster_scene import TOPIC, Scene
from fencepost.chaos.sim.cluster_disks import empty_disk
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.chaos.sim.cluster_stopped_rot import flip
from fencepost.chaos.sim.deaths import may_end_a_node
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.cluster_stream import StreamProducer, StreamReader
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.controller.commands import CreateTopics, NewTopic
from fencepost.cluster.wire.batch import headers_of

PAIR = "pair"


def play_with_rot(scenario, *, count: int = 3, config: Sequence[str] = ()) -> None:
    async def all_of_it(scene: Scene) -> None:
        await scene.start()
        await scenario(scene)
        await scene.finish()

    def may_end(name: str, why: BaseException) -> bool:
        return may_end_a_node(world.disk(name), why, rotten=True)

    with World(5, time_limit_s=600, deaths_allowed=may_end) as world:
        world.run(all_of_it(Scene(world, count, config=config)))


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["follower", "leader"])
def test_a_log_that_rotted_while_its_node_was_down_is_named_and_taken_out_of_use(
    whose: str,
) -> None:
    async def scenario(scene: Scene) -> None:
        node_id = scene.leader if whose == "leader" else scene.followers[0]
        name, disk = node_name(node_id), scene.world.disk(node_name(node_id))
        scene.kill(node_id)
        segment = max(
            path for path, node in disk.files.files()
            if path.startswith(f"/data/{TOPIC}-0/") and path.endswith(".log") and node.content
        )  # fmt: skip
        disk.files.file(segment).flip(100, 3)
        scene.nodes.rotten = node_id
        broker = scene.nodes.start(node_id)
        await scene.until("it is named", lambda: bool(broker.replicas.offline))
        (why,) = broker.replicas.offline.values()
        assert f"{segment} is damaged at position" in why
        await scene.until(
            "others stand in", lambda: scene.leader != node_id and node_id not in scene.isr
        )
        await scene.until_acknowledged(20)
        empty_disk(scene.world, name)
        scene.nodes.start(node_id)
        await scene.until("it is filled from the others", lambda: node_id in scene.isr)

    play_with_rot(scenario)


@pytest.mark.slow
def test_a_last_batch_whose_own_offset_rotted_before_a_start_after_a_power_cut_comes_from_the_leader_again() -> (
    None
):
    """No checksum covers it, and a gap is right in a log that was copied from a compacted one: the start can't know. But the leader's
    history ends before it, so that it is cut, down to where the batch before it ends."""

    async def scenario(scene: Scene) -> None:
        await scene.until_acknowledged(20)
        node_id = scene.followers[0]
        disk = scene.world.disk(node_name(node_id))
        scene.world.crash(node_name(node_id), torn=False)
        log = disk.files.file(f"/data/{TOPIC}-0/00000000000000000000.log")
        *_, (position, last) = headers_of(bytes(log.content))
        log.flip(position + 5, 7)
        scene.nodes.rotten = BrokerId(node_id)
        broker = scene.nodes.start(node_id)
        await scene.nodes.until_ready()
        events = scene.world.machine(node_name(node_id)).events
        ends = [told["log_end_offset"] for _, event, told in events if event == "log_recovered"]
        assert last.next_offset + 2**23 in ends
        await scene.until("it is in sync", lambda: node_id in scene.isr)
        assert not log.flips and not broker.replicas.offline
        await scene.until_acknowledged(20)

    play_with_rot(scenario)


@pytest.mark.slow
def test_a_node_whose_metadata_rotted_ends_with_the_file_and_comes_back_with_an_empty_disk() -> (
    None
):
    async def scenario(scene: Scene) -> None:
        node_id = scene.nodes.controller()
        assert node_id is not None
        name, disk = node_name(node_id), scene.world.disk(node_name(node_id))
        scene.kill(node_id)
        journal = min(path for path, _ in disk.files.files() if path.endswith(".journal"))
        disk.files.file(journal).flip(200, 3)
        scene.nodes.start(node_id)
        await scene.until("it has ended", lambda: not scene.nodes.is_up(node_id))
        _, reason = scene.world.deaths[-1]
        assert isinstance(reason, LogDamaged)
        assert journal in str(reason)
        await scene.until_acknowledged(20)
        empty_disk(scene.world, name)
        scene.nodes.start(node_id)
        await scene.nodes.until_whole()

    play_with_rot(scenario)


@pytest.mark.slow
def test_a_reader_takes_nothing_that_rotted_under_a_leader_and_goes_on_with_the_next() -> None:
    """Sealed segments go from the disk to the socket unread, as in Kafka: it is the client's checksum that sees it."""

    async def scenario(scene: Scene) -> None:
        await scene.until_acknowledged(200)
        node_id = scene.leader
        disk = scene.world.disk(node_name(node_id))
        first = f"/data/{TOPIC}-0/00000000000000000000.log"
        disk.files.file(first).flip(100, 3)
        client = scene.client("early")
        reader = StreamReader(client, TOPIC, 0, scene.history, name="early")
        reading = asyncio.ensure_future(scene.world.on(scene.env, reader.read_all()))
        await scene.until("the client sees it", lambda: client.damaged > 0)
        assert reader.offset == 0, "it has taken something of the damaged batch"
        empty_disk(scene.world, node_name(node_id))
        scene.nodes.start(node_id)
        async with asyncio.timeout(20):
            await reading
        assert reader.offset > 200

    play_with_rot(scenario)


@pytest.mark.slow
def test_a_reader_that_the_last_copy_tells_of_damage_goes_on_when_another_is_back() -> None:
    """CORRUPT_MESSAGE is no broken promise: the one that is in sync and down has all of it."""

    async def scenario(scene: Scene) -> None:
        last, other = BrokerId(4), BrokerId(3)
        name, disk = node_name(last), scene.world.disk(node_name(last))
        work = scene.nodes.broker(last).controller.execute(
            CreateTopics(topics=(NewTopic(name=PAIR, assignments=((0, (last, other)),)),))
        )
        await scene.world.on(scene.world.node(name), work)
        await scene.nodes.until_whole()
        writer = StreamProducer(scene.client("writer"), PAIR, 0, [], pause_s=0.01)
        writing = asyncio.ensure_future(scene.world.on(scene.env, writer.run()))
        await scene.until("all of it is on both", lambda: writer.acknowledged > 100)
        writer.stopping = True
        await writing
        scene.kill(other)
        await scene.until("one is left", lambda: isr_of_pair(scene) == {last})
        await scene.nodes.stop(last)
        disk.files.file(f"/data/{PAIR}-0/00000000000000000000.log").flip(100, 3)
        scene.nodes.rotten = last
        scene.nodes.start(last)
        client = scene.client("late")
        reader = StreamReader(client, PAIR, 0, [], name="late")
        reading = asyncio.ensure_future(scene.world.on(scene.env, reader.read_all()))
        await scene.until("it is told so", lambda: client.damaged > 0)
        assert reader.offset == 0 and isr_of_pair(scene) == {last}
        scene.nodes.start(other)
        await scene.until("the other leads", lambda: scene.nodes.leader(PAIR, 0) == other)
        async with asyncio.timeout(20):
            await reading
        assert reader.offset > 100
        empty_disk(scene.world, name)
        scene.nodes.start(last)
        await scene.nodes.until_whole()

    play_with_rot(scenario, count=4)


def isr_of_pair(scene: Scene) -> set[int]:
    state = scene.nodes.partition(PAIR, 0)
    return set() if state is None else set(state.isr)


class _Hand:
    """What `flip` needs of the faults of a run."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.world, self.nodes, self.rng = scene.world, scene.nodes, random.Random(seed)


async def stopped_and_flipped(scene: Scene, node_id: int, seed: int) -> None:
    """A clean stop; then one bit of one log, of all that the node has."""
    await scene.until_acknowledged(100)
    await scene.nodes.stop(node_id)
    flip(cast("Any", _Hand(scene, seed)), BrokerId(node_id))
    scene.nodes.rotten = BrokerId(node_id)
    scene.nodes.start(node_id)
    await scene.nodes.until_ready()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("whose", ["follower", "leader"])
def test_what_flips_while_a_node_is_stopped_is_found_by_its_next_start(
    whose: str, seed: int
) -> None:
    async def scenario(scene: Scene) -> None:
        node_id = scene.leader if whose == "leader" else scene.followers[0]
        await stopped_and_flipped(scene, node_id, seed)
        broker = scene.nodes.broker(node_id)
        assert broker.replicas.store.was_clean
        await scene.nodes.until("it is found", scene.nodes.unfound, within_s=60.0)
        await scene.until("it is out of use", lambda: bool(broker.replicas.offline))
        await scene.until_acknowledged(20)
        empty_disk(scene.world, node_name(node_id))
        scene.nodes.start(node_id)
        await scene.nodes.until_whole()

    play_with_rot(scenario)


@pytest.mark.slow
def test_a_node_that_never_reads_its_logs_again_is_not_let_off() -> None:
    """The scene must see a scrub that does not work, or it proves nothing."""

    async def scenario(scene: Scene) -> None:
        node_id = scene.followers[0]
        await stopped_and_flipped(scene, node_id, 0)
        with pytest.raises(AssertionError, match="which has not found it"):
            await scene.nodes.until("it is found", scene.nodes.unfound, within_s=30.0)
        empty_disk(scene.world, node_name(node_id))
        scene.nodes.start(node_id)
        await scene.nodes.until_whole()

    play_with_rot(scenario, config=("log.scrub.bytes.per.second=0",))
