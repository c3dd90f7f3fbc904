"""Sessions of brokers with the active controller: who is fenced, when, and who is not."""

import asyncio
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from controller_scene import LEVELS, EventLog
from controller_scene import Scene as ControllerScene
from fencepost.chaos.sim.loop import SimLoop
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.tasks import TaskOwner
from fencepost.cluster.controller.commands import (
    BrokerHeartbeat,
    CreateTopics,
    NewTopic,
    RegisterBroker,
    ReportDisk,
)
from fencepost.cluster.controller.decision import Decision
from fencepost.cluster.controller.liveness import DUTY_S, LATE_S, TICK_S, Liveness

TIMEOUT_S = 3.0
BEAT_S = 0.5


class Scene:
    """Node 1 leads; brokers 2 and 3 send heartbeats until `silence`."""

    def __init__(self, **others: Any) -> None:
        self.loop = SimLoop(time_limit_s=1e6)
        self.controller = ControllerScene(brokers=3)
        self.quorum = self.controller.quorum
        clock = SimpleNamespace(steady=self.loop.time, sleep=asyncio.sleep)
        tasks = TaskOwner(self._die)
        self.env: Any = SimpleNamespace(clock=clock, log=EventLog(), tasks=tasks)
        self.liveness = Liveness(
            self.env,
            self.quorum,
            self.controller.controller,
            session_timeout_ms=round(TIMEOUT_S * 1000),
            **others,
        )
        self.quorum.machine.listeners.append(self.liveness)
        self.silent: dict[int, None] = {}
        self.died: list[BaseException] = []

    def _die(self, reason: BaseException) -> None:
        self.died.append(reason)

    def play(self, seconds: float, *steps: tuple[float, Callable[[], Any]]) -> None:
        """So many seconds; each step is done so many seconds after the start."""

        async def scenario() -> None:
            self.liveness.start()
            self.liveness.on_leader_change()
            for at, step in steps:
                self.loop.call_later(at, step)
            end = self.loop.time() + seconds
            while self.loop.time() < end:
                await self._beat()
                await asyncio.sleep(BEAT_S)
            await self.liveness.stop()
            assert not self.died, self.died

        self.loop.run_until_complete(scenario())

    async def _beat(self) -> None:
        for broker_id in (2, 3):
            if broker_id not in self.silent and self.quorum.is_leader:
                await self.liveness.execute(self.heartbeat(broker_id))

    def heartbeat(self, broker_id: int) -> BrokerHeartbeat:
        return BrokerHeartbeat(
            broker_id=broker_id,
            broker_epoch=self.controller.epoch(broker_id),
            image_version=self.controller.image.version,
        )

    def ask(self, command: Any) -> Any:
        return self.loop.run_until_complete(self.liveness.execute(command))

    def silence(self, broker_id: int) -> None:
        self.silent[broker_id] = None

    def register(self, broker_id: int, incarnation: int, **others: Any) -> Any:
        return self.ask(
            RegisterBroker(
                broker_id=broker_id,
                cluster_id=self.controller.cluster_id,
                incarnation_id=UUID(int=incarnation),
                endpoints=(),
                features=LEVELS,
                **others,
            )
        )

    @property
    def fenced(self) -> list[int]:
        brokers = self.controller.image.brokers
        return [id_ for id_ in sorted(brokers) if brokers[id_].fenced]


@pytest.fixture
def scene() -> Any:
    made = Scene()
    yield made
    made.loop.close()


def test_heartbeats_that_change_nothing_stay_off_the_log(scene: Scene) -> None:
    before = len(scene.quorum.proposed)
    scene.play(10)
    assert len(scene.quorum.proposed) == before
    assert not scene.fenced


def test_a_broker_is_fenced_when_its_session_is_over_and_not_before(scene: Scene) -> None:
    scene.play(TIMEOUT_S - BEAT_S, (0.01, lambda: scene.silence(2)))
    assert not scene.fenced
    scene.play(BEAT_S + 2 * TICK_S)
    assert scene.fenced == [2]


def test_a_broker_whose_process_died_is_fenced_at_once(scene: Scene) -> None:
    scene.silence(2)
    scene.play(0.4, (0.3, lambda: scene.liveness.on_gone(2)))
    assert scene.fenced == [2]


def test_a_full_disk_is_believed_for_a_session_or_until_there_is_room(scene: Scene) -> None:
    """A controller that leads again, or has never been told, asks nobody: the next heartbeat brings it."""

    def report(*, is_full: bool) -> None:
        epoch = scene.controller.epoch(2)
        scene.ask(ReportDisk(broker_id=2, broker_epoch=epoch, is_full=is_full))

    def full() -> frozenset[int]:
        return scene.controller.controller._scene().disks.full

    report(is_full=True)
    assert full() == {2}
    report(is_full=False)
    assert full() == set()
    report(is_full=True)
    scene.play(TIMEOUT_S - BEAT_S)
    assert full() == {2}
    scene.play(BEAT_S)
    assert full() == set()


@pytest.mark.parametrize("broker_id", [2, 9])
def test_a_report_of_an_earlier_registration_or_of_nobody_is_not_heard(
    scene: Scene, broker_id: int
) -> None:
    before = scene.controller.epoch(2) - 1
    refused = scene.ask(ReportDisk(broker_id=broker_id, broker_epoch=before, is_full=True))
    assert refused.error_code is ErrorCode.stale_broker_epoch
    assert scene.controller.controller._scene().disks.full == set()


def test_one_that_is_heard_again_is_let_in_again(scene: Scene) -> None:
    scene.silence(2)
    scene.play(0.4, (0.3, lambda: scene.liveness.on_gone(2)))
    scene.silent.clear()
    scene.liveness.on_up(2, 1)
    scene.play(1)
    assert not scene.fenced


def test_one_that_registered_anew_is_not_fenced_for_its_predecessor(scene: Scene) -> None:
    """It came back between its death and the round that would have fenced it."""
    scene.liveness.on_leader_change()
    scene.liveness.on_gone(2)
    assert scene.register(2, 22).error_code is ErrorCode.none
    scene.play(1)
    assert not scene.fenced


def test_a_new_controller_gives_everybody_a_fresh_session(scene: Scene) -> None:
    """Silent for 2 s when the old one went: it has 3 s from now on, and no less."""
    scene.silence(2)
    scene.quorum.is_leader = False
    scene.play(2)

    def elected() -> None:
        scene.quorum.is_leader = True
        scene.liveness.on_leader_change()

    scene.play(TIMEOUT_S - BEAT_S, (0.01, elected))
    assert not scene.fenced
    scene.play(BEAT_S + 2 * TICK_S)
    assert scene.fenced == [2]


def test_a_new_controller_fences_those_that_it_knows_to_be_dead(scene: Scene) -> None:
    """The old controller led partitions too, and its process died: nobody waits for its session."""
    scene.silence(2)
    scene.quorum.is_leader = False
    scene.liveness.on_gone(2)

    def elected() -> None:
        scene.quorum.is_leader = True
        scene.liveness.on_leader_change()

    scene.play(0.5, (0.1, elected))
    assert scene.fenced == [2]


def test_a_node_that_leads_no_more_fences_nobody(scene: Scene) -> None:
    scene.silence(2)
    scene.play(1)
    scene.quorum.is_leader = False
    scene.liveness.on_gone(3)
    scene.play(10)
    assert not scene.fenced


def test_a_controller_that_was_stopped_blames_nobody_for_it(scene: Scene) -> None:
    """SIGSTOP for longer than a session: what the others sent waits in the kernel."""
    scene.play(1)

    def stopped() -> None:
        scene.loop._now += 10 * TIMEOUT_S

    scene.play(1, (0.1, stopped))
    assert not scene.fenced
    assert 10 * TIMEOUT_S > LATE_S


def test_the_controllers_own_broker_is_not_watched(scene: Scene) -> None:
    own = dataclasses.replace(
        scene.heartbeat(2), broker_id=1, broker_epoch=scene.controller.epoch(1)
    )
    scene.ask(own)
    scene.play(10)
    assert not scene.fenced


def test_a_second_process_with_a_living_nodes_id_is_refused(scene: Scene) -> None:
    scene.play(1)
    refused = scene.register(2, 22)
    assert refused.error_code is ErrorCode.duplicate_broker_registration
    assert "Another broker is registered with that broker id" in refused.error_message
    assert scene.register(2, 2).error_code is ErrorCode.none, "the same process, again"


def test_a_node_that_was_killed_may_come_back_when_its_session_is_over(scene: Scene) -> None:
    scene.silence(2)
    scene.play(TIMEOUT_S + BEAT_S)
    assert scene.register(2, 22, fenced=True).error_code is ErrorCode.none


def test_a_node_that_was_killed_may_come_back_at_once_where_its_death_was_seen(
    scene: Scene,
) -> None:
    scene.play(1)
    scene.liveness.on_gone(2)
    assert scene.register(2, 22, fenced=True).error_code is ErrorCode.none


def test_a_node_that_was_up_again_before_anybody_saw_it_die_may_register_at_once(
    scene: Scene,
) -> None:
    scene.liveness.on_up(2, 1)
    scene.play(1)
    scene.liveness.on_up(2, 1)  # the same process: only a connection was lost
    code = scene.register(2, 22, fenced=True).error_code
    assert code is ErrorCode.duplicate_broker_registration
    scene.liveness.on_up(2, 2)
    assert scene.register(2, 22, fenced=True).error_code is ErrorCode.none


def test_two_that_share_an_address_by_mistake_do_not_throw_each_other_out(scene: Scene) -> None:
    """A name with two addresses: the controller's next connection goes to the second, while the first is still heard."""
    scene.liveness.on_up(2, 1)
    scene.play(1)
    scene.liveness.is_connected = lambda broker_id, process: (broker_id, process) == (2, 1)
    scene.liveness.on_up(2, 2)
    code = scene.register(2, 22, fenced=True).error_code
    assert code is ErrorCode.duplicate_broker_registration


def test_which_process_was_heard_before_any_link_was_up_is_not_guessed(scene: Scene) -> None:
    scene.play(1)
    scene.liveness.on_up(2, 1)
    code = scene.register(2, 22, fenced=True).error_code
    assert code is ErrorCode.duplicate_broker_registration


def test_a_session_that_was_given_and_never_used_keeps_nobody_out(scene: Scene) -> None:
    """All nodes were killed at once: the new controller has heard of nobody, and everybody is another process."""
    scene.silence(2)
    scene.silence(3)
    scene.play(1)
    assert not scene.fenced
    assert scene.register(2, 22, fenced=True).error_code is ErrorCode.none


def test_duties_are_done_after_changes_and_every_second_but_not_for_each_change() -> None:
    rounds: list[float] = []

    def duty(_scene: Any) -> Decision[None]:
        rounds.append(scene.loop.time())
        return Decision(reply=lambda _version: None)

    scene = Scene(duties=[("a duty", duty)])
    scene.play(5.1)
    assert 5 <= len(rounds) <= 5 / DUTY_S + 3
    before, topics = (
        len(rounds),
        [NewTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(20)],
    )
    for each in topics:
        scene.ask(CreateTopics(topics=(each,)))
    scene.play(0.2)
    assert 1 <= len(rounds) - before <= 3
    scene.loop.close()


def test_one_that_is_heard_while_it_is_fenced_and_never_again_is_fenced_again(scene: Scene) -> None:
    """Its heartbeat lets it in right behind the fence. It is watched from then on, as everybody who is alive."""
    agree, heard = scene.quorum.propose, []

    async def propose(record: bytes) -> Any:
        if not heard and scene.liveness._doomed:
            heard.append(asyncio.ensure_future(scene.liveness.execute(scene.heartbeat(2))))
        await asyncio.sleep(0.005)
        return await agree(record)

    scene.quorum.propose = propose
    scene.silence(2)
    scene.play(TIMEOUT_S + BEAT_S)
    assert heard
    assert not scene.fenced
    scene.play(TIMEOUT_S + BEAT_S)
    assert scene.fenced == [2]


def test_one_that_came_to_be_alive_without_a_word_to_this_controller_is_watched(
    scene: Scene,
) -> None:
    """What let it in was committed by the controller before this one, and applied here a moment later."""
    scene.silence(2)
    scene.play(0.4, (0.3, lambda: scene.liveness.on_gone(2)))
    assert scene.fenced == [2]
    scene.liveness.on_up(2, 1)

    executed: list[Any] = []

    def let_in() -> None:
        work = scene.controller.controller.execute(scene.heartbeat(2))
        executed.append(asyncio.ensure_future(work))

    scene.play(1, (0.1, let_in))
    assert not scene.fenced
    scene.play(TIMEOUT_S)
    assert scene.fenced == [2]


def test_a_lease_that_lapses_now_and_then_ends_sessions_all_the_same(scene: Scene) -> None:
    """A majority that hangs on one slow voter: each lapse is of a moment, and in between nobody else leads."""

    def lapse(leads: bool) -> Callable[[], None]:
        def done() -> None:
            scene.quorum.is_leader = leads
            scene.liveness.on_leader_change()

        return done

    lapses = [(2.5 * n + 0.05 * leads, lapse(bool(leads))) for n in range(1, 4) for leads in (0, 1)]
    scene.silence(2)
    scene.play(TIMEOUT_S + 1, *lapses)
    assert scene.fenced == [2]
