"""Brokers with so many partitions that what becomes of them fits into no batch: it is agreed on in parts."""

import asyncio
import functools
from typing import Any

import pytest
from controller_scene import Scene
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import NO_LEADER
from fencepost.cluster.controller import election_policy, service
from fencepost.cluster.controller.brokers_policy import decide_fence
from fencepost.cluster.controller.commands import (
    BrokerHeartbeat,
    CreateTopics,
    FailedReplica,
    NewTopic,
)

PARTITIONS = 60  # of each topic
BATCH_BYTES = 600
PART_CHANGES = 25


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Broker 2 leads the topics `two`, which 1 has too, and `one`, which nobody else has."""
    scene = Scene(brokers=2)
    topics = [
        NewTopic(name=name, assignments=tuple((index, replicas) for index in range(PARTITIONS)))
        for name, replicas in (("one", (2,)), ("two", (2, 1)))
    ]
    results = scene.when(CreateTopics(topics=tuple(topics)))
    assert {each.error_code for each in results} == {ErrorCode.none}
    monkeypatch.setattr(service, "BATCH_BYTES_MAX", BATCH_BYTES)
    monkeypatch.setattr(election_policy, "PART_CHANGES_MAX", PART_CHANGES)
    scene.quorum.proposed.clear()
    return scene


def fence(scene: Scene) -> None:
    decide = functools.partial(decide_fence, broker_id=2, broker_epoch=scene.epoch(2))
    asyncio.run(scene.controller.run("fence", decide))


def leaders(scene: Scene, topic: str) -> set[int]:
    return {each.leader for each in scene.image.topics[topic].partitions}


def beat(scene: Scene, **other: Any) -> Any:
    return scene.when(
        BrokerHeartbeat(
            broker_id=2,
            broker_epoch=scene.epoch(2),
            image_version=scene.image.version,
            **other,
        )
    )


def check_parts(scene: Scene) -> None:
    assert len(scene.quorum.proposed) > 1
    assert max(map(len, scene.quorum.proposed)) <= BATCH_BYTES
    scene.quorum.proposed.clear()


def test_one_that_is_fenced_comes_back_and_goes(scene: Scene) -> None:
    fence(scene)
    check_parts(scene)
    assert scene.image.brokers[2].fenced
    assert (leaders(scene, "one"), leaders(scene, "two")) == ({NO_LEADER}, {1})
    assert scene.register(2, fenced=True).error_code is ErrorCode.none
    scene.quorum.proposed.clear()
    assert not beat(scene).is_fenced
    check_parts(scene)
    assert not scene.image.brokers[2].fenced
    assert (leaders(scene, "one"), leaders(scene, "two")) == ({2}, {1})
    assert beat(scene, want_shut_down=True).should_shut_down
    check_parts(scene)
    assert leaders(scene, "one") == {NO_LEADER}


def test_one_that_registers_anew_before_it_was_fenced(scene: Scene) -> None:
    assert scene.register(2, fenced=True).error_code is ErrorCode.none
    check_parts(scene)
    assert scene.image.brokers[2].fenced
    assert (leaders(scene, "one"), leaders(scene, "two")) == ({NO_LEADER}, {1})


def test_one_whose_logs_fail(scene: Scene) -> None:
    topics = scene.image.topics
    failed = [
        FailedReplica(topic_id=topics[name].topic_id, partition=index, may_lack=False)
        for name in ("one", "two")
        for index in range(PARTITIONS)
    ]
    beat(scene, failed=tuple(failed))
    check_parts(scene)
    assert (leaders(scene, "one"), leaders(scene, "two")) == ({NO_LEADER}, {1})


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_a_controller_that_ends_after_any_part_leaves_what_the_next_one_can_finish(
    scene: Scene, parts: int
) -> None:
    """As long as the broker is not fenced it is watched; and who has another leader gets that first."""
    left = parts

    def lose_the_lead() -> None:
        nonlocal left
        left -= 1
        scene.quorum.is_leader = left > 0
        scene.quorum.before_apply = lose_the_lead

    scene.quorum.before_apply = lose_the_lead
    with pytest.raises(Trouble):
        fence(scene)
    assert not scene.image.brokers[2].fenced
    if parts < 3:
        assert (leaders(scene, "one"), leaders(scene, "two")) == ({2}, {1, 2})
    else:
        assert leaders(scene, "two") == {1}
    scene.quorum.is_leader, scene.quorum.before_apply = True, None
    fence(scene)
    assert scene.image.brokers[2].fenced
    assert (leaders(scene, "one"), leaders(scene, "two")) == ({NO_LEADER}, {1})
