"""What needs both kinds of groups and their offsets: whose a group is, listing, describing, deleting."""

from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.commands import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    ListGroups,
)
from fencepost.txn.runtime.decision import Decision
from support.group_scene import NoConsumerGroups, Scene

E = ErrorCode


class Note:
    """A record of the stand-in below."""

    def __init__(self, group_id: str, alive: bool) -> None:
        self.group_id = group_id
        self.alive = alive

    def encode(self) -> tuple[bytes, bytes]:
        return b"\x00\x63" + self.group_id.encode(), b""


class ConsumerGroups(NoConsumerGroups):
    """A machine of the new protocol that knows no more than which groups there are."""

    def __init__(self) -> None:
        self.groups: dict[str, bool] = {}  # whether it has members

    def decide(self, command: Any, now_ms: int) -> Decision:
        return Decision(reply={"error_code": E.none}, records=(Note(command.group_id, alive=True),))

    def apply(self, change: Any) -> None:
        if change.alive:
            self.groups[change.group_id] = True
        else:
            del self.groups[change.group_id]

    def has(self, group_id: str) -> bool:
        return group_id in self.groups

    def is_empty(self, group_id: str) -> bool:
        return not self.groups[group_id]

    def group_ids(self) -> list[str]:
        return sorted(self.groups)

    def state(self, group_id: str) -> str:
        return "Stable" if self.groups[group_id] else "Empty"

    def is_subscribed_to(self, group_id: str, topic: str) -> bool:
        return topic == "used"

    def refuse_commit(self, command: Any) -> ErrorCode:
        return E.stale_member_epoch if self.groups[command.group_id] else E.none

    def refuse_fetch(self, command: Any) -> ErrorCode:
        return E.unknown_member_id if command.member_id == "nobody" else E.none

    def tombstones(self, group_id: str) -> tuple[Note, ...]:
        return (Note(group_id, alive=False),)

    def describe(self, group_id: str) -> dict[str, Any]:
        return {"group_id": group_id, "error_code": E.none}


class Body:
    def __init__(self, member_epoch: int) -> None:
        self.member_epoch = member_epoch


def heartbeat(scene: Scene, group: str, member_epoch: int = 0) -> Any:
    command = ConsumerGroupHeartbeat(
        group_id=group,
        body=Body(member_epoch),
        api_version=1,
        client_id="c",
        client_host="/h",
        fresh_id="x",
    )
    return scene.do(command)


@pytest.fixture
def scene() -> Scene:
    return Scene(consumer=ConsumerGroups())


def test_a_group_with_members_is_of_one_kind_only(scene) -> None:
    """Online migration between the kinds is not there yet: whoever comes second is refused as Kafka would."""
    scene.stable(1, group="classic")
    refused = heartbeat(scene, "classic")
    assert refused["error_code"] is E.group_id_not_found
    assert refused["error_message"] == (
        "Cannot upgrade classic group classic to consumer group because online upgrade is disabled."
    )
    assert heartbeat(scene, "classic", member_epoch=3)["error_message"] == (
        "Group classic is not a consumer group."
    )
    heartbeat(scene, "new")
    assert scene.join(group="new")["error_code"] is E.inconsistent_group_protocol
    assert scene.sync("m", 1, group="new")["error_code"] is E.unknown_member_id
    assert scene.heartbeat("m", 1, group="new") is E.unknown_member_id
    assert scene.leave("m", group="new") == [E.unknown_member_id]


def test_an_empty_group_changes_its_kind_and_keeps_its_offsets(scene) -> None:
    scene.commit(("t", 0, 5))
    assert heartbeat(scene, "g")["error_code"] is E.none
    assert (scene.phase(), scene.consumer.has("g")) == ("none", True)
    scene.consumer.groups["g"] = False
    assert scene.join()["error_code"] is E.member_id_required
    assert (scene.phase(), scene.consumer.has("g")) == ("Empty", False)
    assert scene.fetch() == {("t", 0): 5}


def test_a_refused_join_leaves_an_empty_group_of_the_other_kind_alone(scene) -> None:
    heartbeat(scene, "g")
    scene.consumer.groups["g"] = False
    assert scene.join(protocols=())["error_code"] is E.inconsistent_group_protocol
    assert scene.consumer.has("g")


def test_offsets_before_the_groups_own_record_do_not_make_it_a_classic_one(scene) -> None:
    """Compaction may leave the offset and drop the group's first record, which came before it."""
    scene.commit(("t", 0, 5))
    scene.machine.apply(Note("g", alive=True))
    assert (scene.phase(), scene.consumer.has("g")) == ("none", True)


def test_of_a_new_group_its_own_machine_says_who_may_commit_and_fetch(scene) -> None:
    heartbeat(scene, "g")
    assert scene.commit(("t", 0, 5)) == [E.stale_member_epoch]
    assert scene.commit_in_transaction(7, ("t", 0, 5)) == [E.illegal_generation]
    scene.consumer.groups["g"] = False
    assert scene.commit(("t", 0, 5)) == [E.none]


# -- looking ---------------------------------------------------------------------------------------


def listed(scene: Scene, **filters: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
    rows = scene.do(ListGroups(**filters))
    fields = ("group_id", "group_type", "group_state", "protocol_type")
    return sorted(tuple(row[field] for field in fields) for row in rows)


def test_groups_are_listed_by_state_and_type_whatever_the_case(scene) -> None:
    scene.stable(1, group="a")
    scene.commit(("t", 0, 1), group="b")
    heartbeat(scene, "c")
    every = [
        ("a", "classic", "Stable", "consumer"),
        ("b", "classic", "Empty", ""),
        ("c", "consumer", "Stable", "consumer"),
    ]
    assert listed(scene) == every
    assert listed(scene, states=("STABLE ",)) == [every[0], every[2]]
    assert listed(scene, types=("Classic",)) == every[:2]
    assert listed(scene, states=("stable",), types=("consumer",)) == every[2:]
    assert listed(scene, types=("nonsense",)) == []


def test_a_stable_group_is_described_with_what_its_members_said(scene) -> None:
    leader, _ = scene.stable(2, protocols=(("range", b"meta"),))
    (row,) = scene.do(DescribeGroups(group_ids=("g",)))
    assert (row["group_state"], row["protocol_type"]) == ("Stable", "consumer")
    assert row["protocol_data"] == "range"
    first = row["members"][0]
    assert first["member_id"] == leader
    assert first["client_host"] == "/127.0.0.1"
    assert first["member_metadata"] == b"meta"
    assert first["member_assignment"] == f"to {leader}".encode()
    scene.leave(leader)
    (row,) = scene.do(DescribeGroups(group_ids=("g",)))
    assert (row["group_state"], row["protocol_data"]) == ("PreparingRebalance", "")
    assert row["members"][0]["member_metadata"] == b""


DESCRIBE = [
    ("nobody", 5, E.none, None),
    ("nobody", 6, E.group_id_not_found, "Group nobody not found."),
    ("new", 5, E.none, None),
    ("new", 6, E.group_id_not_found, "Group new is not a classic group."),
]


@pytest.mark.parametrize(("group", "version", "error", "message"), DESCRIBE)
def test_a_group_that_is_not_there_is_dead(scene, group, version, error, message) -> None:
    heartbeat(scene, "new")
    (row,) = scene.do(DescribeGroups(group_ids=(group,), api_version=version))
    assert (row["group_state"], row["error_code"], row["error_message"]) == ("Dead", error, message)


def test_only_new_groups_are_described_as_such(scene) -> None:
    scene.stable(1)
    heartbeat(scene, "new")
    rows = scene.do(ConsumerGroupDescribe(group_ids=("new", "g", "nobody")))
    assert [row["error_code"] for row in rows] == [
        E.none,
        E.group_id_not_found,
        E.group_id_not_found,
    ]
    assert rows[1]["error_message"] == "Group g is not a consumer group."


# -- deleting --------------------------------------------------------------------------------------


def deleted(scene: Scene, *groups: str) -> list[ErrorCode]:
    return [row["error_code"] for row in scene.do(DeleteGroups(group_ids=groups))]


def test_only_a_group_without_members_can_be_deleted(scene) -> None:
    scene.stable(1, group="live")
    scene.commit(("t", 0, 1), group="simple")
    heartbeat(scene, "new")
    assert deleted(scene, "live", "simple", "new", "nobody") == [
        E.non_empty_group,
        E.none,
        E.non_empty_group,
        E.group_id_not_found,
    ]
    scene.consumer.groups["new"] = False
    assert deleted(scene, "new", "simple") == [E.none, E.group_id_not_found]


def test_a_deleted_group_takes_its_offsets_along_even_those_of_open_transactions(scene) -> None:
    scene.commit(("t", 0, 1))
    scene.commit_in_transaction(7, ("t", 1, 2))
    assert deleted(scene, "g") == [E.none]
    scene.end_transaction(7, commit=True)
    assert (scene.fetch(), scene.phase()) == ({}, "none")
    scene.reload()
    assert (scene.fetch(), scene.phase()) == ({}, "none")
