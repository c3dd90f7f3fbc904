"""`fencepost topic`: list, describe, create, and add partitions; deleting is in `topic_delete.py`."""

import argparse
from typing import Any, Final

from ..few import few
from . import topic_delete
from .checked import Failed, NotUnderstood, named, number, whole
from .cluster import (
    EXIT_FAILED,
    add_cluster_arguments,
    code_of_what_is_shown,
    connect,
    did_you_mean,
    need_somebody_who_leads,
    offsets_at,
    pairs,
    run_safely,
    say,
    seen,
    settle,
    wait_to_read_s,
)
from .kafka_client import NewPartitions, NewTopic, OffsetSpec, TopicCollection
from .output import show, show_json, show_line

OF_THE_CLUSTER: Final = -1  # the cluster's own number, in a request
PARTITIONS_MAX, REPLICAS_MAX = 100_000, 10_000  # librdkafka's, of one request


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="show the topics there are")
    listing.add_argument("--internal", action="store_true", help="show internal topics as well")
    listing.set_defaults(action=_list)

    describe = actions.add_parser("describe", help="show partitions, leaders and offsets")
    describe.add_argument("topic", nargs="+")
    describe.set_defaults(action=_describe)

    create = actions.add_parser("create", help="create topics")
    create.add_argument("topic", nargs="+")
    create.add_argument(
        "--partitions",
        type=number,
        default=OF_THE_CLUSTER,
        help="default, and what -1 stands for: the cluster's num.partitions",
    )
    create.add_argument(
        "--replication-factor",
        type=number,
        default=OF_THE_CLUSTER,
        help="default, and what -1 stands for: the cluster's default.replication.factor",
    )
    create.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    create.add_argument("--if-not-exists", action="store_true")
    create.add_argument("--dry-run", action="store_true", help="only say whether it could be done")
    create.set_defaults(action=_create)

    topic_delete.configure(actions)

    grow = actions.add_parser("add-partitions", help="raise the number of partitions")
    grow.add_argument("topic")
    grow.add_argument("total", type=number, help="the new total")
    grow.set_defaults(action=_grow)

    for action in (listing, describe, create, grow):
        add_cluster_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(arguments.action, arguments)


def _list(arguments: argparse.Namespace) -> int:
    admin = connect(arguments)
    code = code_of_what_is_shown(arguments)
    topics = admin.list_topics(timeout=15).topics
    rows = [
        (name, len(topics[name].partitions), len(topics[name].partitions[0].replicas))
        for name in sorted(topics)
        if topics[name].partitions and (arguments.internal or not name.startswith("__"))
    ]
    show(
        ("topic", "partitions", "replicas"),
        rows,
        as_json=arguments.json,
        empty="No topics yet. Make one: `fencepost topic create NAME`.",
    )
    return code


def _describe(arguments: argparse.Namespace) -> int:
    named("a topic's name", *arguments.topic)
    admin = connect(arguments)
    code = code_of_what_is_shown(arguments)
    wait_s = wait_to_read_s(code)
    described: list[dict[str, Any]] = []
    failures: list[str] = []
    asked = admin.describe_topics(TopicCollection(arguments.topic), request_timeout=wait_s)
    for name, future in asked.items():
        try:
            topic = seen(f"can't describe {name}", future)
        except Failed as failure:
            failures.append(str(failure))
            continue
        partitions = _partitions(admin, topic, wait_s)
        described.append({"topic": name, "id": _id(topic.topic_id), "partitions": partitions})
        failures += _silent(name, partitions)
    for each in failures:
        say(each)
    code = EXIT_FAILED if failures else code
    if arguments.json:
        show_json(described)
        return code
    for about in described:
        show_line(f"{about['topic']}  id {about['id']}")
        rows = [tuple(partition.values()) for partition in about["partitions"]]
        show(("partition", "leader", "replicas", "isr", "first", "end"), rows, as_json=False)
    _say_why_offline(arguments, described)
    return code


def _id(uuid: Any) -> str:
    """As Kafka writes it: librdkafka's has what neither a file's name nor an address takes."""
    return str(uuid).translate(str.maketrans("+/", "-_")).rstrip("=")


def _partitions(admin: Any, topic: Any, wait_s: float) -> list[dict[str, Any]]:
    # Whoever has no leader has nobody to ask.
    led = [(topic.name, each.id) for each in topic.partitions if each.leader]
    specs = OffsetSpec.earliest(), OffsetSpec.latest()
    first, end = offsets_at(admin, led, *specs, skips_failed=True, wait_s=wait_s)
    return [
        {
            "partition": each.id,
            "leader": each.leader.id if each.leader else None,
            "replicas": [node.id for node in each.replicas],
            "isr": [node.id for node in each.isr],
            "first": first.get((topic.name, each.id)),
            "end": end.get((topic.name, each.id)),
        }
        for each in topic.partitions
    ]


def _silent(name: str, partitions: list[dict[str, Any]]) -> list[str]:
    """The sentence of those whose leader has not told where they begin and end."""
    silent = [
        f"{name}-{each['partition']}"
        for each in partitions
        if each["leader"] is not None and None in (each["first"], each["end"])
    ]
    if not silent:
        return []
    whose, it = ("its leader", "it begins and ends")
    if len(silent) > 1:
        whose, it = ("their leaders", "they begin and end")
    tells = "does not tell" if len(silent) == 1 else "do not tell"
    where = f"{few(silent)}: {whose} {tells} where {it}."
    return [f"{where} `fencepost node list` shows who is down."]


def _say_why_offline(arguments: argparse.Namespace, described: list[dict[str, Any]]) -> None:
    offline = [
        about["topic"]
        for about in described
        if any(partition["leader"] is None for partition in about["partitions"])
    ]
    if not offline:
        return
    from .partition import say_why_offline  # as rarely needed as it is slow to import
    from .wire import Wire, read_image

    with Wire(arguments.bootstrap) as wire:
        say_why_offline(read_image(wire, offline))


def _create(arguments: argparse.Namespace) -> int:
    named("a topic's name", *arguments.topic)
    _some("--partitions", arguments.partitions, PARTITIONS_MAX)
    _some("--replication-factor", arguments.replication_factor, REPLICAS_MAX)
    admin = connect(arguments)
    config = pairs(arguments.config)
    _check_settings(config)
    there = set(admin.list_topics(timeout=15).topics) if arguments.if_not_exists else set()
    earlier = [name for name in dict.fromkeys(arguments.topic) if name in there]
    if not arguments.json:
        for name in earlier:
            show_line(f"{name} is there already")
    wanted = [
        NewTopic(name, arguments.partitions, arguments.replication_factor, config=config)
        for name in dict.fromkeys(arguments.topic)
        if name not in there
    ]
    if wanted:
        need_somebody_who_leads(arguments)
    futures = admin.create_topics(wanted, validate_only=arguments.dry_run) if wanted else {}
    return settle(
        "topic",
        futures,
        failed="can't create",
        done="could be created" if arguments.dry_run else "created",
        as_json=arguments.json,
        earlier=earlier,
    )


def _some(option: str, value: int, most: int) -> None:
    if value != OF_THE_CLUSTER:
        whole(option, value, 1, most, f", or {OF_THE_CLUSTER} for the cluster's own")


def _check_settings(config: dict[str, str]) -> None:
    """The broker refuses an unknown one too, but can't say which was meant."""
    if not config:
        return
    from fencepost.cluster.metadata.topic_config import (
        TOPIC_CONFIGS,
    )  # 0.2 s that few commands need

    for name in config:
        if name not in TOPIC_CONFIGS:
            raise Failed(f"unknown topic setting {name}: {did_you_mean(name, TOPIC_CONFIGS)}")


def _grow(arguments: argparse.Namespace) -> int:
    named("a topic's name", arguments.topic)
    if not 1 <= arguments.total <= PARTITIONS_MAX:
        raise NotUnderstood(
            f"{arguments.total} is no number of partitions; name the new total, 1 to {PARTITIONS_MAX}"
        )
    admin = connect(arguments)
    need_somebody_who_leads(arguments)
    futures = admin.create_partitions([NewPartitions(arguments.topic, arguments.total)])
    return settle(
        "topic",
        futures,
        failed="can't add partitions to",
        done=f"has {arguments.total} partitions",
        as_json=arguments.json,
    )
