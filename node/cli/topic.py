"""`fencepost topic`: list, describe, create, delete, and add partitions."""

import argparse
from typing import Any

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic, OffsetSpec

from .cluster import EXIT_OK, Failed, add_cluster_arguments, connect, outcome, pairs, run_safely
from .output import show, show_json


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
        "--partitions", type=int, default=-1, help="default: the cluster's num.partitions"
    )
    create.add_argument(
        "--replication-factor", type=int, default=-1, help="default: the cluster's own"
    )
    create.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    create.add_argument("--if-not-exists", action="store_true")
    create.add_argument("--dry-run", action="store_true", help="only say whether it could be done")
    create.set_defaults(action=_create)

    delete = actions.add_parser("delete", help="delete topics with all their records")
    delete.add_argument("topic", nargs="+")
    delete.set_defaults(action=_delete)

    grow = actions.add_parser("add-partitions", help="raise the number of partitions")
    grow.add_argument("topic")
    grow.add_argument("total", type=int, help="the new total")
    grow.set_defaults(action=_grow)

    for action in (listing, describe, create, delete, grow):
        add_cluster_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(arguments.action, arguments)


def _list(arguments: argparse.Namespace) -> int:
    admin = connect(arguments)
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
    return EXIT_OK


def _describe(arguments: argparse.Namespace) -> int:
    admin = connect(arguments)
    described: list[dict[str, Any]] = []
    for name, future in admin.describe_topics(TopicCollection(arguments.topic)).items():
        topic = outcome(f"can't describe {name}", future)
        described.append(
            {"topic": name, "id": str(topic.topic_id), "partitions": _partitions(admin, topic)}
        )
    if arguments.json:
        show_json(described)
        return EXIT_OK
    for each in described:
        print(f"{each['topic']}  id {each['id']}")
        partitions: list[dict[str, Any]] = each["partitions"]
        rows = [tuple(partition.values()) for partition in partitions]
        show(("partition", "leader", "replicas", "isr", "first", "end"), rows, as_json=False)
    return EXIT_OK


def _partitions(admin: Any, topic: Any) -> list[dict[str, Any]]:
    def ends(spec: Any) -> dict[int, int]:
        wanted = {TopicPartition(topic.name, each.id): spec for each in topic.partitions}
        return {
            partition.partition: outcome(f"can't read offsets of {topic.name}", future).offset
            for partition, future in admin.list_offsets(wanted).items()
        }

    first, end = ends(OffsetSpec.earliest()), ends(OffsetSpec.latest())
    return [
        {
            "partition": each.id,
            "leader": each.leader.id if each.leader else None,
            "replicas": [node.id for node in each.replicas],
            "isr": [node.id for node in each.isr],
            "first": first[each.id],
            "end": end[each.id],
        }
        for each in topic.partitions
    ]


def _create(arguments: argparse.Namespace) -> int:
    admin = connect(arguments)
    config = pairs(arguments.config)
    wanted = [
        NewTopic(name, arguments.partitions, arguments.replication_factor, config=config)
        for name in arguments.topic
    ]
    there = set(admin.list_topics(timeout=15).topics) if arguments.if_not_exists else set()
    for name in arguments.topic:
        if name in there:
            print(f"{name} is there already")
    wanted = [each for each in wanted if each.topic not in there]
    if not wanted:
        return EXIT_OK
    futures = admin.create_topics(wanted, validate_only=arguments.dry_run)
    for name, future in futures.items():
        outcome(f"can't create {name}", future)
        print(f"{name} {'could be created' if arguments.dry_run else 'created'}")
    return EXIT_OK


def _delete(arguments: argparse.Namespace) -> int:
    admin = connect(arguments)
    for name, future in admin.delete_topics(arguments.topic).items():
        outcome(f"can't delete {name}", future)
        print(f"{name} deleted")
    return EXIT_OK


def _grow(arguments: argparse.Namespace) -> int:
    if arguments.total < 1:
        raise Failed(f"{arguments.total} is no number of partitions; name the new total, 1 or more")
    admin = connect(arguments)
    futures = admin.create_partitions([NewPartitions(arguments.topic, arguments.total)])
    for name, future in futures.items():
        outcome(f"can't add partitions to {name}", future)
        print(f"{name} has {arguments.total} partitions")
    return EXIT_OK
