"""`fencepost group`: who reads what, how far behind, and moving a group's position."""

import argparse
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.wire.api import ApiKey

from ..few import few
from .checked import (
    OFFSET_MAX,
    Failed,
    NotUnderstood,
    check_partition,
    is_number,
    named,
    number,
    whole,
)
from .cluster import (
    EXIT_FAILED,
    EXIT_OK,
    READ_S,
    add_cluster_arguments,
    code_of_what_is_shown,
    connect,
    explain,
    find_topic,
    guess,
    offsets_at,
    outcome,
    records,
    run_safely,
    say,
    seen,
    settle,
    wait_to_read_s,
)
from .kafka_client import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    OffsetSpec,
    TopicPartition,
)
from .output import show, show_json, show_line
from .printable import quoted

NODE_S: Final = 5.0  # how long one node may take to tell its groups
SILENT_S: Final = 2.0  # and to say anything at all


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
    seek.add_argument("--partition", type=number, help="default: all of the topic's")
    seek.add_argument(
        "--to",
        required=True,
        metavar="start|end|OFFSET|TIME",
        help="an offset (at most the end), or a local time as 2026-01-31T12:00:00",
    )
    seek.add_argument("--create", action="store_true", help="make the group if it is not there")
    seek.set_defaults(action=_seek)
    for action in (listing, describe, delete, seek):
        add_cluster_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(arguments.action, arguments)


def _list(arguments: argparse.Namespace) -> int:
    admin = connect(arguments)
    code = code_of_what_is_shown(arguments)
    # Each node tells its own groups, and a node that has just died is asked like the others.
    asked = admin.list_consumer_groups(request_timeout=NODE_S)
    found = seen("can't list groups", asked)
    rows = [
        (each.group_id, each.state.name.lower(), each.type.name.lower())
        for each in sorted(found.valid, key=lambda each: each.group_id)
    ]
    nothing = (
        "No groups yet. One begins when somebody reads: `fencepost consume TOPIC --group NAME`."
    )
    if found.errors or code != EXIT_OK:
        nothing = "Those that could be asked know of none."
    show(("group", "state", "type"), rows, as_json=arguments.json, empty=nothing)
    if found.errors:
        say(_untold(arguments, found.errors))
    return EXIT_FAILED if found.errors else code


def _untold(arguments: argparse.Namespace, errors: Sequence[Any]) -> str:
    """Which node it was librdkafka does not say: who is silent now is looked for."""
    from .wire import Wire, read_image  # as rarely needed as they are slow to import

    silent: list[str] = []
    names: list[str] = []
    with Wire(arguments.bootstrap) as wire, contextlib.suppress(Failed):
        wire.is_looked_at = True  # whether somebody leads has been said
        for node, broker in sorted(read_image(wire, []).brokers.items()):
            names.append(f"node {node}")
            try:
                wire.ask_node(
                    broker.endpoints[0],
                    ApiKey.describe_cluster,
                    include_fenced_brokers=True,
                    timeout_s=SILENT_S,
                )
            except Trouble:
                silent.append(
                    f"node {node} ({broker.endpoints[0].host}:{broker.endpoints[0].port})"
                )
    who = " and ".join(silent) or f"one of {', '.join(names) or 'the nodes'}"
    does = "do" if len(silent) > 1 else "does"
    why = " ".join(dict.fromkeys(explain(f"{who} {does} not tell", each) for each in errors))
    return f"some groups may be missing here: {why} Ask again in a moment."


def _describe(arguments: argparse.Namespace) -> int:
    name = arguments.group
    named("a group's name", name)
    admin = connect(arguments)
    code = code_of_what_is_shown(arguments)
    wait_s = wait_to_read_s(code)
    group = _group(admin, name, wait_s)
    owners = {
        (each.topic, each.partition): member
        for member in group.members
        for each in member.assignment.topic_partitions
    }
    untold = ""
    rows: list[tuple[Any, ...]] = []
    try:
        rows = _positions(admin, name, owners, wait_s)
    except Failed as silent:
        untold = str(silent)
    if group.state is ConsumerGroupState.DEAD and not rows:
        raise Failed(
            untold or f"there is no group {name}. `fencepost group list` shows those there are."
        )
    behind, is_known = ("", False) if untold else _behind(admin, rows)
    if untold:
        say(untold)
    code = code if is_known else EXIT_FAILED
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
                "positions": None
                if untold
                else [dict(zip(header, row, strict=True)) for row in rows],
            }
        )
        return code
    show_line(
        f"{name}  {group.state.name.lower()}, {len(group.members)} members, "
        f"coordinated by node {group.coordinator.id}{behind}"
    )
    if not untold:
        show(
            ("topic", "partition", "position", "end", "lag", "member"),
            rows,
            as_json=False,
            empty="The group has no positions and reads nothing.",
        )
    return code


def _group(admin: Any, name: str, wait_s: float) -> Any:
    futures = admin.describe_consumer_groups([name], request_timeout=wait_s)
    return seen(f"can't describe {name}", futures[name])


def _stored(admin: Any, name: str, wait_s: float) -> dict[tuple[str, int], int]:
    """The group's positions; below 0 where it has none."""
    request = ConsumerGroupTopicPartitions(name)
    futures = admin.list_consumer_group_offsets([request], request_timeout=wait_s)
    answer = seen(f"can't read the positions of {name}", futures[name])
    return {(each.topic, each.partition): each.offset for each in answer.topic_partitions}


def _behind(admin: Any, rows: list[tuple[Any, ...]]) -> tuple[str, bool]:
    """How far, for a sentence, and whether that is known. What is not known counts for nothing, and is named."""
    endless = [row[:2] for row in rows if row[3] is None]
    there = admin.list_topics(timeout=READ_S).topics if endless else {}
    unknown = [f"{topic}-{number}" for topic, number in endless if topic in there]
    gone = [f"{topic}-{number}" for topic, number in endless if topic not in there]
    new = [f"{row[0]}-{row[1]}" for row in rows if row[3] and row[2] is None]
    known = sum(row[4] for row in rows if row[4] is not None)
    said = f", {'at least ' if unknown else ''}{records(known)} behind"
    if unknown and len(unknown) + len(gone) == len(rows):
        said = f", and of {few(unknown)} nobody can say how far behind"
    elif unknown:
        said += f"; of {few(unknown)} nobody can say"
    if gone:
        said += f"; {few(gone)} {'is' if len(gone) == 1 else 'are'} gone"
    if new:
        said += f"; of {few(new)} it has no position yet"
    return said, not unknown


def _positions(
    admin: Any, name: str, owners: dict[tuple[str, int], Any], wait_s: float
) -> list[tuple[Any, ...]]:
    stored = _stored(admin, name, wait_s)
    every = sorted(set(stored) | set(owners))
    # Of a partition without a leader, or of a topic that is gone, the rest is told all the same.
    latest = OffsetSpec.latest()
    (ends,) = offsets_at(admin, every, latest, skips_failed=True, wait_s=wait_s)
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
    topic = find_topic(admin, arguments.topic)
    partitions = sorted(topic.partitions)
    if arguments.partition is not None:
        if arguments.partition not in partitions:
            raise Failed(
                f"{arguments.topic} has no partition {arguments.partition}; "
                f"it has {partitions[0]} to {partitions[-1]}"
            )
        partitions = [arguments.partition]
    _check_led(arguments.topic, [each for each in partitions if topic.partitions[each].leader < 0])
    before = _stored(admin, arguments.group, READ_S)
    if not before and not arguments.create:
        _check_there(admin, arguments.group)
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
    rows = [
        (*place, before[place] if before.get(place, -1) >= 0 else None, each.offset)
        for each in answer.topic_partitions
        for place in [(each.topic, each.partition)]
    ]
    to = "position" if arguments.json else "to"
    show(("topic", "partition", "from", to), rows, as_json=arguments.json)
    return EXIT_OK


def _check_led(topic: str, leaderless: list[int]) -> None:
    if leaderless:
        names = few([f"{topic}-{each}" for each in leaderless])
        has, ends = (
            ("has", "it begins and ends")
            if len(leaderless) == 1
            else ("have", "they begin and end")
        )
        raise Failed(
            f"{names} {has} no leader, so where {ends} can't be told, and nothing was moved."
            f" `fencepost partition list --offline {quoted(topic)}` says why, and what to do."
        )


def _check_there(admin: Any, name: str) -> None:
    """A name that is written wrongly would be a group more, that nobody reads for."""
    if _group(admin, name, READ_S).state is not ConsumerGroupState.DEAD:
        return
    listed: list[str] = []
    with contextlib.suppress(Failed):
        told = seen("groups", admin.list_consumer_groups(request_timeout=NODE_S)).valid
        listed = [each.group_id for each in told]
    raise Failed(
        f"there is no group {name}.{guess(name, listed)} `fencepost group list` shows those there are; --create makes a new one."
    )


def _check_seek(arguments: argparse.Namespace) -> None:
    named("a group's name", arguments.group)
    named("a topic's name", arguments.topic)
    check_partition(arguments.partition)
    if is_number(arguments.to):
        whole("--to", int(arguments.to), 0, OFFSET_MAX)
    elif arguments.to not in ("start", "end"):
        _milliseconds(arguments.to)


def _targets(admin: Any, arguments: argparse.Namespace, partitions: list[int]) -> list[Any]:
    """Where each partition is moved to, within what it holds: beyond it, members would start anywhere."""
    places = [(arguments.topic, each) for each in partitions]
    latest, earliest = OffsetSpec.latest(), OffsetSpec.earliest()
    if is_number(arguments.to):
        ends, firsts = offsets_at(admin, places, latest, earliest)
        found = {place: max(int(arguments.to), firsts[place]) for place in places}
    elif arguments.to == "start":
        ends, found = offsets_at(admin, places, latest, earliest)
    elif arguments.to == "end":
        (found,) = (ends,) = offsets_at(admin, places, latest)
    else:
        at = OffsetSpec.for_timestamp(_milliseconds(arguments.to))
        ends, found = offsets_at(admin, places, latest, at)
    # Nothing is that young: the end.
    offsets = {place: found[place] if found[place] >= 0 else ends[place] for place in places}
    return [TopicPartition(*place, min(offsets[place], ends[place])) for place in places]


def _milliseconds(text: str) -> int:
    try:
        moment = time.strptime(text, "%Y-%m-%dT%H:%M:%S")
    except ValueError as wrong:
        raise NotUnderstood(
            f"--to {text}: say start, end, an offset, or a time such as 2026-01-31T12:00:00"
        ) from wrong
    return int(time.mktime(moment)) * 1000
