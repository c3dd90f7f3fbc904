"""Positions that clients of OffsetCommit 2 to 4 store with a retention of their own: Kafka's record of them has no room for a topic id."""

from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.commands import Commit, OffsetCommit, OffsetFetch, Wanted
from fencepost.txn.groups.records import OffsetCommitted
from fencepost.txn.groups.registry import decode
from support.group_scene import Scene

OLD, NEW = UUID(int=1), UUID(int=2)


def told(scene: Scene, topic_id: UUID) -> int:
    wanted = (Wanted("t", topic_id, (0,)),)
    reply = scene.do(OffsetFetch(group_id="g", topics=wanted))
    return reply["topics"][0]["partitions"][0]["committed_offset"]


def test_a_topic_made_anew_inherits_no_position_from_the_coordinator_before() -> None:
    """It was told so before the coordinator moved, and 100 after: the group left out the new topic's first records."""
    scene = Scene()
    commit = OffsetCommit(
        group_id="g",
        retention_time_ms=3_600_000,
        api_version=2,
        commits=(Commit("t", OLD, 0, 100, -1, ""),),
    )
    assert scene.do(commit) == [ErrorCode.none]
    assert (told(scene, OLD), told(scene, NEW)) == (100, -1)
    scene.reload()
    assert (told(scene, OLD), told(scene, NEW)) == (100, -1)


def test_and_the_time_that_its_client_has_set_is_kept_too() -> None:
    record = OffsetCommitted(
        group_id="g",
        topic="t",
        partition=0,
        committed_offset=100,
        commit_timestamp=1,
        expire_timestamp=2,
        topic_id=OLD,
    )
    assert decode(*record.encode()) == record
