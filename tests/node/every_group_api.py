"""Classic groups, and the offsets of all. See `test_every_version.py`."""

from typing import Any, Final

from every_api_check import MISSING, TOPIC, UNKNOWN_ID, E, check, codes
from fencepost.cluster.wire.api import ApiKey
from sim_node import Asker

GROUP, TRANSACTION = 0, 1
ID_REQUIRED_SINCE: Final = 4


def find(node: Asker, key: str, kind: int = GROUP) -> None:
    """Ask until the coordinator is there, as clients do: the first to ask has its topic created."""
    for _ in range(50):
        reply = node.ask(ApiKey.find_coordinator, 3, key=key, key_type=kind)
        if reply.error_code is E.none:
            return
        node.sleep(0.1)
    raise AssertionError(reply)


@check(ApiKey.find_coordinator)
def find_coordinator(node: Asker, version: int) -> None:
    find(node, "any")
    key = ApiKey.find_coordinator
    if version < 4:
        reply = node.ask(key, version, key="any", key_type=GROUP)
        assert (reply.error_code, reply.node_id, reply.port) == (E.none, 1, node.port)
        if version >= 1:
            assert node.ask(key, version, key="x", key_type=99).error_code is E.invalid_request
        return
    empty = node.ask(key, version, coordinator_keys=[], key_type=GROUP)
    assert len(empty.coordinators) == 0
    several = node.ask(key, version, coordinator_keys=["a", "b"], key_type=GROUP).coordinators
    assert [(each.key, each.error_code, each.port) for each in several] == [
        ("a", E.none, node.port),
        ("b", E.none, node.port),
    ]
    unknown = node.ask(key, version, coordinator_keys=["a"], key_type=99).coordinators
    assert codes(unknown) == [E.invalid_request]


def joined(node: Asker, group: str, version: int = 9, **fields: Any) -> Any:
    """One member that has joined: alone, it leads."""
    find(node, group)
    wanted = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1"}],
        "reason": None,
        **fields,
    }
    reply = node.ask(ApiKey.join_group, version, **wanted)
    if reply.error_code is E.member_id_required:
        wanted["member_id"] = reply.member_id
        reply = node.ask(ApiKey.join_group, version, **wanted)
    return reply


def synced(node: Asker, group: str, version: int = 5) -> Any:
    """A stable group of one: what its member was told when it joined."""
    member = joined(node, group)
    reply = node.ask(
        ApiKey.sync_group,
        version,
        group_id=group,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member.member_id, "assignment": b"mine"}],
    )
    assert (reply.error_code, bytes(reply.assignment)) == (E.none, b"mine")
    return member


@check(ApiKey.join_group)
def join_group(node: Asker, version: int) -> None:
    group = f"join-{version}"
    member = joined(node, group, version)
    assert (member.error_code, member.leader) == (E.none, member.member_id)
    assert [each.member_id for each in member.members] == [member.member_id]
    if version >= 5:
        fixed = joined(node, f"{group}-static", version, group_instance_id="one")
        assert fixed.error_code is E.none
    assert joined(node, group, version, group_id="").error_code is E.invalid_group_id
    impatient = joined(node, group, version, session_timeout=1)
    assert impatient.error_code is E.invalid_session_timeout
    stranger = joined(node, group, version, member_id="nobody")
    assert stranger.error_code is E.unknown_member_id
    none = joined(node, f"{group}-none", version, protocols=[])
    assert none.error_code is E.inconsistent_group_protocol


@check(ApiKey.sync_group)
def sync_group(node: Asker, version: int) -> None:
    group = f"sync-{version}"
    member = synced(node, group, version)

    def ask(member_id: str, generation: int) -> E:
        reply = node.ask(
            ApiKey.sync_group,
            version,
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        error: E = reply.error_code
        return error

    assert ask(member.member_id, member.generation_id) is E.none
    assert ask(member.member_id, 99) is E.illegal_generation
    assert ask("nobody", member.generation_id) is E.unknown_member_id


@check(ApiKey.heartbeat)
def heartbeat(node: Asker, version: int) -> None:
    group = f"beat-{version}"
    member = synced(node, group)

    def ask(group: str, generation: int, member_id: str) -> E:
        reply = node.ask(
            ApiKey.heartbeat,
            version,
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
        )
        error: E = reply.error_code
        return error

    assert ask(group, member.generation_id, member.member_id) is E.none
    assert ask(group, 99, member.member_id) is E.illegal_generation
    assert ask(group, 1, "nobody") is E.unknown_member_id
    assert ask("no group", 1, "nobody") is E.unknown_member_id
    assert ask("", 1, "nobody") is E.invalid_group_id


@check(ApiKey.leave_group)
def leave_group(node: Asker, version: int) -> None:
    group = f"leave-{version}"
    member = synced(node, group)

    def ask(*member_ids: str) -> Any:
        if version < 3:
            return node.ask(
                ApiKey.leave_group, version, group_id=group, member_id=member_ids[0]
            ).error_code
        leaving = [
            {"member_id": id_, "group_instance_id": None, "reason": "done"} for id_ in member_ids
        ]
        reply = node.ask(ApiKey.leave_group, version, group_id=group, members=leaving)
        assert reply.error_code is E.none
        return codes(reply.members)

    if version < 3:
        assert ask("nobody") is E.unknown_member_id
        assert ask(member.member_id) is E.none
    else:
        assert ask() == []
        assert ask(member.member_id, "nobody") == [E.none, E.unknown_member_id]


@check(ApiKey.describe_groups)
def describe_groups(node: Asker, version: int) -> None:
    group = f"described-{version}"
    synced(node, group)

    def ask(*groups: str) -> Any:
        return node.ask(
            ApiKey.describe_groups, version, groups=groups, include_authorized_operations=True
        ).groups

    assert len(ask()) == 0
    known, unknown = ask(group, "no group")
    assert (known.error_code, known.group_state, len(known.members)) == (E.none, "Stable", 1)
    # From version 6 on a group that is not there is an error and not a dead group (KIP-1043).
    assert unknown.group_state == "Dead"
    assert unknown.error_code is (E.group_id_not_found if version >= 6 else E.none)


@check(ApiKey.list_groups)
def list_groups(node: Asker, version: int) -> None:
    group = f"listed-{version}"
    synced(node, group)

    def ask(states: list[str], types: list[str]) -> set[str]:
        reply = node.ask(ApiKey.list_groups, version, states_filter=states, types_filter=types)
        assert reply.error_code is E.none
        return {each.group_id for each in reply.groups}

    assert group in ask([], [])
    if version >= 4:
        assert group in ask(["stable"], [])
        assert group not in ask(["Empty"], [])
    if version >= 5:
        assert group in ask([], ["CLASSIC"])
        assert group not in ask([], ["consumer"])


@check(ApiKey.delete_groups)
def delete_groups(node: Asker, version: int) -> None:
    empty, busy = f"empty-{version}", f"busy-{version}"
    commit(node, empty, -1, "")
    synced(node, busy)
    key = ApiKey.delete_groups
    assert len(node.ask(key, version, groups_names=[]).results) == 0
    reply = node.ask(key, version, groups_names=[empty, busy, "no group"])
    found = {each.group_id: each.error_code for each in reply.results}
    assert found == {
        empty: E.none,
        busy: E.non_empty_group,
        "no group": E.group_id_not_found,
    }


def commit(
    node: Asker,
    group: str,
    generation: int,
    member_id: str,
    version: int = 9,
    *,
    topic: str = TOPIC,
    partition: int = 0,
) -> E:
    find(node, group)
    topic_id = node.topic_ids.get(topic, UNKNOWN_ID)
    named = {"topic_id": topic_id} if version >= 10 else {"name": topic}
    part = {"partition_index": partition, "committed_offset": 2, "committed_metadata": "note"}
    reply = node.ask(
        ApiKey.offset_commit,
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=None,
        topics=[{**named, "partitions": [part]}],
    )
    error: E = reply.topics[0].partitions[0].error_code
    return error


@check(ApiKey.offset_commit)
def offset_commit(node: Asker, version: int) -> None:
    group, lonely = f"commits-{version}", f"alone-{version}"
    member = synced(node, group)
    empty = node.ask(
        ApiKey.offset_commit,
        version,
        group_id=lonely,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[],
    )
    assert len(empty.topics) == 0
    assert commit(node, lonely, -1, "", version) is E.none
    assert commit(node, group, member.generation_id, member.member_id, version) is E.none
    # Version 9 said STALE_MEMBER_EPOCH of new groups only.
    assert commit(node, group, 99, member.member_id, version) is E.illegal_generation
    assert commit(node, group, -1, "", version) is E.unknown_member_id
    unknown = E.unknown_topic_id if version >= 10 else E.unknown_topic_or_partition
    assert commit(node, lonely, -1, "", version, topic=MISSING) is unknown
    # Old consumers without a group committed under this name; Kafka takes it to this day.
    assert commit(node, "", -1, "", version) is E.none


@check(ApiKey.offset_fetch)
def offset_fetch(node: Asker, version: int) -> None:
    group = f"fetches-{version}"
    assert commit(node, group, -1, "") is E.none

    def ask(topics: Any, group: str = group) -> Any:
        if version < 8:
            fields: dict[str, Any] = {"group_id": group, "topics": topics}
            return node.ask(ApiKey.offset_fetch, version, **fields, require_stable=True)
        wanted = {"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1}
        (found,) = node.ask(ApiKey.offset_fetch, version, groups=[wanted]).groups
        return found

    def named(name: str) -> dict[str, Any]:
        topic_id = node.topic_ids.get(name, UNKNOWN_ID)
        return {"topic_id": topic_id} if version >= 10 else {"name": name}

    found = ask([{**named(TOPIC), "partition_indexes": [0, 1]}])
    answers = found.topics[0].partitions
    assert [(each.committed_offset, each.metadata) for each in answers] == [(2, "note"), (-1, "")]
    assert codes(answers) == [E.none, E.none]
    assert len(ask([]).topics) == 0
    if version >= 2:
        everything = ask(None)
        assert everything.error_code is E.none
        assert [each.partition_index for each in everything.topics[0].partitions] == [0]
        assert len(ask(None, "no group").topics) == 0
    if version >= 8:
        assert len(node.ask(ApiKey.offset_fetch, version, groups=[]).groups) == 0
    missing = ask([{**named(MISSING), "partition_indexes": [0]}]).topics[0].partitions[0]
    assert missing.committed_offset == -1
    assert missing.error_code is (E.unknown_topic_id if version >= 10 else E.none)


@check(ApiKey.offset_delete)
def offset_delete(node: Asker, version: int) -> None:
    group = "forgets"
    assert commit(node, group, -1, "") is E.none

    def ask(group: str, *topics: str) -> Any:
        wanted = [{"name": name, "partitions": [{"partition_index": 0}]} for name in topics]
        return node.ask(ApiKey.offset_delete, version, group_id=group, topics=wanted)

    assert len(ask(group).topics) == 0
    reply = ask(group, TOPIC, MISSING)
    found = {each.name: each.partitions[0].error_code for each in reply.topics}
    assert found == {TOPIC: E.none, MISSING: E.unknown_topic_or_partition}
    assert ask("no group", TOPIC).error_code is E.group_id_not_found
