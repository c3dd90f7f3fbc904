"""Who is fenced is a registration, not a broker: what its predecessor did, or does, is nothing to the one that is there now."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from controller_scene import LEVELS
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.commands import (
    CreateTopics,
    NewTopic,
    RegisterBroker,
)
from test_liveness import BEAT_S, TICK_S, TIMEOUT_S, Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.loop.close()


def registers_anew(scene: Scene) -> Any:
    """Broker 2, as another process; liveness hears of it when the controller has answered."""
    return scene.controller.controller.execute(
        RegisterBroker(
            broker_id=2,
            cluster_id=scene.controller.cluster_id,
            incarnation_id=UUID(int=22),
            endpoints=(),
            features=LEVELS,
        )
    )


def soon(scene: Scene, work: Callable[[], Any], answers: list[Any]) -> Callable[[], None]:
    async def done() -> None:
        answers.append(await work())

    return lambda: answers.append(asyncio.ensure_future(done(), loop=scene.loop))


def slow_log(scene: Scene, seconds: float) -> list[tuple[float, int]]:
    """When each proposal was made, and how many there were; each is applied so much later."""
    propose, made = scene.quorum.propose, []

    async def slowly(record: bytes) -> Any:
        made.append((scene.loop.time(), len(made)))
        await asyncio.sleep(seconds)
        return await propose(record)

    scene.quorum.propose = slowly
    return made


def test_one_whose_new_registration_is_there_is_not_fenced_for_the_old_one(scene: Scene) -> None:
    """1. broker 2 dies, and is to be fenced   2. it is registered anew   3. a round comes before its first heartbeat."""
    scene.silence(2)
    scene.liveness.on_leader_change()
    before = scene.controller.epoch(2)
    scene.liveness.on_gone(2)
    answer = scene.loop.run_until_complete(registers_anew(scene))
    assert answer.error_code is ErrorCode.none
    assert scene.controller.epoch(2) > before
    scene.play(TIMEOUT_S - BEAT_S)
    assert not scene.fenced
    assert not scene.liveness._doomed
    scene.play(BEAT_S + 2 * TICK_S)
    assert scene.fenced == [2], "its own silence counts, from when it was there"


def test_one_whose_new_registration_is_on_its_way_is_not_fenced_for_the_old_one(
    scene: Scene,
) -> None:
    """Decided before the fencing, and not in the image yet by which the round goes."""
    scene.silence(2)
    made = slow_log(scene, 2 * TICK_S)
    answers: list[Any] = []
    gone_s = 0.1
    scene.play(
        TIMEOUT_S - BEAT_S,
        (gone_s, soon(scene, lambda: registers_anew(scene), answers)),
        (gone_s, lambda: scene.liveness.on_gone(2)),
    )
    assert answers[-1].error_code is ErrorCode.none
    assert not scene.fenced
    assert len(made) == 1, "nothing was proposed but the registration"


def test_one_that_is_not_to_be_fenced_any_more_holds_up_nobodys_fencing(scene: Scene) -> None:
    """A topic is on its way into a slow log. What is decided without a record would wait for it, and broker 3's fencing with that."""
    scene.silence(2)
    scene.silence(3)
    scene.liveness.on_leader_change()
    scene.liveness.on_gone(2)
    scene.loop.run_until_complete(registers_anew(scene))
    made = slow_log(scene, 1.0)
    answers: list[Any] = []
    topic = CreateTopics(topics=(NewTopic(name="t", num_partitions=1, replication_factor=1),))
    start = scene.loop.time()
    scene.liveness.on_gone(3)
    scene.loop.run_until_complete(asyncio.sleep(0))
    work = soon(scene, lambda: scene.controller.controller.execute(topic), answers)
    scene.loop.call_soon(work)
    scene.play(2.0)
    assert [at - start for at, _ in made] == pytest.approx([0.0, 0.0], abs=2 * TICK_S)
    assert scene.fenced == [3]


def test_the_heartbeats_of_an_earlier_registration_keep_nobody_alive(scene: Scene) -> None:
    """Two processes with one node id by mistake: the one that is registered has died, and the other one goes on asking."""
    old = scene.heartbeat(2)
    scene.silence(2)
    scene.liveness.on_leader_change()
    scene.liveness.on_gone(2)
    assert scene.register(2, 22).error_code is ErrorCode.none
    scene.liveness.on_up(2, 22)
    answers: list[Any] = []

    def beat() -> Any:
        return scene.liveness.execute(old)

    beats = [(0.01 + BEAT_S * n, soon(scene, beat, answers)) for n in range(12)]
    scene.play(TIMEOUT_S - BEAT_S, *beats)
    assert not scene.fenced
    scene.play(BEAT_S + 2 * TICK_S)
    assert scene.fenced == [2]
    codes = {each.error_code for each in answers if not isinstance(each, asyncio.Future)}
    assert codes == {ErrorCode.stale_broker_epoch}
