"""What the controller says of its decisions: who died, who leads now, who asked."""

import asyncio
import functools
from typing import Any

from controller_scene import Scene, wish
from fencepost.cluster.controller import told
from fencepost.cluster.controller.brokers_policy import decide_fence, decide_heartbeat
from fencepost.cluster.controller.commands import (
    AlterReassignments,
    BrokerHeartbeat,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    NewTopic,
    Reassignment,
)
from fencepost.cluster.metadata.image import PartitionState
from fencepost.cluster.metadata.records import PartitionChange, PartitionsChanged


def scene_of(*assignment: int, partitions: int = 1, brokers: int = 3) -> Scene:
    scene = Scene({"min.insync.replicas": "2"}, brokers=brokers)
    wanted = tuple((index, assignment) for index in range(partitions))
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=wanted),)))
    scene.log.clear()
    return scene


def fence(scene: Scene, broker_id: int) -> None:
    epoch = scene.epoch(broker_id)
    decide = functools.partial(decide_fence, broker_id=broker_id, broker_epoch=epoch)
    asyncio.run(scene.controller.run("fence", decide, cause="its process is dead"))


def test_a_fenced_broker_and_what_becomes_of_its_partitions_are_told_with_the_cause() -> None:
    scene = scene_of(1, 2, 3)
    fence(scene, 1)
    assert scene.log == [
        ("broker_fenced", {"broker": 1, "cause": "its process is dead"}),
        (
            "leader_elected",
            {
                "topic": "t",
                "partition": 0,
                "leader": 2,
                "leader_epoch": 1,
                "before": 1,
                "isr": [2, 3],
                "cause": "node 1 is fenced: its process is dead",
            },
        ),
    ]


def test_a_follower_that_is_fenced_leaves_the_in_sync_set() -> None:
    scene = scene_of(1, 2, 3)
    fence(scene, 3)
    event, fields = scene.log[1]
    assert (event, fields["before"], fields["isr"]) == ("isr_changed", [1, 2, 3], [1, 2])
    assert fields["cause"] == "node 3 is fenced: its process is dead"


def test_a_partition_without_a_leader_is_told_with_those_who_could_lead_it() -> None:
    scene = scene_of(2)
    fence(scene, 2)
    event, fields = scene.log[1]
    assert (event, fields["leader_epoch"], fields["before"]) == ("partition_without_leader", 1, 2)
    assert fields["eligible"] == [2]


def test_what_a_leader_asked_for_is_told_by_that_leader() -> None:
    scene = scene_of(1, 2, 3)
    wish(scene, 1, 2)
    assert scene.log == []


def test_a_broker_that_comes_back_is_told_and_its_preferred_leadership_with_who_asked() -> None:
    scene = scene_of(1, 2, 3)
    fence(scene, 1)
    scene.register(1, fenced=True)
    scene.when(BrokerHeartbeat(broker_id=1, broker_epoch=scene.epoch(1), image_version=10_000))
    wish(scene, 1, 2, 3, broker=2)
    scene.log.clear()
    scene.when(ElectLeaders(election=ElectionType.PREFERRED, partitions=None))
    ((event, fields),) = scene.log
    assert (event, fields["leader"], fields["before"]) == ("leader_elected", 1, 2)
    assert fields["cause"] == "an admin asked for the preferred leader"


def test_an_unclean_election_is_told_as_one() -> None:
    scene = scene_of(2, 3)
    wish(scene, 2, broker=2)
    wish(scene, 2, broker=2)
    fence(scene, 3)
    fence(scene, 2)
    now: PartitionState = scene.partition()
    assert now.leader == -1
    change = PartitionChange(
        partition=0, expects_partition_epoch=now.partition_epoch, leader=1, replicas=(2, 3, 1),
        leader_epoch=type(now.leader_epoch)(now.leader_epoch + 1), isr=(1,),
    )  # fmt: skip
    record = PartitionsChanged(topic_id=scene.image.topics["t"].topic_id, changes=(change,))
    (line,) = told.lines_of(scene.image, [record], "an admin gave it up")
    assert (line.level, line.event) == ("warn", "leader_elected_unclean")


def test_a_leader_that_lets_its_successor_in_and_goes_lost_nothing() -> None:
    """As in every drain: the change that lets the new replica in ends the move, and may have it lead."""
    scene = scene_of(1, 2, 3, brokers=4)
    scene.when(
        AlterReassignments(partitions=(Reassignment(topic="t", partition=0, replicas=(4, 2, 3)),))
    )
    scene.log.clear()
    before = scene.controller.counters.unclean_elections
    wish(scene, 1, 2, 3, 4)
    assert scene.partition().leader == 4
    (fields,) = [fields for event, fields in scene.log if event == "leader_elected"]
    assert (fields["leader"], fields["before"]) == (4, 1)
    assert scene.controller.counters.unclean_elections == before


def steps(scene: Scene) -> list[tuple[str, Any]]:
    return [(event, fields.get("replicas")) for event, fields in scene.log]


def move(scene: Scene, *replicas: int) -> None:
    asked = Reassignment(topic="t", partition=0, replicas=replicas or None)
    scene.when(AlterReassignments(partitions=(asked,)))


def test_the_steps_of_a_move_are_told_and_its_end() -> None:
    scene = scene_of(1, 2, brokers=3)
    move(scene, 1, 3)
    assert steps(scene) == [("move_begun", [1, 3, 2])]
    scene.log.clear()
    wish(scene, 1, 2, 3)
    assert steps(scene)[0] == ("move_done", [1, 3])


def test_a_move_that_is_cancelled_is_told_as_cancelled() -> None:
    scene = scene_of(1, 2, brokers=3)
    move(scene, 1, 3)
    scene.log.clear()
    move(scene)
    assert steps(scene)[0] == ("move_cancelled", [1, 2])


def test_a_decision_about_many_partitions_is_so_many_lines_and_a_number() -> None:
    scene = scene_of(2, partitions=120)
    fence(scene, 2)
    assert len(scene.log) == 1 + told.EACH_MAX + 1
    event, fields = scene.log[-1]
    assert event == "partitions_changed_too"
    assert (fields["count"], fields["without_leader"]) == (70, 70)


def test_a_partition_that_is_left_by_the_last_that_stops_is_no_alarm() -> None:
    scene = scene_of(2)
    command = BrokerHeartbeat(
        broker_id=2, broker_epoch=scene.epoch(2), image_version=10_000, want_shut_down=True
    )
    decision = decide_heartbeat(scene.controller._scene(), command)
    lines = told.lines_of(scene.image, decision.records, told.cause_of(command))
    assert [(line.level, line.event) for line in lines] == [
        ("info", "broker_leaving"),
        ("warn", "partition_without_leader"),
    ]
