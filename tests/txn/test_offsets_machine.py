"""OffsetCommit, OffsetFetch, OffsetDelete and their retention, row by row as Kafka 4.3's OffsetMetadataManager."""

from uuid import UUID

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.commands import (
    Commit,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TopicsDeleted,
    TxnOffsetCommit,
    Wanted,
)
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.offsets_machine import java_length
from fencepost.txn.groups.records import NO_TOPIC_ID, OffsetForgotten
from support.group_scene import Scene

E = ErrorCode
DAY_MS = 24 * 3_600_000
OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)


# -- who may commit ------------------------------------------------------------------------------

# group's phase, who commits, generation less the group's or the very one (-1), in a transaction -> error
MAY_COMMIT = [
    ("none", "", -1, False, E.none),
    ("none", "c-1", 3, False, E.group_id_not_found),
    ("none", "", -1, True, E.none),
    ("none", "c-1", 3, True, E.illegal_generation),
    ("Empty", "", -1, False, E.none),
    ("Empty", "gone", -1, False, E.none),
    ("Empty", "gone", "same", False, E.unknown_member_id),
    ("Empty", "gone", "same", True, E.unknown_member_id),
    ("Stable", "member", "same", False, E.none),
    ("Stable", "member", "older", False, E.illegal_generation),
    ("Stable", "member", -1, False, E.illegal_generation),
    ("Stable", "nobody", "same", False, E.unknown_member_id),
    ("Stable", "", -1, False, E.unknown_member_id),
    ("Stable", "", -1, True, E.none),
    ("Stable", "member", "older", True, E.illegal_generation),
    ("PreparingRebalance", "member", "same", False, E.none),
    ("PreparingRebalance", "member", "older", False, E.illegal_generation),
    ("CompletingRebalance", "member", "same", False, E.rebalance_in_progress),
    ("CompletingRebalance", "member", "same", True, E.none),
    ("CompletingRebalance", "member", "older", False, E.illegal_generation),
]


@pytest.mark.parametrize(("phase", "who", "generation", "in_txn", "error"), MAY_COMMIT)
def test_offsets_are_taken_only_from_whom_kafka_takes_them(phase, who, generation, in_txn, error):
    scene = Scene()
    member = "gone"
    if phase != "none":
        member, follower = scene.stable(2)
    if phase in ("PreparingRebalance", "CompletingRebalance"):
        scene.join(member)
    if phase == "CompletingRebalance":
        scene.join(follower)
    if phase == "Empty":
        scene.leave(member, follower)
    assert scene.phase() == phase
    if isinstance(generation, str):
        generation = scene.generation() - (1 if generation == "older" else 0)
    member_id = member if who == "member" else who
    common = {"member_id": member_id, "generation": generation}
    if in_txn:
        outcome = scene.commit_in_transaction(7, ("t", 0, 5), **common)
    else:
        outcome = scene.commit(("t", 0, 5), **common)
    assert outcome == [error]
    assert bool(scene.fetch("t", 0)["t", 0] == 5) == (error is E.none and not in_txn)


def test_before_v9_an_unknown_group_is_an_illegal_generation() -> None:
    assert Scene().commit(("t", 0, 1), member_id="m", generation=1, version=8) == [
        E.illegal_generation
    ]


def test_a_static_member_that_was_replaced_commits_nothing() -> None:
    scene = Scene()
    parked = scene.join(instance="i1")
    scene.pass_ms(3_000)
    one = scene.answer(parked)["member_id"]
    scene.sync(one, 1, instance="i1")
    scene.join(instance="i1")
    common = {"member_id": one, "generation": 1}
    assert scene.commit(("t", 0, 1), instance="i1", **common) == [E.fenced_instance_id]
    assert scene.commit(("t", 0, 1), instance="i2", **common) == [E.unknown_member_id]


def test_whoever_stores_offsets_is_a_group_from_then_on() -> None:
    scene = Scene()
    scene.commit(("t", 0, 1))
    assert scene.phase() == "Empty"
    scene.reload()
    assert (scene.phase(), scene.fetch()) == ("Empty", {("t", 0): 1})


# -- what is committed and fetched ---------------------------------------------------------------


def test_metadata_over_the_limit_spoils_only_its_own_partition() -> None:
    scene = Scene(GroupConfig(offset_metadata_max_bytes=3))
    commits = (
        Commit("t", NO_TOPIC_ID, 0, 1, -1, "abcd"),
        Commit(
            "t", NO_TOPIC_ID, 1, 2, -1, "äöü"
        ),  # Kafka counts characters, whatever the name says
    )
    reply = scene.do(OffsetCommit(group_id="g", api_version=9, commits=commits))
    assert reply == [E.offset_metadata_too_large, E.none]
    assert scene.fetch() == {("t", 1): 2}


def test_a_position_that_is_asked_for_again_in_one_question_is_told_once() -> None:
    """4 bytes name it again, and its metadata is 4 KB: 100,000 times that are 400 MB of one answer."""
    scene = Scene()
    scene.commit(("t", 0, 5))
    ask = Wanted("t", NO_TOPIC_ID, (0, 0, 1, 0))
    reply = scene.do(OffsetFetch(group_id="g", topics=(ask, ask)))
    rows = [[row["partition_index"] for row in topic["partitions"]] for topic in reply["topics"]]
    assert rows == [[0, 1], []]


def test_a_length_is_counted_as_java_does() -> None:
    assert (java_length("äb"), java_length("𝄞b")) == (2, 3)


def test_a_partition_without_a_position_has_offset_minus_one_and_no_error() -> None:
    scene = Scene()
    assert scene.fetch("t", 0) == {("t", 0): -1}
    scene.commit(("t", 0, 5))
    assert scene.fetch("t", 0, 1) == {("t", 0): 5, ("t", 1): -1}


def test_all_positions_are_fetched_in_the_order_of_topics_and_partitions() -> None:
    scene = Scene()
    scene.commit(("b", 1, 1), ("b", 0, 2), ("a", 7, 3))
    assert list(scene.fetch().items()) == [(("a", 7), 3), (("b", 0), 2), (("b", 1), 1)]


def test_a_position_of_a_topic_that_was_made_anew_is_not_the_new_ones() -> None:
    scene = Scene()
    commits = (Commit("t", OLD_ID, 0, 5, -1, ""),)
    scene.do(OffsetCommit(group_id="g", api_version=10, commits=commits))
    rows = []
    for topic_id in (OLD_ID, NEW_ID, NO_TOPIC_ID):
        reply = scene.do(OffsetFetch(group_id="g", topics=(Wanted("t", topic_id, (0,)),)))
        rows.append(reply["topics"][0]["partitions"][0]["committed_offset"])
    assert rows == [5, -1, 5]


# -- in transactions -----------------------------------------------------------------------------


def test_an_offset_in_a_transaction_counts_from_its_marker_on() -> None:
    scene = Scene()
    scene.commit(("t", 0, 1))
    scene.commit_in_transaction(7, ("t", 0, 5))
    assert scene.fetch("t", 0) == {("t", 0): 1}
    assert scene.fetch("t", 0, 1, stable=True) == {
        ("t", 0): E.unstable_offset_commit,
        ("t", 1): -1,
    }
    scene.end_transaction(7, commit=True)
    assert scene.fetch("t", 0, stable=True) == {("t", 0): 5}


def test_an_offset_in_a_transaction_that_aborts_never_was() -> None:
    scene = Scene()
    scene.commit_in_transaction(7, ("t", 0, 5))
    scene.end_transaction(7, commit=False)
    assert scene.fetch("t", 0, stable=True) == {("t", 0): -1}
    scene.reload()
    assert scene.fetch("t", 0) == {("t", 0): -1}


def test_a_commit_after_a_transactional_one_outlives_its_marker() -> None:
    """The last record counts, not the last marker: compaction would see it so too."""
    scene = Scene()
    scene.commit_in_transaction(7, ("t", 0, 5))
    scene.commit(("t", 0, 9))
    scene.end_transaction(7, commit=True)
    assert scene.fetch("t", 0) == {("t", 0): 9}


def test_a_marker_for_nothing_does_nothing() -> None:
    scene = Scene()
    scene.end_transaction(7, commit=True)
    assert scene.fetch() == {}


# -- deleting ------------------------------------------------------------------------------------


def delete_offsets(scene: Scene, topic: str, *partitions: int):
    reply = scene.do(OffsetDelete(group_id="g", topics=((topic, partitions),)))
    if reply["error_code"] is not E.none:
        return reply["error_code"]
    return [row["error_code"] for row in reply["topics"][0]["partitions"]]


def test_offsets_of_a_group_that_nobody_knows_can_not_be_deleted() -> None:
    assert delete_offsets(Scene(), "t", 0) is E.group_id_not_found


def test_offsets_are_deleted_and_so_are_those_that_a_transaction_would_bring() -> None:
    scene = Scene()
    scene.commit(("t", 0, 5))
    scene.commit_in_transaction(7, ("t", 1, 6))
    logged = len(scene.log)
    assert delete_offsets(scene, "t", 0, 1, 2) == [E.none] * 3
    assert len(scene.log) == logged + 2, "nothing to delete, nothing to log"
    scene.end_transaction(7, commit=True)
    assert scene.fetch("t", 0, 1) == {("t", 0): -1, ("t", 1): -1}


def test_a_deletion_takes_away_what_every_open_transaction_would_bring() -> None:
    scene = Scene()
    for producer_id in (7, 8):
        scene.commit_in_transaction(producer_id, ("t", 0, producer_id))
    assert delete_offsets(scene, "t", 0) == [E.none]
    assert scene.fetch("t", 0, stable=True) == {("t", 0): -1}
    for producer_id in (7, 8):
        scene.end_transaction(producer_id, commit=True)
        assert scene.fetch("t", 0, stable=True) == {("t", 0): -1}


SUBSCRIBED = (("range", b"\x00\x00\x00\x00\x00\x01\x00\x04used"),)


def test_offsets_of_a_topic_that_the_group_reads_are_kept() -> None:
    scene = Scene()
    (member,) = scene.stable(1, protocols=SUBSCRIBED)
    scene.commit(("used", 0, 5), ("other", 0, 6), member_id=member, generation=1)
    assert delete_offsets(scene, "used", 0) == [E.group_subscribed_to_topic]
    assert delete_offsets(scene, "other", 0) == [E.none]
    assert scene.fetch() == {("used", 0): 5}


def test_offsets_of_a_live_group_of_another_kind_can_not_be_deleted() -> None:
    """Of Kafka Connect's workers nobody can tell what they read."""
    scene = Scene()
    scene.stable(1, protocol_type="connect")
    assert delete_offsets(scene, "t", 0) is E.non_empty_group


def test_deleting_a_topic_deletes_its_offsets_but_not_those_of_its_successor() -> None:
    scene = Scene()
    commits = (
        Commit("t", OLD_ID, 0, 1, -1, ""),
        Commit("t", NEW_ID, 1, 2, -1, ""),
        Commit("t", NO_TOPIC_ID, 2, 3, -1, ""),
        Commit("other", NO_TOPIC_ID, 0, 4, -1, ""),
    )
    scene.do(OffsetCommit(group_id="g", api_version=10, commits=commits))
    scene.commit_in_transaction(7, ("t", 3, 5))
    scene.do(TopicsDeleted(topics=(("t", OLD_ID),)))
    scene.end_transaction(7, commit=True)
    assert scene.fetch() == {("t", 1): 2, ("other", 0): 4}


@pytest.mark.parametrize("of_the_new_one", ["the transaction's", "the other"])
def test_a_late_word_of_a_deleted_topic_takes_nothing_from_its_successor(of_the_new_one) -> None:
    """Until all groups have been read after a move the word waits, and the topic may be there anew by then."""
    scene = Scene()
    in_txn, outside = (
        (NEW_ID, OLD_ID) if of_the_new_one == "the transaction's" else (OLD_ID, NEW_ID)
    )
    early = TxnOffsetCommit(
        group_id="g", producer_id=7, producer_epoch=0, commits=(Commit("t", in_txn, 0, 7, -1, ""),)
    )
    late = OffsetCommit(group_id="g", api_version=10, commits=(Commit("t", outside, 0, 5, -1, ""),))
    for command in (late, early) if in_txn == NEW_ID else (early, late):
        scene.do(command)
    scene.do(TopicsDeleted(topics=(("t", OLD_ID),)))
    scene.end_transaction(7, commit=True)
    offset = 7 if in_txn == NEW_ID else 5
    for _ in range(2):
        reply = scene.do(OffsetFetch(group_id="g", topics=(Wanted("t", NEW_ID, (0,)),)))
        assert reply["topics"][0]["partitions"][0]["committed_offset"] == offset
        scene.reload()


# -- retention (KIP-211) -------------------------------------------------------------------------


def test_offsets_of_a_consumer_without_a_group_expire_by_their_own_age() -> None:
    scene = Scene()
    scene.commit(("t", 0, 1))
    scene.pass_ms(3 * DAY_MS)
    scene.commit(("t", 1, 2))
    scene.pass_ms(5 * DAY_MS)
    assert scene.fetch() == {("t", 1): 2}
    scene.pass_ms(3 * DAY_MS)
    assert (scene.fetch(), scene.phase()) == ({}, "none")


def test_offsets_of_an_empty_group_expire_a_retention_after_it_became_empty() -> None:
    scene = Scene()
    (member,) = scene.stable(1, session_ms=20 * DAY_MS)
    scene.commit(("t", 0, 1), member_id=member, generation=1)
    scene.pass_ms(10 * DAY_MS)
    assert scene.fetch() == {("t", 0): 1}, "the group lives, and reads who knows what"
    scene.leave(member)
    scene.pass_ms(7 * DAY_MS - 1)
    assert scene.fetch() == {("t", 0): 1}
    scene.pass_ms(600_001)
    assert scene.phase() == "none"


def test_what_is_stored_for_an_empty_group_is_kept_for_a_retention_of_its_own() -> None:
    """Kafka counts from when the group became empty: what a person set a moment ago goes with the rest."""
    scene = Scene()
    (member,) = scene.stable(1)
    scene.commit(("t", 0, 1), ("t", 1, 2), member_id=member, generation=1)
    scene.leave(member)
    scene.pass_ms(7 * DAY_MS - 3_600_000)
    assert scene.commit(("t", 0, 5)) == [E.none]
    scene.pass_ms(2 * 3_600_000)
    assert scene.fetch() == {("t", 0): 5}
    scene.reload()
    scene.pass_ms(7 * DAY_MS - 3 * 3_600_000)
    assert scene.fetch() == {("t", 0): 5}
    scene.pass_ms(2 * 3_600_000)
    assert (scene.fetch(), scene.phase()) == ({}, "none")


def test_of_a_live_group_only_offsets_of_topics_it_no_longer_reads_expire() -> None:
    scene = Scene()
    (member,) = scene.stable(1, protocols=SUBSCRIBED, session_ms=20 * DAY_MS)
    scene.commit(("used", 0, 5), ("other", 0, 6), member_id=member, generation=1)
    scene.pass_ms(8 * DAY_MS)
    assert scene.fetch() == {("used", 0): 5}
    assert scene.phase() == "Stable"


def test_an_offset_that_said_when_it_expires_does_so() -> None:
    scene = Scene()
    scene.commit(("t", 0, 1), version=4, retention_ms=DAY_MS)
    scene.pass_ms(DAY_MS - 1)
    assert scene.fetch() == {("t", 0): 1}
    scene.pass_ms(600_001)
    assert scene.fetch() == {}


def test_an_offset_does_not_expire_under_an_open_transaction() -> None:
    scene = Scene()
    scene.commit(("t", 0, 1))
    scene.commit_in_transaction(7, ("t", 0, 2))
    scene.pass_ms(8 * DAY_MS)
    assert scene.fetch() == {("t", 0): 1}
    scene.end_transaction(7, commit=True)
    scene.pass_ms(600_000)
    assert scene.phase() == "none"


def test_expiry_goes_through_many_groups_a_few_at_a_time() -> None:
    scene = Scene(GroupConfig(offsets_retention_check_interval_ms=7 * DAY_MS + 1))
    for number in range(1_200):
        scene.commit(("t", 0, 1), group=f"g{number}")
    scene.pass_ms(7 * DAY_MS)
    before = len(scene.log)
    scene.pass_ms(1)
    assert len(scene.log) == before + 2 * 500
    scene.pass_ms(1_000)
    assert len(scene.log) == before + 2 * 1_200
    assert OffsetForgotten(group_id="g1", topic="t", partition=0).encode()[0] in {
        key for key, _, _ in scene.log[before:]
    }
    assert not scene.machine.classic.groups
