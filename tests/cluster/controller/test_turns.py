"""Decisions that are on their way to the log at the same time, where each is right by the image that it saw."""

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any

import pytest
from controller_scene import Scene as ControllerScene
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.controller.brokers_policy import decide_fence, decide_heartbeat
from fencepost.cluster.controller.commands import (
    AlterConfigs,
    AlterPartition,
    BrokerHeartbeat,
    ConfigChange,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    IsrChange,
    IsrMember,
    NewTopic,
    ResourceChange,
)


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
            while not all(task.done() for task in tasks):
                for _ in range(10):
                    await asyncio.sleep(0)
                self.agree()
            return [await task for task in tasks]

        return asyncio.run(play())

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


def test_changes_of_partitions_still_share_one_sync(scene: Scene) -> None:
    async def play() -> int:
        tasks = [
            asyncio.create_task(
                scene.controller.execute(
                    CreateTopics(
                        topics=(NewTopic(name=f"t{each}", num_partitions=1, replication_factor=1),)
                    )
                )
            )
            for each in range(20)
        ]
        for _ in range(10):
            await asyncio.sleep(0)
        agreed = scene.agree()
        await asyncio.gather(*tasks)
        return agreed

    assert asyncio.run(play()) == 20


@pytest.mark.parametrize("end", ["the client's time is over", "nobody knows"])
def test_what_may_still_arrive_is_waited_for_before_anything_else_is_decided(
    scene: Scene, end: str
) -> None:
    """The answer to a fencing is not waited for any more. It is in the log all the same."""

    async def play() -> None:
        fencing = asyncio.create_task(scene.fence(3))
        for _ in range(10):
            await asyncio.sleep(0)
        ((_, answer),) = scene.held
        if end == "nobody knows":
            answer.set_exception(Trouble("the lead was lost for a moment", Outcome.UNKNOWN))
        else:
            fencing.cancel()
        await asyncio.wait([fencing])
        new = CreateTopics(topics=(NewTopic(name="new", assignments=((0, (3, 1)),)),))
        creating = asyncio.create_task(scene.controller.execute(new))
        while not creating.done():
            for _ in range(10):
                await asyncio.sleep(0)
            scene.agree()
        assert scene.image.brokers[3].fenced
        assert scene.partition("new").leader == 1
        if not fencing.cancelled():
            assert fencing.exception() is not None

    asyncio.run(play())
