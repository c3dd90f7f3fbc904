"""Whose disk is full leads no longer, where others can take the writes; and gets no lead before it has room."""

from typing import Any

import pytest
from controller_scene import Scene, wish
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller import balance_policy, full_disks
from fencepost.cluster.controller.commands import (
    CreateTopics,
    ElectionType,
    ElectLeaders,
    NewTopic,
    ReportDisk,
)

PREFERRED = ElectLeaders(election=ElectionType.PREFERRED, partitions=(("t", 0),))


@pytest.fixture
def scene() -> Scene:
    """t-0 and t-1 on all three, two of which must be in sync; led by 1 and 2."""
    made = Scene({"min.insync.replicas": "2"}, brokers=3)
    topic = NewTopic(name="t", assignments=((0, (1, 2, 3)), (1, (2, 3, 1))))
    made.when(CreateTopics(topics=(topic,)))
    return made


def report(scene: Scene, broker: int, *, is_full: bool = True, **other: Any) -> Any:
    epoch = other.get("broker_epoch", scene.epoch(broker))
    return scene.when(ReportDisk(broker_id=broker, broker_epoch=epoch, is_full=is_full))


def believe(scene: Scene, *full: int) -> None:
    scene.controller.full_disks = lambda: frozenset(full)


def test_whoever_has_a_full_disk_gives_its_leads_to_others_in_sync(scene: Scene) -> None:
    """And what it does not lead stays as it is: its leader sees by itself whether it follows."""
    other = scene.partition(index=1)
    assert report(scene, 1).error_code is ErrorCode.none
    now = scene.partition()
    assert (now.leader, now.leader_epoch, now.isr, now.elr) == (2, 1, (2, 3), ())
    assert scene.partition(index=1) == other
    assert ("leader_elected", "the disk of node 1 is full") in [
        (event, fields["cause"]) for event, fields in scene.log if "cause" in fields
    ]


def test_what_is_reported_twice_or_has_room_changes_nothing(scene: Scene) -> None:
    version = scene.image.version
    report(scene, 1, is_full=False)
    assert scene.image.version == version
    report(scene, 1)
    moved = scene.image.version
    report(scene, 1)
    assert scene.image.version == moved


def test_it_goes_on_where_the_others_alone_could_take_no_writes(scene: Scene) -> None:
    """It can be read, and who is to take over has to catch up with somebody."""
    wish(scene, 1, 2)
    before = scene.partition()
    report(scene, 1)
    assert scene.partition() == before
    wish(scene, 1, 2, 3)
    report(scene, 1)
    assert scene.partition().leader == 2


def test_a_full_disk_does_not_take_over_from_a_full_disk(scene: Scene) -> None:
    believe(scene, 2)
    before = scene.partition()
    report(scene, 1)
    assert scene.partition() == before  # one with room is not two
    scene = Scene({"min.insync.replicas": "1"}, brokers=3)
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=((0, (1, 2, 3)),)),)))
    believe(scene, 2)
    report(scene, 1)
    now = scene.partition()
    assert (now.leader, now.isr) == (3, (3,))


def test_its_leads_come_back_when_it_has_room_and_not_before(scene: Scene) -> None:
    report(scene, 1)
    wish(scene, 2, 3, 1, broker=2)  # nothing is written: it has kept up
    believe(scene, 1)
    assert balance_policy.decide_tick(scene.controller._scene()).records == []
    (asked,) = scene.when(PREFERRED)
    assert asked.error_code is ErrorCode.preferred_leader_not_available
    assert scene.partition().leader == 2
    believe(scene)
    (asked,) = scene.when(PREFERRED)
    assert asked.error_code is ErrorCode.none
    assert scene.partition().leader == 1


def test_a_report_of_an_earlier_registration_is_refused(scene: Scene) -> None:
    before = scene.partition()
    stale = report(scene, 1, broker_epoch=scene.epoch(1) - 1)
    assert stale.error_code is ErrorCode.stale_broker_epoch
    assert scene.partition() == before


def test_a_report_moves_so_many_and_the_next_one_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_disks, "MOVES_MAX", 2)
    many = tuple((index, (1, 2, 3)) for index in range(3))
    scene.when(CreateTopics(topics=(NewTopic(name="u", assignments=many),)))
    led = [4]
    while led[-1]:
        report(scene, 1)
        led.append(
            sum(
                now.leader == 1
                for topic in ("t", "u")
                for now in scene.image.topics[topic].partitions
            )
        )
    assert led == [4, 2, 0]
