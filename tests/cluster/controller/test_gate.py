"""The way to the controller from any node, over a door that can lose what is asked and what is answered."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from controller_scene import Alone, EventLog
from controller_scene import Scene as ControllerScene
from fencepost.chaos.sim.loop import SimLoop
from fencepost.cluster.base.errors import DiskFull, ErrorCode, Outcome, Trouble
from fencepost.cluster.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AutoCreateTopics,
    BrokerHeartbeat,
    ConfigChange,
    ConfigOperation,
    CreateTopics,
    NewTopic,
    ReportDisk,
    ResourceChange,
    UnregisterBroker,
)
from fencepost.cluster.controller.gate import (
    APPLY_WAIT_S,
    COMMAND_BYTES_MAX,
    WITHIN_S,
    ControllerGate,
    TooLarge,
    Unreadable,
)
from fencepost.cluster.metadata.image import ConfigType, ImageDelta

CREATE = CreateTopics(topics=(NewTopic(name="t", num_partitions=1, replication_factor=1),))


class Doors:
    """Requests between gates in one process. `lose_answers`: so many are served, and nobody is told."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.asked: list[int] = []
        self.lose_answers = 0
        self.takes_s = 0.0

    def of(self, me: int) -> Any:
        async def request(
            node_id: int, kind: str, header: Any, payload: Any, *, timeout_s: float
        ) -> Any:
            self.asked.append(node_id)
            handler = self.handlers.get(node_id)
            if handler is None:
                raise Trouble(f"node {node_id} is not there", Outcome.REFUSED)
            serving = asyncio.ensure_future(handler(me, header, memoryview(payload)))
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.sleep(self.takes_s)
                    header, data = await asyncio.shield(serving)
            except TimeoutError:
                raise Trouble(f"no answer in {timeout_s} s", Outcome.UNKNOWN) from None
            if self.lose_answers:
                self.lose_answers -= 1
                raise Trouble("the connection was lost", Outcome.UNKNOWN)
            return header, memoryview(data)

        def on_request(_kind: str, handler: Any) -> None:
            self.handlers[me] = handler

        return SimpleNamespace(request=request, on_request=on_request)


class Scene:
    """Node 1 leads the quorum and nodes 2 and 3 follow it; what it applies, they apply when `follow` says."""

    def __init__(self) -> None:
        self.loop = SimLoop(time_limit_s=1e6)
        self.doors = Doors()
        self.controller = ControllerScene(brokers=3)
        self.leader = self.controller.quorum
        clock = SimpleNamespace(
            steady=self.loop.time, sleep=asyncio.sleep, call_later=self.loop.call_later
        )
        self.env: Any = SimpleNamespace(clock=clock, log=EventLog())
        self.quorums: dict[int, Alone] = {1: self.leader}
        self.gates: dict[int, ControllerGate] = {}
        for node_id in (2, 3):
            follower = self.quorums[node_id] = Alone(node_id)
            follower.is_leader, follower.leader_id = False, 1
        for node_id, quorum in self.quorums.items():
            active = self.controller.controller
            self.gates[node_id] = ControllerGate(self.env, self.doors.of(node_id), quorum, active)
        self.follow(2)
        self.follow(3)

    def follow(self, node_id: int) -> None:
        """Node `node_id` applies all that node 1 has."""
        quorum = self.quorums[node_id]
        quorum.machine.restore(self.leader.machine.snapshot())
        self.gates[node_id].on_image(ImageDelta.everything(quorum.image))

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.loop.call_later(seconds, call)

    def ask(self, node_id: int, command: Any, **how: Any) -> Any:
        return self.loop.run_until_complete(self.gates[node_id].execute(command, **how))

    @property
    def now(self) -> float:
        return self.loop.time()


@pytest.fixture
def scene() -> Any:
    made = Scene()
    yield made
    made.loop.close()


def test_a_command_is_answered_by_the_leader_wherever_it_is_asked(scene: Scene) -> None:
    scene.later(0.5, lambda: scene.follow(2))
    (result,) = scene.ask(2, CREATE)
    assert result.error_code is ErrorCode.none
    assert scene.doors.asked == [1]


def test_who_asked_a_follower_reads_there_what_was_written(scene: Scene) -> None:
    scene.later(0.5, lambda: scene.follow(2))
    scene.ask(2, CREATE)
    assert "t" in scene.quorums[2].image.topics
    assert scene.now == pytest.approx(0.5)


def test_a_node_that_lags_for_long_answers_all_the_same(scene: Scene) -> None:
    (result,) = scene.ask(2, CREATE)
    assert result.error_code is ErrorCode.none
    assert scene.now == pytest.approx(APPLY_WAIT_S)
    assert [name for name, _ in scene.env.log] == ["image_behind_the_controller"]


def test_what_a_broker_says_of_itself_keeps_no_heartbeat_waiting_for_its_image(
    scene: Scene,
) -> None:
    """A node whose disk is full may lag for as long as it is: two seconds with each heartbeat were too near a session's three."""
    epoch = scene.controller.epoch(2)
    scene.ask(2, CREATE, within_s=0.5)
    began = scene.now
    for command in (
        BrokerHeartbeat(broker_id=2, broker_epoch=epoch, image_version=0),
        ReportDisk(broker_id=2, broker_epoch=epoch, is_full=True),
    ):
        assert scene.ask(2, command).error_code is ErrorCode.none
    assert scene.now == began


def test_while_nobody_leads_a_command_waits_for_who_will(scene: Scene) -> None:
    scene.leader.is_leader, scene.quorums[2].leader_id = False, None

    def elected() -> None:
        scene.leader.is_leader, scene.quorums[2].leader_id = True, 1
        scene.later(0.2, lambda: scene.follow(2))

    scene.later(1.0, elected)
    (result,) = scene.ask(2, CREATE)
    assert result.error_code is ErrorCode.none
    assert scene.now == pytest.approx(1.2)


def test_one_that_leads_no_more_refuses_and_the_next_leader_is_asked(scene: Scene) -> None:
    scene.leader.is_leader = False
    scene.later(0.3, lambda: setattr(scene.leader, "is_leader", True))
    scene.later(0.5, lambda: scene.follow(2))
    (result,) = scene.ask(2, CREATE)
    assert result.error_code is ErrorCode.none
    assert len(scene.doors.asked) > 1


def test_nobody_to_lead_is_trouble_at_the_deadline_and_surely_not_done(scene: Scene) -> None:
    for quorum in scene.quorums.values():
        quorum.is_leader, quorum.leader_id = False, None
    with pytest.raises(Trouble) as trouble:
        scene.ask(2, CREATE)
    assert trouble.value.outcome is Outcome.REFUSED
    assert WITHIN_S - 0.2 <= scene.now <= WITHIN_S


def test_a_command_that_may_have_been_done_is_not_sent_again(scene: Scene) -> None:
    scene.doors.lose_answers = 1
    with pytest.raises(Trouble) as trouble:
        scene.ask(2, CREATE)
    assert trouble.value.outcome is Outcome.UNKNOWN
    assert scene.doors.asked == [1]
    assert "t" in scene.leader.image.topics, "it was done, and nobody was told"


def test_one_that_does_no_harm_twice_is(scene: Scene) -> None:
    scene.doors.lose_answers = 2
    scene.later(0.5, lambda: scene.follow(2))
    (result,) = scene.ask(2, AutoCreateTopics(names=("t",)))
    assert result.error_code is ErrorCode.none
    assert scene.doors.asked == [1, 1, 1]


def _ids(scene: Scene) -> AllocateProducerIds:
    return AllocateProducerIds(broker_id=2, broker_epoch=scene.controller.epoch(2))


def test_what_is_done_anew_each_time_is_waited_for_while_the_one_who_was_asked_leads(
    scene: Scene,
) -> None:
    """Disks that sync in more than a second: every answer came too late, the next try took another block, and nobody got an
    id. So with registrations: each made the one before it void, and no broker came back."""
    scene.doors.takes_s = 2.5
    scene.later(2.5, lambda: scene.follow(2))
    block = scene.ask(2, _ids(scene))
    assert (block.error_code, block.first_producer_id) == (ErrorCode.none, 0)
    assert (scene.doors.asked, scene.now) == ([1], 2.5)


def test_it_is_asked_of_the_next_one_a_second_after_another_leads(scene: Scene) -> None:
    """The one who was asked stands still, with the question in its socket."""
    scene.doors.takes_s = 1000.0

    def elected() -> None:
        scene.quorums[2].leader_id, scene.doors.takes_s = 3, 0.0
        scene.quorums[3].is_leader = True
        scene.quorums[3].machine.restore(scene.leader.machine.snapshot())

    scene.later(3.0, elected)
    scene.later(5.0, lambda: scene.follow(2))
    block = scene.ask(2, _ids(scene))
    assert block.error_code is ErrorCode.none
    assert scene.doors.asked == [1, 3]
    assert scene.now <= 5.0


def test_a_full_disk_of_the_controller_is_told_at_once(scene: Scene) -> None:
    async def full(_record: bytes) -> Any:
        raise DiskFull("no room")

    scene.leader.propose = full  # type: ignore[method-assign]
    with pytest.raises(DiskFull, match="no room"):
        scene.ask(2, CREATE)
    assert scene.doors.asked == [1]


def test_a_command_that_is_too_large_is_refused_before_it_is_sent(scene: Scene) -> None:
    """67 MB of settings ended the node that was to hand them on."""
    changes = tuple(
        ConfigChange(name=f"name-{i}", operation=ConfigOperation.SET, value="x" * 32_767)
        for i in range(COMMAND_BYTES_MAX // 32_767 + 1)
    )
    change = ResourceChange(resource_type=ConfigType.TOPIC, name="t", changes=changes)
    with pytest.raises(TooLarge, match="8388608 may be sent"):
        scene.ask(2, AlterConfigs(resources=(change,)))
    assert scene.doors.asked == []


def test_an_answer_that_is_too_large_is_told_in_a_sentence(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cluster.controller.gate.PAYLOAD_MAX", 10)
    with pytest.raises(Trouble, match="It was done") as caught:
        scene.ask(2, CREATE)
    assert caught.value.outcome is Outcome.UNKNOWN


def test_a_command_that_the_controller_does_not_know_is_refused_with_a_sentence(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer node asks an older controller. The connection stays: the quorum uses it, too."""
    monkeypatch.setattr(
        "fencepost.cluster.controller.gate.write_command", lambda _: b"\x92\xa7Explode\x80"
    )
    with pytest.raises(
        Unreadable, match="'Explode', which this version of Fencepost does not know"
    ):
        scene.ask(2, CREATE)
    assert scene.doors.asked == [1]


def test_a_node_speaks_for_itself_only(scene: Scene) -> None:
    heartbeat = BrokerHeartbeat(
        broker_id=3, broker_epoch=scene.controller.epoch(3), image_version=9
    )
    with pytest.raises(Unreadable, match="node 2 speaks for node 3"):
        scene.ask(2, heartbeat)
    assert scene.ask(2, UnregisterBroker(broker_id=9)).error_code is not ErrorCode.none


def test_a_node_alone_asks_itself(scene: Scene) -> None:
    gate = ControllerGate(scene.env, None, scene.leader, scene.controller.controller)
    (result,) = scene.loop.run_until_complete(gate.execute(CREATE))
    assert result.error_code is ErrorCode.none
    assert not scene.doors.asked
