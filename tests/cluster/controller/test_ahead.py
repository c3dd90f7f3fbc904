"""Decisions that are on their way to the log at the same time, where each is right by the image that it saw."""

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any

import pytest
from controller_scene import Scene as ControllerScene
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.controller.ahead import Ahead
from fencepost.cluster.controller.brokers_policy import decide_fence, decide_heartbeat
from fencepost.cluster.controller.commands import (
    AlterConfigs,
    AlterPartition,
    BrokerHeartbeat,
    ConfigChange,
    ConfigOperation,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    IsrChange,
    IsrMember,
    NewTopic,
    ResourceChange,
)
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.metadata.snapshot import write_snapshot
from hypothesis import given
from hypothesis import strategies as st
from support.metadata_commands import commands


class Scene(ControllerScene):
    """What is proposed is applied, in order, when the quorum is told to `agree`."""

    def __init__(self) -> None:
        super().__init__(brokers=3)
        self.when(CreateTopics(topics=(NewTopic(name="t", assignments=((0, (1, 2, 3)),)),)))
        self.held: list[tuple[bytes, asyncio.Future[Any]]] = []
        self.quorum.propose = self._propose  # type: ignore[method-assign]

    async def _propose(self, entry: bytes) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.held.append((entry, answer))
        return await answer

    def agree(self) -> int:
        """To all that was proposed so far; how much that was."""
        held, self.held = self.held, []
        for entry, answer in held:
            result = self.quorum.machine.apply(entry)
            if not answer.done():
                answer.set_result(result)
        return len(held)

    def together(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        """All at the same time; whatever they propose is agreed to once nothing more happens."""

        async def play() -> list[Any]:
            tasks = [asyncio.create_task(each) for each in work]
            await self.agree_until_done(*tasks)
            return [await task for task in tasks]

        return asyncio.run(play())

    async def agree_until_done(self, *tasks: asyncio.Task[Any]) -> None:
        while not all(task.done() for task in tasks):
            for _ in range(10):
                await asyncio.sleep(0)
            self.agree()

    async def fencing_that_nobody_waits_for(self, broker_id: int, end: str) -> asyncio.Task[Any]:
        """Its entry is in the log all the same."""
        fencing = asyncio.create_task(self.fence(broker_id))
        for _ in range(10):
            await asyncio.sleep(0)
        ((_, answer),) = self.held
        if end == "nobody knows":
            answer.set_exception(Trouble("the lead was lost for a moment", Outcome.UNKNOWN))
        else:
            fencing.cancel()
        await asyncio.wait([fencing])
        return fencing

    def fence(self, broker_id: int) -> Coroutine[Any, Any, Any]:
        decide = functools.partial(
            decide_fence, broker_id=broker_id, broker_epoch=self.epoch(broker_id)
        )
        return self.controller.run("fence", decide)

    def isr(self, *broker_ids: int) -> Coroutine[Any, Any, Any]:
        now = self.partition()
        change = IsrChange(
            topic_id=self.image.topics["t"].topic_id,
            partition=0,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=tuple(IsrMember(broker_id=each) for each in broker_ids),
        )
        return self.controller.execute(
            AlterPartition(
                broker_id=now.leader, broker_epoch=self.epoch(now.leader), partitions=(change,)
            )
        )


def _let_in(broker_id: int) -> Any:
    def decide(scene: Any) -> Any:
        epoch = scene.image.brokers[broker_id].broker_epoch
        beat = BrokerHeartbeat(broker_id=broker_id, broker_epoch=epoch, image_version=10**6)
        return decide_heartbeat(scene, beat)

    return decide


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_broker_that_is_fenced_meanwhile_is_not_made_leader(scene: Scene) -> None:
    """Broker 2 is eligible and in no ISR, so that its fencing changes no partition. Broker 1 dies with it."""
    least = ConfigChange(name="min.insync.replicas", value="2")
    two = ResourceChange(resource_type=2, name="t", changes=(least,))
    scene.together(scene.controller.execute(AlterConfigs(resources=(two,))))
    scene.together(scene.isr(1))
    assert scene.partition().elr != ()
    eligible = scene.partition().elr[0]
    scene.together(scene.fence(eligible), scene.fence(5 - eligible), scene.fence(1))
    assert scene.partition().leader == -1
    scene.together(scene.controller.run("unfence", _let_in(eligible)))
    assert scene.partition().leader == eligible


def test_a_preferred_leader_that_is_fenced_meanwhile_does_not_get_the_lead(scene: Scene) -> None:
    scene.together(scene.fence(1))
    scene.together(scene.controller.run("unfence", _let_in(1)))
    scene.together(scene.isr(1, 2, 3))
    assert scene.partition().leader == 2
    elect = ElectLeaders(election=ElectionType.PREFERRED, partitions=(("t", 0),))
    scene.together(scene.controller.execute(elect), scene.fence(1))
    assert scene.image.brokers[1].fenced
    assert scene.partition().leader in (2, 3)


def test_a_heartbeat_that_changes_nothing_waits_for_no_other_change(scene: Scene) -> None:
    """With commits of over a second and a change always under way brokers took themselves for cut off. But one that is about
    to be fenced is told nothing else before that is so, or is not."""

    def beat() -> Coroutine[Any, Any, Any]:
        return scene.controller.execute(
            BrokerHeartbeat(broker_id=1, broker_epoch=scene.epoch(1), image_version=10**6)
        )

    async def beats() -> None:
        changing = asyncio.ensure_future(scene.isr(1, 2))
        await asyncio.sleep(0)
        assert scene.held
        answer = await asyncio.wait_for(beat(), 1)
        assert not answer.is_fenced and scene.held
        fencing = asyncio.ensure_future(scene.fence(1))
        await asyncio.sleep(0)
        beating = asyncio.ensure_future(beat())
        await asyncio.sleep(0.1)
        assert not beating.done()
        while not (changing.done() and fencing.done() and beating.done()):
            scene.agree()
            await asyncio.sleep(0)
        assert not beating.result().is_fenced
        assert not scene.image.brokers[1].fenced, "let in again"

    asyncio.run(beats())


def test_a_heartbeat_waits_for_no_change_that_is_decided_alone_either(scene: Scene) -> None:
    """One client that goes away leaves a change in doubt; the next one has the controller to itself, for a slow disk's time."""

    def beat(broker_id: int) -> Coroutine[Any, Any, Any]:
        epoch = scene.epoch(broker_id)
        return scene.controller.execute(
            BrokerHeartbeat(broker_id=broker_id, broker_epoch=epoch, image_version=10**6)
        )

    async def beats() -> None:
        await scene.fencing_that_nobody_waits_for(3, "nobody waits")
        scene.agree()
        changing = asyncio.ensure_future(scene.fence(2))
        await asyncio.sleep(0)
        assert scene.held
        answer = await asyncio.wait_for(beat(1), 1)
        assert not answer.is_fenced and scene.held
        beating = asyncio.ensure_future(beat(2))
        await asyncio.sleep(0.1)
        assert not beating.done(), "it is about to be fenced"
        await scene.agree_until_done(changing, beating)

    asyncio.run(beats())


def test_a_broker_that_is_fenced_meanwhile_does_not_enter_an_isr(scene: Scene) -> None:
    scene.together(scene.isr(1, 2))
    scene.together(scene.isr(1, 2, 3), scene.fence(3))
    assert scene.partition().isr == (1, 2)
    scene.together(scene.fence(2), scene.controller.run("unfence", _let_in(3)))
    (answers,) = scene.together(scene.isr(1, 2))
    assert answers[0].error_code is ErrorCode.ineligible_replica


def test_two_brokers_that_die_together_do_not_elect_each_other(scene: Scene) -> None:
    scene.together(scene.fence(1), scene.fence(2))
    assert scene.partition().leader == 3
    scene.together(scene.fence(3))
    assert scene.partition().leader == -1


def test_two_that_come_back_together_leave_no_partition_without_a_leader(scene: Scene) -> None:
    """One is let in while the other one's coming is decided on an image where it is still fenced."""
    scene.together(scene.fence(1), scene.fence(2), scene.fence(3))
    assert scene.partition().leader == -1
    scene.together(*(scene.controller.run("unfence", _let_in(each)) for each in (1, 2, 3)))
    assert scene.partition().leader in scene.partition().isr


def test_a_topic_is_not_placed_on_a_broker_that_is_fenced_meanwhile(scene: Scene) -> None:
    new = CreateTopics(topics=(NewTopic(name="new", assignments=((0, (3, 1)),)),))
    scene.together(scene.fence(3), scene.controller.execute(new))
    assert scene.partition("new").leader == 1


def test_who_leaves_an_isr_is_judged_by_the_least_isr_that_holds_then(scene: Scene) -> None:
    """Lowered meanwhile: the leader may commit without the one that left, so that one may not be elected."""
    change = ConfigChange(name="min.insync.replicas", value="2")
    raised = ResourceChange(resource_type=2, name="t", changes=(change,))
    scene.together(scene.controller.execute(AlterConfigs(resources=(raised,))))
    scene.together(scene.isr(1, 2))
    lower = ConfigChange(name="min.insync.replicas", value="1")
    lowered = ResourceChange(resource_type=2, name="t", changes=(lower,))
    scene.together(scene.isr(1), scene.controller.execute(AlterConfigs(resources=(lowered,))))
    assert scene.partition().isr == (1,)
    assert scene.partition().elr == ()


def _new_topic(number: int) -> Any:
    return CreateTopics(
        topics=(NewTopic(name=f"t{number}", num_partitions=1, replication_factor=1),)
    )


def _setting(number: int) -> Any:
    change = ConfigChange(name="retention.ms", value=str(1000 + number))
    return AlterConfigs(resources=(ResourceChange(resource_type=2, name="t", changes=(change,)),))


def _appended(number: int) -> Any:
    change = ConfigChange(
        name="leader.replication.throttled.replicas",
        operation=ConfigOperation.APPEND,
        value=f"{number}:1",
    )
    return AlterConfigs(resources=(ResourceChange(resource_type=2, name="t", changes=(change,)),))


@pytest.mark.parametrize("command", [_new_topic, _setting, _appended])
def test_many_commands_share_one_sync_even_if_each_stands_on_the_one_before(
    scene: Scene, command: Any
) -> None:
    """Metadata commands commit at 1,000/s (issue B): one sync of the journal for each was 15 to 107/s."""

    async def play() -> int:
        tasks = [asyncio.create_task(scene.controller.execute(command(each))) for each in range(20)]
        for _ in range(10):
            await asyncio.sleep(0)
        agreed = scene.agree()
        for (answer,) in await asyncio.gather(*tasks):
            assert answer.error_code is ErrorCode.none
        return agreed

    assert asyncio.run(play()) == 20
    settings = scene.image.config(ConfigType.TOPIC, "t")
    if command is _setting:
        assert settings["retention.ms"] == "1019"
    if command is _appended:
        listed = settings["leader.replication.throttled.replicas"]
        assert listed == ",".join(f"{each}:1" for each in range(20))


def test_what_was_decided_behind_one_that_did_not_happen_is_decided_again(scene: Scene) -> None:
    """The fencing is refused on its way. Nothing may be left of what was decided as if it had happened."""

    async def play() -> None:
        fencing = asyncio.create_task(scene.fence(1))
        await asyncio.sleep(0)
        new = CreateTopics(topics=(NewTopic(name="new", assignments=((0, (1, 3)),)),))
        creating = asyncio.create_task(scene.controller.execute(new))
        await asyncio.sleep(0)
        (_, refused), (_, second) = scene.held
        del scene.held[0]
        refused.set_exception(Trouble("the lead was lost for a moment", Outcome.REFUSED))
        await scene.agree_until_done(creating)
        assert second.done()
        assert isinstance(fencing.exception(), Trouble)

    asyncio.run(play())
    assert scene.partition("new").leader == 1, "it was created for a broker that is not fenced"
    assert "controller_decides_again" in [event for event, _ in scene.log]


def test_what_is_answered_without_a_record_waits_for_what_it_read(scene: Scene) -> None:
    """That a topic exists is told when it does, not when it will if all goes well."""

    async def play() -> list[ErrorCode]:
        first = asyncio.create_task(scene.controller.execute(_new_topic(1)))
        await asyncio.sleep(0)
        again = asyncio.create_task(scene.controller.execute(_new_topic(1)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not again.done()
        scene.agree()
        return [each.error_code for task in (first, again) for each in await task]

    assert asyncio.run(play()) == [ErrorCode.none, ErrorCode.topic_already_exists]


@given(st.lists(st.lists(commands, min_size=1, max_size=3), max_size=8), st.data())
def test_the_image_ahead_is_the_one_that_applying_makes(
    batches: list[list[Any]], data: st.DataObject
) -> None:
    """Whatever of it has been applied already, and without a change of what is applied."""

    async def play() -> None:
        real, ahead_of = MetadataMachine(), MetadataMachine()
        ahead = Ahead(real.image)
        waiting: list[list[Any]] = []
        for batch in batches:
            if ahead_of.why_not(batch) is not None:
                continue
            before = real.snapshot()
            ahead_of.apply_batch(batch)
            ahead.propose(batch)
            waiting.append(batch)
            for _ in range(data.draw(st.integers(0, len(waiting)))):
                real.apply_batch(waiting.pop(0))
                before = real.snapshot()
            assert write_snapshot(ahead.image) == ahead_of.snapshot()
            assert real.snapshot() == before

    asyncio.run(play())


@pytest.mark.parametrize("end", ["the client's time is over", "nobody knows"])
def test_what_may_still_arrive_is_waited_for_before_anything_else_is_decided(
    scene: Scene, end: str
) -> None:
    """The answer to a fencing is not waited for any more. It is in the log all the same."""

    async def play() -> None:
        fencing = await scene.fencing_that_nobody_waits_for(3, end)
        new = CreateTopics(topics=(NewTopic(name="new", assignments=((0, (3, 1)),)),))
        creating = asyncio.create_task(scene.controller.execute(new))
        await scene.agree_until_done(creating)
        assert scene.image.brokers[3].fenced
        assert scene.partition("new").leader == 1
        if not fencing.cancelled():
            assert fencing.exception() is not None

    asyncio.run(play())


@pytest.mark.parametrize("end", ["the client's time is over", "nobody knows"])
def test_two_decisions_are_not_made_on_what_may_be_another_entry(scene: Scene, end: str) -> None:
    """A lost fencing of broker 3 makes the version that one of broker 2 was to make; what is decided behind that one
    would find its version, and another image."""

    async def play() -> None:
        lost = await scene.fencing_that_nobody_waits_for(3, end)
        tasks = [asyncio.create_task(scene.fence(each)) for each in (1, 2)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(scene.held) == 2, "the lost one, and one behind it"
        await scene.agree_until_done(*tasks)
        for task in tasks:
            task.result()
        if not lost.cancelled():
            assert lost.exception() is not None

    asyncio.run(play())
    assert all(scene.image.brokers[each].fenced for each in (1, 2, 3))
    assert scene.partition().leader == -1
