"""What is shown of groups: the rows of DescribeGroups, ConsumerGroupDescribe and ListGroups."""

from collections.abc import Mapping
from typing import Final

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import Fields
from .classic_group import ClassicGroup, Phase
from .commands import ConsumerGroupDescribe, DescribeGroups, ListGroups
from .groups_ports import ConsumerGroups

ClassicGroups = Mapping[str, ClassicGroup]

_NOTHING: Final[Fields] = {
    "error_code": ErrorCode.none,
    "error_message": None,
    "group_state": "",
    "protocol_type": "",
    "protocol_data": "",
    "members": [],
}


def describe_groups(
    classic: ClassicGroups, consumer: ConsumerGroups, command: DescribeGroups
) -> list[Fields]:
    """Before v6 a group that does not exist is Dead, and that is no error (KIP-1043)."""
    found = []
    for group_id in command.group_ids:
        group = classic.get(group_id)
        if group is not None:
            found.append(_describe(group))
            continue
        row = {**_NOTHING, "group_id": group_id, "group_state": Phase.DEAD.value}
        if command.api_version >= 6:
            row["error_code"] = ErrorCode.group_id_not_found
            row["error_message"] = _not_found(group_id, "classic", is_other=consumer.has(group_id))
        found.append(row)
    return found


def _describe(group: ClassicGroup) -> Fields:
    """Between two generations no protocol is agreed on, so there is no metadata to show."""
    is_stable = group.phase is Phase.STABLE
    protocol = group.protocol_name or "" if is_stable else ""
    members = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata(protocol) if is_stable else b"",
            "member_assignment": member.assignment,
        }
        for member in group.members.values()
    ]
    return {
        **_NOTHING,
        "group_id": group.group_id,
        "group_state": group.phase.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol,
        "members": members,
    }


def describe_consumer_groups(
    classic: ClassicGroups, consumer: ConsumerGroups, command: ConsumerGroupDescribe
) -> list[Fields]:
    found = []
    for group_id in command.group_ids:
        if consumer.has(group_id):
            found.append(consumer.describe(group_id))
            continue
        message = _not_found(group_id, "consumer", is_other=group_id in classic)
        found.append(
            {
                "error_code": ErrorCode.group_id_not_found,
                "error_message": message,
                "group_id": group_id,
            }
        )
    return found


def list_groups(
    classic: ClassicGroups, consumer: ConsumerGroups, command: ListGroups
) -> list[Fields]:
    """Filters are compared without case, as Kafka does (KIP-518 states, KIP-848 types)."""
    states = {state.strip().lower() for state in command.states}
    types = {kind.lower() for kind in command.types}
    found = [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type or "",
            "group_state": group.phase.value,
            "group_type": "classic",
        }
        for group in classic.values()
    ]
    found += [
        {
            "group_id": group_id,
            "protocol_type": "consumer",
            "group_state": consumer.state(group_id),
            "group_type": "consumer",
        }
        for group_id in consumer.group_ids()
    ]
    return [
        row
        for row in found
        if (not states or row["group_state"].lower() in states)
        and (not types or row["group_type"] in types)
    ]


def _not_found(group_id: str, kind: str, *, is_other: bool) -> str:
    return (
        f"Group {group_id} is not a {kind} group." if is_other else f"Group {group_id} not found."
    )
