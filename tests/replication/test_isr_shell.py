"""Wishes for ISR changes on their way to a controller that may be slow, gone or of another opinion."""

from asyncio import sleep, timeout
from itertools import pairwise

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.replication.partition import Refusal
from fencepost.replication.replication import IsrWish
from replica_cluster import Cluster, play
from replica_helpers import batch

BOTH = (BrokerId(1), BrokerId(2))


async def with_three_out(cluster: Cluster, partitions: int = 1) -> None:
    """Node 3 is gone, and node 1 leads all of them without it."""
    cluster.create(
        partitions=partitions, leaders=[1] * partitions, min_insync_replicas="2", flush_policy="os"
    )
    await cluster[1].write(batch("a"))
    cluster.kill(3)
    for index in range(partitions):
        cluster.change(index=index, isr=BOTH)


def test_one_call_brings_a_follower_back_to_all_its_partitions() -> None:
    async def scene(cluster: Cluster) -> None:
        await with_three_out(cluster, 300)
        await cluster.restart(3)
        await cluster.until(
            lambda: all(3 in cluster.state(index=index).isr for index in range(300))
        )
        assert len(cluster.proposals) == 300
        assert cluster.calls <= 3

    play(scene)


def test_what_nobody_knows_is_asked_again() -> None:
    async def scene(cluster: Cluster) -> None:
        await with_three_out(cluster)
        tries = 0

        def answer(_node: int, _wish: IsrWish) -> ErrorCode | None:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise Trouble("the answer was lost", Outcome.UNKNOWN)
            return ErrorCode.not_controller if tries < 4 else None

        cluster.answer = answer
        await cluster.restart(3)
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert tries == 4
        assert len({wish.proposal for _, wish, _ in cluster.proposals}) == 1

    play(scene)


def test_a_change_that_was_logged_though_its_answer_was_lost_is_not_made_twice() -> None:
    async def scene(cluster: Cluster) -> None:
        await with_three_out(cluster)

        def answer(_node: int, _wish: IsrWish) -> ErrorCode | None:
            if 3 not in cluster.state().isr:
                cluster.change(isr=(*BOTH, BrokerId(3)))
                raise Trouble("the answer was lost", Outcome.UNKNOWN)
            return None

        cluster.answer = answer
        await cluster.restart(3)
        await sleep(3.0)
        assert cluster.state().partition_epoch == 2
        assert cluster.proposals == []

    play(scene)


def test_one_that_is_refused_is_not_asked_for_at_every_acknowledgement() -> None:
    async def scene(cluster: Cluster) -> None:
        await with_three_out(cluster)
        cluster.answer = lambda _node, _wish: ErrorCode.ineligible_replica
        await cluster.restart(3)
        for number in range(100):
            await cluster[1].write(batch(f"v{number}"))
            await sleep(0.01)
        assert 1 <= len(cluster.proposals) <= 6
        cluster.answer = lambda _node, _wish: None
        await cluster.until(lambda: 3 in cluster.state().isr, seconds=5)

    play(scene)


def test_what_waited_for_one_that_may_not_join_is_committed() -> None:
    """It keeps up, is asked for, and dies; the controller fenced it before it heard the wish. Nothing more is written."""

    async def scene(cluster: Cluster) -> None:
        await with_three_out(cluster)
        cluster.cut_off.add(1)
        await cluster.restart(3)
        partition = cluster[1].partition()
        await cluster.until(lambda: partition.machine.isr.is_in_flight)
        cluster.kill(3)
        done = cluster[1].append(batch("b"))
        await sleep(1.0)
        assert partition.machine.outcome_of(done.last_offset) is None
        cluster.answer = lambda _node, _wish: ErrorCode.ineligible_replica
        cluster.cut_off.clear()
        async with timeout(5.0):
            assert await partition.committed(done.last_offset) is ErrorCode.none
        assert [error for _, _, error in cluster.proposals] == [ErrorCode.ineligible_replica]

    play(scene)


def test_one_that_is_fenced_or_shuts_down_is_not_asked_for() -> None:
    async def scene(cluster: Cluster) -> None:
        await with_three_out(cluster)
        await cluster.restart(3)
        cluster.change_broker(3, fenced=True)
        await sleep(3.0)
        assert cluster.proposals == []
        cluster.change_broker(3, fenced=False, in_controlled_shutdown=True)
        await sleep(3.0)
        assert cluster.proposals == []
        cluster.change_broker(3, in_controlled_shutdown=False)
        await cluster.until(lambda: 3 in cluster.state().isr, seconds=1)

    play(scene)


def test_who_is_asked_for_is_named_with_the_process_that_was_heard() -> None:
    """The controller refuses one that was registered anew since: what it had may be gone."""

    async def scene(cluster: Cluster) -> None:
        await with_three_out(cluster)
        await cluster.restart(3)
        await cluster.until(lambda: 3 in cluster.state().isr)
        epochs = cluster[1].image.brokers
        (_, wish, _) = cluster.proposals[0]
        assert wish.proposal.isr == (1, 2, 3)
        assert wish.broker_epochs[1:] == (
            epochs[BrokerId(2)].broker_epoch,
            epochs[BrokerId(3)].broker_epoch,
        )

    play(scene)


def test_a_wish_that_waits_does_not_speak_for_the_process_after() -> None:
    """1. node 3 has all, and is to join   2. the controller can't be asked   3. node 3 loses its machine and comes back
    4. the wish is sent again: what it had seen was the process before."""

    async def scene(cluster: Cluster) -> None:
        await with_three_out(cluster)
        asked: list[IsrWish] = []

        def answer(_node: int, wish: IsrWish) -> ErrorCode | None:
            asked.append(wish)
            return ErrorCode.not_controller

        cluster.answer = answer
        await cluster.restart(3)
        await cluster.until(lambda: bool(asked))
        first = asked[0]
        cluster.kill(3)
        await cluster.restart(3)
        epochs = cluster[1].image.brokers
        await sleep(5.0)
        assert asked[-1].proposal == first.proposal
        assert epochs[BrokerId(3)].broker_epoch != first.broker_epochs[-1]
        assert asked[-1].broker_epochs == first.broker_epochs

    play(scene)


def test_an_idle_follower_stays_for_as_long_as_its_stream_lives() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(partitions=3, min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        await sleep(200.0)
        assert cluster.proposals == []
        await cluster[1].write(batch("b"))
        await sleep(1.0)
        assert cluster.proposals == []

    play(scene)


def test_a_follower_that_falls_silent_leaves_though_nothing_is_written() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        cluster.world.pause("node-3")
        await sleep(29.0)
        assert cluster.proposals == []
        await cluster.until(lambda: 3 not in cluster.state().isr, seconds=4)
        cluster.resume(3)
        await cluster.until(lambda: 3 in cluster.state().isr, seconds=4)

    play(scene)


def test_a_clock_that_jumps_takes_nobody_out() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        for jump in (3_600_000, -7_200_000):
            cluster[1].env.machine.wall.jump(jump)
            await cluster[1].write(batch("b"))
            await sleep(3.0)
        assert cluster.proposals == []

    play(scene, replica_lag_time_max_ms="5000")


def test_one_that_may_not_join_does_not_keep_the_next_one_out() -> None:
    """Its log had failed in a write, and the controller refused it twice a second; the third replica, which had everything, was never
    proposed, and all writes were refused."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        await sleep(0.5)
        cluster.kill(3)
        cluster.change(isr=BOTH)
        cluster.world.disk("node-1").faults.fail("append", path="*orders-0*")
        assert isinstance(cluster[1].produce(batch("b")), Refusal)
        asked: list[tuple[int, ...]] = []

        def answer(_node: int, wish: IsrWish) -> ErrorCode | None:
            asked.append(wish.proposal.isr)
            if 1 in wish.proposal.isr:
                cluster.change()  # in the next partition epoch, as it is
                return ErrorCode.ineligible_replica
            return None

        cluster.answer = answer
        one = (BrokerId(1),)
        cluster.elect(2, isr=(BrokerId(2),), elr=one, offline=one)
        await cluster.restart(3)
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert all(1 not in each for each in asked)

    play(scene)


def test_who_was_refused_lets_another_one_be_proposed_before_it_is_again() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        cluster.kill(2)
        refused = 0

        def answer(_node: int, wish: IsrWish) -> ErrorCode | None:
            nonlocal refused
            if 1 not in wish.proposal.isr:
                return None
            refused += 1
            cluster.change()
            return ErrorCode.ineligible_replica

        cluster.answer = answer
        cluster.elect(3, isr=(BrokerId(3),))
        await cluster.until(lambda: refused > 0)
        await cluster.restart(2)
        await cluster.until(lambda: 2 in cluster.state().isr)

    play(scene)


def test_one_that_is_refused_again_and_again_is_proposed_more_and_more_rarely() -> None:
    """Each refusal is a record of the metadata log: it was one every half a second, for as long as a replica could not join."""

    async def scene(cluster: Cluster) -> None:
        await with_three_out(cluster)
        asked_s: list[float] = []
        allowed = False

        def answer(_node: int, _wish: IsrWish) -> ErrorCode | None:
            asked_s.append(cluster[1].env.clock.steady())
            if allowed:
                return None
            cluster.change()  # in the next partition epoch, as it is
            return ErrorCode.ineligible_replica

        cluster.answer = answer
        await cluster.restart(3)
        await sleep(120.0)
        assert len(asked_s) <= 13
        pauses_s = [after - before for before, after in pairwise(asked_s)]
        assert pauses_s[0] < 2
        assert 15 < pauses_s[-1] < 18, "there is an end to that"
        allowed = True
        await sleep(0.5)
        assert 3 not in cluster.state().isr
        cluster.change_broker(2, rack="r2")  # it may be what the controller has waited for
        await cluster.until(lambda: 3 in cluster.state().isr, seconds=2)

    play(scene)


async def where_a_shrink_is_refused(cluster: Cluster, asked: list[tuple[float, IsrWish]]) -> None:
    """Node 3 is gone for good, and node 2, which stays, may not be in: the controller keeps the ISR as it is, in a new epoch."""
    cluster.create(leaders=[1], min_insync_replicas="1", flush_policy="os")
    await cluster[1].write(batch("a"))

    def answer(_node: int, wish: IsrWish) -> ErrorCode | None:
        asked.append((cluster[1].env.clock.steady(), wish))
        if 2 not in wish.proposal.isr:
            return None
        cluster.change()
        return ErrorCode.ineligible_replica

    cluster.answer = answer
    cluster.kill(3)
    cluster[1].append(batch("b"))
    await cluster.until(lambda: bool(asked), seconds=60)


def test_a_shrink_that_is_refused_again_and_again_is_proposed_more_and_more_rarely() -> None:
    """Each refusal is a record of the metadata log: it was one every second, for as long as it was refused."""

    async def scene(cluster: Cluster) -> None:
        asked: list[tuple[float, IsrWish]] = []
        await where_a_shrink_is_refused(cluster, asked)
        await sleep(120.0)
        assert {wish.proposal.isr for _, wish in asked} == {BOTH}
        assert len(asked) <= 13
        pauses_s = [after - before for (before, _), (after, _) in pairwise(asked)]
        assert pauses_s[0] < 2
        assert 15 < pauses_s[-1] < 18, "there is an end to that"
        before = len(asked)
        await sleep(0.5)
        cluster.change_broker(2, rack="r2")  # it may be what the controller has waited for
        await cluster.until(lambda: len(asked) > before, seconds=2)

    play(scene)


def test_the_wait_of_a_shrink_ends_when_more_are_to_leave() -> None:
    """Who stood in its way may be among them: the controller is asked for something else."""

    async def scene(cluster: Cluster) -> None:
        asked: list[tuple[float, IsrWish]] = []
        await where_a_shrink_is_refused(cluster, asked)
        await sleep(60.0)
        done = cluster[1].append(batch("c"))
        cluster.kill(2)
        lag_s = cluster[1].manager.lag_ms_max / 1000
        await cluster.until(lambda: cluster.state().isr == (1,), seconds=lag_s + 2)
        assert await cluster[1].partition().committed(done.last_offset) is ErrorCode.none

    play(scene)


def test_the_wait_of_one_that_was_refused_keeps_no_other_one_out() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        cluster.kill(2)

        def answer(_node: int, wish: IsrWish) -> ErrorCode | None:
            if 1 not in wish.proposal.isr:
                return None
            cluster.change()
            return ErrorCode.ineligible_replica

        cluster.answer = answer
        cluster.elect(3, isr=(BrokerId(3),))
        await sleep(60.0)
        await cluster.restart(2)
        await cluster.until(lambda: 2 in cluster.state().isr, seconds=4)

    play(scene)
