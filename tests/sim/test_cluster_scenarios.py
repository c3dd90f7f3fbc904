"""Faults of a cluster of three, told step by step; each ends with everything healed, whole, and nothing lost or doubled."""

import asyncio

import pytest
from cluster_scene import TOPIC, Scene, play
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode

pytestmark = pytest.mark.slow
SEEDS = range(3)
FULL_S = 3.0  # a heartbeat, and an election of the controller where it was that, too
REFUSED = (
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.request_timed_out,
    ErrorCode.not_leader_or_follower,  # cut off from a quorum for longer than a session
)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_leader_costs_half_a_second_and_nothing_else(seed: int) -> None:
    """Issue B: the longest gap in acknowledgements when the leader is killed, not the controller."""

    async def scenario(scene: Scene) -> None:
        if scene.leader == scene.nodes.controller():
            pytest.skip("this seed's leader is the controller")
        old = scene.leader
        scene.kill(old)
        began = scene.world.loop.time()
        await scene.until_acknowledged(8)
        assert scene.leader != old
        assert scene.world.loop.time() - began < 0.5 + 0.2  # and the client's own pause

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_controller_that_leads_too_costs_a_second_and_a_half(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        controller = scene.nodes.controller()
        assert controller is not None
        scene.kill(controller)
        began = scene.world.loop.time()
        await scene.until_acknowledged(8)
        assert scene.nodes.controller() not in (None, controller)
        assert scene.world.loop.time() - began < 1.5 + 0.2

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_is_up_again_at_once_costs_no_session(seed: int) -> None:
    """Nobody was refused by its machine, so nobody knows that it died: it says so itself, as another process."""

    async def scenario(scene: Scene) -> None:
        old = scene.leader
        if old == scene.nodes.controller():
            pytest.skip("this seed's leader is the controller")
        scene.kill(old)
        scene.nodes.start(old)
        began = scene.world.loop.time()
        await scene.until_acknowledged(8)
        assert scene.world.loop.time() - began < 1.0 + 0.2

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pause_s", [0.0, 3.0])
def test_one_of_three_refuses_to_write_and_can_be_read(seed: int, pause_s: float) -> None:
    """Killed at once, the in-sync set still names both; one after the other, it has only the survivor."""

    async def scenario(scene: Scene) -> None:
        survivor = scene.leader
        acknowledged = scene.producer.acknowledged
        for follower in scene.followers:
            scene.kill(follower)
            await asyncio.sleep(pause_s)
        await asyncio.sleep(1.0)
        assert await scene.write(survivor) in REFUSED
        assert await scene.read() >= acknowledged
        assert scene.nodes.brokers[survivor].is_ready

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_slept_finds_itself_deposed_and_acknowledges_nothing(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        old = scene.leader
        scene.world.pause(node_name(old))
        await scene.until("another one leads", lambda: scene.leader != old)
        await scene.until_acknowledged(20)
        scene.world.resume(node_name(old))
        assert await scene.write(old, timeout_ms=300) is not ErrorCode.none
        await scene.until_acknowledged(20)

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_nodes_killed_at_once_come_back_with_everything(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        for node_id in scene.nodes.ids:
            scene.kill(node_id)
        await asyncio.sleep(0.5)
        scene.nodes.start_all()
        await scene.until_acknowledged(20, within_s=30)

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_power_anywhere_loses_nothing_that_was_acknowledged(seed: int) -> None:
    """flush.policy=ack, the default: what is acknowledged was synced by every replica that counts."""

    async def scenario(scene: Scene) -> None:
        for node_id in scene.nodes.ids:
            scene.world.crash(node_name(node_id), torn=True)
        await asyncio.sleep(0.5)
        scene.nodes.start_all()
        await scene.until_acknowledged(20, within_s=30)

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_loss_of_all_power_two_of_three_go_on_without_the_machine_that_stays_away(
    seed: int,
) -> None:
    """Both had synced everything. They left the ISR as they came, and all waited for the third, maybe for ever."""

    async def scenario(scene: Scene) -> None:
        for node_id in scene.nodes.ids:
            scene.world.crash(node_name(node_id), torn=True)
        await asyncio.sleep(0.5)
        for node_id in scene.nodes.ids[:2]:
            scene.nodes.start(node_id)
        await scene.until_acknowledged(20, within_s=30)

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_with_a_full_disk_leaves_the_isr_and_comes_back(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        follower = next(id_ for id_ in scene.followers if id_ != scene.nodes.controller())
        files = scene.world.disk(node_name(follower)).files
        files.capacity = files.used
        await scene.until("it leaves the ISR", lambda: follower not in scene.isr)
        await scene.until_acknowledged(20)
        files.capacity = None
        await scene.until("it is back", lambda: follower in scene.isr, within_s=30)

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_with_a_full_disk_lets_another_lead_until_it_has_room(seed: int) -> None:
    """Its partition took no records until there was room, though two others had some."""

    async def scenario(scene: Scene) -> None:
        old = scene.leader
        files = scene.world.disk(node_name(old)).files
        files.capacity = files.used
        await scene.until("another leads", lambda: scene.leader != old, within_s=FULL_S)
        await scene.until_acknowledged(20, within_s=FULL_S)
        await asyncio.sleep(10.0)
        assert scene.leader != old and old not in scene.isr
        await scene.until_acknowledged(20, within_s=FULL_S)
        files.capacity = None
        await scene.until("it is back", lambda: old in scene.isr, within_s=30)

    play(seed, scenario)


def test_a_former_leader_whose_log_failed_keeps_nobody_out_of_the_isr() -> None:
    """It was proposed twice a second, and refused; the third replica had everything, and its partition took no writes."""

    async def scenario(scene: Scene) -> None:
        state = scene.nodes.partition(TOPIC, 0)
        assert state is not None
        old, _, away = state.replicas
        scene.kill(away)
        await scene.until("it left", lambda: away not in scene.isr)
        scene.world.disk(node_name(old)).faults.fail("append", path=f"/data/{TOPIC}-0/*.log")
        failed = scene.nodes.broker(old).replicas
        await scene.until("the log fails", lambda: bool(failed.offline))
        await asyncio.sleep(0.5)
        scene.nodes.start(away)
        await scene.until("it is back", lambda: away in scene.isr, within_s=30)
        await scene.until_acknowledged(20)
        scene.kill(old)

    play(0, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_whose_disk_hangs_in_a_sync_leaves_the_isr_and_comes_back(seed: int) -> None:
    """It writes all that comes, and tells so: by what it had written it was in sync, and waited for, as long as it hung."""

    async def scenario(scene: Scene) -> None:
        follower = next(id_ for id_ in scene.followers if id_ != scene.nodes.controller())
        faults = scene.world.disk(node_name(follower)).faults
        faults.slow_sync_odds, faults.slow_sync_s = 1.0, (30.0, 30.0)
        await scene.until("it leaves the ISR", lambda: follower not in scene.isr, within_s=5)
        began = scene.world.loop.time()
        await scene.until_acknowledged(20)
        assert scene.world.loop.time() - began < 2.0
        faults.heal()
        await scene.until("it is back", lambda: follower in scene.isr, within_s=60)

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("operation", ["sync", "append"])
def test_a_follower_whose_log_failed_costs_the_others_nothing(seed: int, operation: str) -> None:
    async def scenario(scene: Scene) -> None:
        leader = scene.leader
        follower = next(id_ for id_ in scene.followers if id_ != scene.nodes.controller())
        faults = scene.world.disk(node_name(follower)).faults
        faults.fail(operation, path=f"/data/{TOPIC}-0/*.log")
        await scene.until("it leaves the ISR", lambda: follower not in scene.isr)
        await scene.until_acknowledged(20)
        assert scene.leader == leader
        await scene.nodes.stop(follower)
        scene.nodes.start(follower)
        await scene.until("it is back", lambda: follower in scene.isr, within_s=30)

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("whose", ["leader", "follower", "controller"])
def test_no_power_at_one_node_loses_nothing(seed: int, whose: str) -> None:
    async def scenario(scene: Scene) -> None:
        victims = {"leader": scene.leader, "follower": scene.followers[0]}
        victim = victims.get(whose, scene.nodes.controller())
        assert victim is not None
        scene.world.crash(node_name(victim), torn=True)
        await scene.until_acknowledged(20)
        scene.nodes.start(victim)
        await scene.until("it is back", lambda: victim in scene.isr, within_s=30)

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by_s", [-3600, -3, 3, 3600])
def test_clocks_that_somebody_sets_cost_nothing(seed: int, by_s: int) -> None:
    """One after another; leases and sessions go by the clock that nobody sets."""

    async def scenario(scene: Scene) -> None:
        before = scene.nodes.partition(TOPIC, 0)
        for node_id in scene.nodes.ids:
            scene.world.machine(node_name(node_id)).wall.jump(by_s * 1000)
            began = scene.world.loop.time()
            await scene.until_acknowledged(20)
            assert scene.world.loop.time() - began < 1.0
        after = scene.nodes.partition(TOPIC, 0)
        assert before is not None and after is not None
        assert (after.leader_epoch, after.isr) == (before.leader_epoch, before.isr)

    play(seed, scenario)


@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize(
    ("seed", "pair"), list(enumerate([(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]))
)
def test_any_two_nodes_that_do_not_hear_each_other_stop_nobody(
    seed: int, pair: tuple[int, int], one_way: bool
) -> None:
    """Places: the leader, and the two that follow it; the third node hears both."""

    async def scenario(scene: Scene) -> None:
        places = [scene.leader, *scene.followers]
        one, other = (node_name(places[place]) for place in pair)
        scene.world.net.cut(one, other, one_way=one_way)
        began = scene.world.loop.time()
        await scene.until_acknowledged(20)
        # A session, and what a client needs that asks the node that hears nothing of it.
        assert scene.world.loop.time() - began < 3.0 + 2.5
        await asyncio.sleep(5.0)
        began = scene.world.loop.time()
        await scene.until_acknowledged(20)
        assert scene.world.loop.time() - began < 1.0

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("operation", ["sync", "append"])
def test_a_leader_whose_log_failed_hands_over_at_once_and_takes_part_again_after_a_restart(
    seed: int, operation: str
) -> None:
    """It led until its node was started again: nobody could write, though two replicas were in sync."""

    async def scenario(scene: Scene) -> None:
        old = scene.leader
        faults = scene.world.disk(node_name(old)).faults
        faults.fail(operation, path=f"/data/{TOPIC}-0/*.log")
        replicas = scene.nodes.broker(old).replicas
        await scene.until("the log fails", lambda: bool(replicas.offline))
        began = scene.world.loop.time()
        await scene.until_acknowledged(8)
        assert scene.world.loop.time() - began < 0.5 + 0.2  # and the client's own pause
        assert scene.leader != old
        assert old in scene.nodes.ready(), "the node itself lives"
        state = scene.nodes.partition(TOPIC, 0)
        assert state is not None and state.offline == (old,) and old not in state.isr
        await scene.nodes.stop(old)
        scene.nodes.start(old)
        await scene.nodes.until_whole()
        assert sorted(scene.isr) == [1, 2, 3]

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("one_way", [False, True])
def test_a_leader_cut_off_from_the_others_is_replaced(seed: int, one_way: bool) -> None:
    """Clients still reach it: it may refuse or keep them waiting, not acknowledge."""

    async def scenario(scene: Scene) -> None:
        old = scene.leader
        for other in scene.followers:
            scene.world.net.cut(node_name(old), node_name(other), one_way=one_way)
        await scene.until("another one leads", lambda: scene.leader != old, within_s=30)
        await asyncio.sleep(1.0)
        # Not REQUEST_TIMED_OUT, on which real clients would ask this one again for five minutes.
        assert await scene.write(old, timeout_ms=300) in (
            ErrorCode.not_leader_or_follower,
            ErrorCode.not_enough_replicas,
        )
        await scene.until_acknowledged(20)

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rolling_restart_refuses_no_write(seed: int) -> None:
    """Leaders move before their node stops: the producer never waits for a session to time out."""

    async def scenario(scene: Scene) -> None:
        for node_id in scene.nodes.ids:
            began = scene.world.loop.time()
            await scene.nodes.stop(node_id)
            await scene.until_acknowledged(8)
            assert scene.world.loop.time() - began < 2.0
            scene.nodes.start(node_id)
            await scene.nodes.until_whole()

    play(seed, scenario)
