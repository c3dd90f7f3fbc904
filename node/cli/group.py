"""`fencepost group`: who reads what, how far behind, and moving a group's position."""

import argparse
import time
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec

from .checked import OFFSET_MAX, Failed, check_partition, is_number, named, whole
from .cluster import (
    EXIT_FAILED,
    EXIT_OK,
    add_cluster_arguments,
    connect,
    explain,
    find_topic,
    offsets_at,
    outcome,
    records,
    run_safely,
    say,
    settle,
)
from .output import show, show_json, show_line

NODE_S: Final = 5.0  # how long one node may take to tell its groups


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show the groups there are")
    listing.set_defaults(action=_list)
    describe = actions.add_parser("describe", help="show members, positions and lag")
    describe.add_argument("group")
    describe.set_defaults(action=_describe)
    delete = actions.add_parser("delete", help="delete empty groups with their positions")
    delete.add_argument("group", nargs="+")
    delete.set_defaults(action=_delete)
    seek = actions.add_parser("seek", help="move the positions of a group that has no members")
    seek.add_argument("group")
    seek.add_argument("--topic", required=True)
    seek.add_argument("--partition", type=int, help="default: all of the topic's")
    seek.add_argument(
        "--to",
        required=True,
        metavar="start|end|OFFSET|TIME",
        help="an offset (at most the end), or a local time as 2026-01-31T12:00:00",
    )
    seek.set_defaults(action=_seek)
    for action in (listing, describe, delete, seek):
        add_cluster_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(arguments.action, arguments)


def _list(arguments: argparse.Namespace) -> int:
    admin = connect(arguments)
    # Each node tells its own groups, and a node that has just died is asked like the others.
    asked = admin.list_consumer_groups(request_timeout=NODE_S)
    found = outcome("can't list groups", asked)
    rows = [
        (each.group_id, each.state.name.lower(), each.type.name.lower())
        for each in sorted(found.valid, key=lambda each: each.group_id)
    ]
    show(
        ("group", "state", "type"),
        rows,
        as_json=arguments.json,
        empty="No groups yet. One begins when somebody reads: "
        "`fencepost consume TOPIC --group NAME`.",
    )
    for error in found.errors:
        say(
            f"some groups may be missing here: {explain('a node does not tell its groups', error)} Ask again in a moment."
        )
    return EXIT_FAILED if found.errors else EXIT_OK


def _describe(arguments: argparse.Namespace) -> int:
    name = arguments.group
    named("a group's name", name)
    admin = connect(arguments)
    group = outcome(f"can't describe {name}", admin.describe_consumer_groups([name])[name])
    owners = {
        (each.topic, each.partition): member
        for member in group.members
        for each in member.assignment.topic_partitions
    }
    rows = _positions(admin, name, owners)
    if group.state is ConsumerGroupState.DEAD and not rows:
        raise Failed(f"there is no group {name}. `fencepost group list` shows those there are.")
    if arguments.json:
        header = ("topic", "partition", "position", "end", "lag", "member")
        show_json(
            {
                "group": name,
                "state": group.state.name.lower(),
                "coordinator": group.coordinator.id,
                "members": [
                    {"id": each.member_id, "client": each.client_id, "host": each.host}
                    for each in group.members
                ],
                "positions": [dict(zip(header, row, strict=True)) for row in rows],
            }
        )
        return EXIT_OK
    behind = sum(row[4] or 0 for row in rows)
    show_line(
        f"{name}  {group.state.name.lower()}, {len(group.members)} members, "
        f"coordinated by node {group.coordinator.id}, {records(behind)} behind"
    )
    show(
        ("topic", "partition", "position", "end", "lag", "member"),
        rows,
        as_json=False,
        empty="The group has no positions and reads nothing.",
    )
    return EXIT_OK


def _positions(admin: Any, name: str, owners: dict[tuple[str, int], Any]) -> list[tuple[Any, ...]]:
    request = ConsumerGroupTopicPartitions(name)
    answer = outcome(
        f"can't read the positions of {name}", admin.list_consumer_group_offsets([request])[name]
    )
    stored = {(each.topic, each.partition): each.offset for each in answer.topic_partitions}
    every = sorted(set(stored) | set(owners))
    # Of a partition without a leader, or of a topic that is gone, the rest is told all the same.
    ends = offsets_at(admin, every, OffsetSpec.latest(), skips_failed=True)
    rows = []
    for place in every:
        position = stored.get(place, -1)
        known, end = position >= 0, ends.get(place)
        rows.append(
            (
                *place,
                position if known else None,
                end,
                max(0, end - position) if known and end is not None else None,
                owners[place].client_id if place in owners else None,
            )
        )
    return rows


def _delete(arguments: argparse.Namespace) -> int:
    named("a group's name", *arguments.group)
    admin = connect(arguments)
    return settle(
        "group",
        admin.delete_consumer_groups(arguments.group),
        failed="can't delete",
        done="deleted",
        as_json=arguments.json,
    )


def _seek(arguments: argparse.Namespace) -> int:
    _check_seek(arguments)
    admin = connect(arguments)
    partitions = sorted(find_topic(admin, arguments.topic).partitions)
    if arguments.partition is not None:
        if arguments.partition not in partitions:
            raise Failed(
                f"{arguments.topic} has no partition {arguments.partition}; "
                f"it has {partitions[0]} to {partitions[-1]}"
            )
        partitions = [arguments.partition]
    targets = _targets(admin, arguments, partitions)
    request = ConsumerGroupTopicPartitions(arguments.group, targets)
    futures = admin.alter_consumer_group_offsets([request])
    answer = outcome(f"can't move {arguments.group}", futures[arguments.group])
    refused = [each for each in answer.topic_partitions if each.error is not None]
    if refused:
        names = ", ".join(f"{each.topic}-{each.partition}" for each in refused[:10])
        raise Failed(
            f"can't move {arguments.group} on {names}: {refused[0].error.str()} ({refused[0].error.name()}). A group is moved"
            " while nobody reads in it: stop its members, look with `fencepost group describe`, and try again."
        )
    rows = [(each.topic, each.partition, each.offset) for each in answer.topic_partitions]
    show(("topic", "partition", "position"), rows, as_json=arguments.json)
    return EXIT_OK


def _check_seek(arguments: argparse.Namespace) -> None:
    named("a group's name", arguments.group)
    named("a topic's name", arguments.topic)
    check_partition(arguments.partition)
    if is_number(arguments.to):
        whole("--to", int(arguments.to), 0, OFFSET_MAX)


def _targets(admin: Any, arguments: argparse.Namespace, partitions: list[int]) -> list[Any]:
    """Where each partition is moved to, within what it holds: beyond it, members would start anywhere."""
    places = [(arguments.topic, each) for each in partitions]
    ends = offsets_at(admin, places, OffsetSpec.latest())
    if is_number(arguments.to):
        firsts = offsets_at(admin, places, OffsetSpec.earliest())
        named = int(arguments.to)
        found = {place: max(named, firsts[place]) for place in places}
    elif arguments.to == "start":
        found = offsets_at(admin, places, OffsetSpec.earliest())
    elif arguments.to == "end":
        found = ends
    else:
        found = offsets_at(admin, places, OffsetSpec.for_timestamp(_milliseconds(arguments.to)))
    # Nothing is that young: the end.
    offsets = {place: found[place] if found[place] >= 0 else ends[place] for place in places}
    return [TopicPartition(*place, min(offsets[place], ends[place])) for place in places]


def _milliseconds(text: str) -> int:
    try:
        moment = time.strptime(text, "%Y-%m-%dT%H:%M:%S")
    except ValueError as wrong:
        raise Failed(
            f"--to {text}: say start, end, an offset, or a time such as 2026-01-31T12:00:00"
        ) from wrong
    return int(time.mktime(moment)) * 1000
