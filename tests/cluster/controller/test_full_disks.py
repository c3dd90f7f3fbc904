"""Whose disk is full leads no longer, where others can take the writes; and gets no lead before it has room."""

import asyncio
import functools
from typing import Any

import pytest
from controller_scene import Scene, wish
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller import balance_policy, full_disks
from fencepost.cluster.controller.balance_policy import LeaderBalance
from fencepost.cluster.controller.brokers_policy import decide_fence
from fencepost.cluster.controller.commands import (
    BrokerHeartbeat,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    NewTopic,
    ReportDisk,
)
from fencepost.cluster.controller.decision import Disks
from fencepost.cluster.controller.full_disks import CALM_MS, CALM_MS_MAX, FullDisks

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
    scene.controller.disks = lambda: Disks(full=frozenset(full))


def fence(scene: Scene, broker: int) -> None:
    decide = functools.partial(decide_fence, broker_id=broker, broker_epoch=scene.epoch(broker))
    asyncio.run(scene.controller.run("fence", decide, cause="it was silent"))


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


# --- who leads instead, and when it gets its leads back ---


@pytest.mark.parametrize("leaves", ["fenced", "drained"])
def test_of_those_in_sync_one_with_room_takes_over(scene: Scene, leaves: str) -> None:
    """Whatever the reason is that its leader goes; 2, which comes first, is full."""
    believe(scene, 2)
    if leaves == "fenced":
        fence(scene, 1)
    else:
        beat = BrokerHeartbeat(
            broker_id=1,
            broker_epoch=scene.epoch(1),
            image_version=scene.image.version,
            want_shut_down=True,
        )
        scene.when(beat)
    assert scene.partition().leader == 3


def test_of_those_below_the_minimum_one_with_room_takes_over_and_else_a_full_one(
    scene: Scene,
) -> None:
    """Who is in the ELR has all that was committed, too. A full disk can be read."""
    wish(scene, 1)
    believe(scene, 2)
    fence(scene, 1)
    assert scene.partition().leader == 3
    fence(scene, 3)
    assert scene.partition().leader == 2


def test_the_balance_waits_until_a_new_controller_has_been_told(scene: Scene) -> None:
    """Its list of full disks is empty, and each of them would get leads that it gives away at once."""
    balance = LeaderBalance()
    report(scene, 1)
    wish(scene, 2, 3, 1, broker=2)
    for all_heard, moved in ((False, 0), (True, 1)):
        scene.controller.disks = lambda all_heard=all_heard: Disks(all_heard=all_heard)
        assert len(balance.decide_tick(scene.controller._scene()).records) == moved


def test_the_balance_leaves_out_who_was_full_lately_and_a_person_does_not(scene: Scene) -> None:
    report(scene, 1)
    wish(scene, 2, 3, 1, broker=2)
    scene.controller.disks = lambda: Disks(lately_full=frozenset({1}))
    assert balance_policy.decide_tick(scene.controller._scene()).records == []
    (asked,) = scene.when(PREFERRED)
    assert asked.error_code is ErrorCode.none
    assert scene.partition().leader == 1


def test_who_is_full_again_soon_after_its_calm_gets_a_longer_one() -> None:
    disks, now = FullDisks(9_000), 1_000
    calms = []
    for _ in range(8):
        disks.heard(1, now, is_full=True)
        disks.heard(1, now + 500, is_full=True)
        disks.heard(1, now + 1_000, is_full=False)
        assert disks.now(now + 1_000).full == set()
        until = next(at for at in range(now, now + 10**7, 500) if not disks.now(at).lately_full)
        calms.append(until - now - 500)
        now = until + 70_000  # slowly
    assert calms == [min(CALM_MS << each, CALM_MS_MAX) for each in range(8)]
    now += 2 * CALM_MS_MAX
    disks.heard(1, now, is_full=True)
    assert disks.now(now + CALM_MS - 1).lately_full == {1}
    assert disks.now(now + CALM_MS).lately_full == set()


def test_a_disk_that_is_full_by_turns_within_its_calm_makes_it_no_longer() -> None:
    disks = FullDisks(9_000)
    for now in range(0, 20_000, 2_000):
        disks.heard(1, now, is_full=True)
        disks.heard(1, now + 1_000, is_full=False)
    assert disks.now(18_000 + CALM_MS).lately_full == set()


def test_a_new_controller_has_heard_of_all_after_a_session() -> None:
    disks = FullDisks(9_000)
    assert disks.now(0).all_heard
    disks.begin(5_000)
    assert not disks.now(13_999).all_heard
    assert disks.now(14_000).all_heard


def test_leads_do_not_go_to_and_fro_between_two_disks_that_are_full_by_turns() -> None:
    """The third in sync has always had room: it comes before one that was full lately."""
    scene = Scene(brokers=3)
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=((0, (1, 2, 3)),)),)))
    disks, now, led = FullDisks(9_000), 0, []
    scene.controller.disks = lambda: disks.now(now)
    other = {1: 2, 2: 1}
    while scene.partition().leader in other:
        full = scene.partition().leader
        led.append(full)
        disks.heard(other[full], now, is_full=False)
        report(scene, other[full], is_full=False)
        wish(scene, 1, 2, 3, broker=full)
        disks.heard(full, now, is_full=True)
        report(scene, full)
        now += 5_000
    assert led == [1, 2]
    believe(scene, 3)
    fence(scene, 3)  # and if nobody else is left one that was full lately is better than none
    assert scene.partition().leader in other


def test_time_in_which_nobody_led_is_nobodys_time_to_say_so() -> None:
    disks = FullDisks(9_000)
    disks.begin(0)
    disks.heard(1, 0, is_full=True)
    disks.excuse(5_000, 6_000)
    assert disks.now(13_999) == Disks(full={1}, lately_full={1}, all_heard=False)
    assert disks.now(14_000) == Disks(lately_full={1})
