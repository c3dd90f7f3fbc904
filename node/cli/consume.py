"""`fencepost consume`: records to standard output, from a place, for a group, or up to where the topic ends now."""

import argparse
import json
import sys
from typing import Any

from .cluster import (
    EXIT_OK,
    Failed,
    add_cluster_arguments,
    client_settings,
    confluent_kafka,
    connect,
    explain,
    run_safely,
)
from .output import Progress

_PLACES = {"start": confluent_kafka.OFFSET_BEGINNING, "end": confluent_kafka.OFFSET_END}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument(
        "--from",
        dest="start",
        default="start",
        metavar="start|end|OFFSET",
        help="where to begin (start); with --group, only where the group has no position",
    )
    parser.add_argument("--partition", type=int, help="only this partition")
    parser.add_argument("--group", help="read as a member of this group and commit its positions")
    parser.add_argument("--count", type=int, help="stop after so many records")
    parser.add_argument(
        "--follow", action="store_true", help="go on at the end instead of stopping"
    )
    parser.add_argument("--keys", action="store_true", help="print KEY<tab>VALUE")
    parser.add_argument("--isolation", choices=("committed", "uncommitted"), default="committed")
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(_consume, arguments)


def _consume(arguments: argparse.Namespace) -> int:
    admin = connect(arguments)
    topic = admin.list_topics(arguments.topic, timeout=15).topics[arguments.topic]
    if topic.error is not None:
        raise Failed(explain(f"can't read {arguments.topic}", topic.error))
    consumer = confluent_kafka.Consumer(
        client_settings(arguments)
        | {
            "group.id": arguments.group or "fencepost-cli",
            "enable.auto.commit": arguments.group is not None,
            "auto.offset.reset": "earliest" if arguments.start == "start" else "latest",
            "isolation.level": f"read_{arguments.isolation}",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
    )
    try:
        if arguments.group is None:
            consumer.assign(_assignment(arguments, sorted(topic.partitions)))
        else:
            consumer.subscribe([arguments.topic])
        return _print_records(arguments, consumer)
    finally:
        consumer.close()


def _assignment(arguments: argparse.Namespace, partitions: list[int]) -> list[Any]:
    if arguments.partition is not None:
        if arguments.partition not in partitions:
            raise Failed(
                f"{arguments.topic} has no partition {arguments.partition}; "
                f"it has {partitions[0]} to {partitions[-1]}"
            )
        partitions = [arguments.partition]
    place = _PLACES.get(arguments.start)
    if place is None:
        if not arguments.start.isdigit():
            raise Failed(f"--from {arguments.start}: say start, end or an offset")
        place = int(arguments.start)
    return [confluent_kafka.TopicPartition(arguments.topic, each, place) for each in partitions]


def _print_records(arguments: argparse.Namespace, consumer: Any) -> int:
    progress = Progress(f"consuming {arguments.topic}", arguments.count)
    at_end: set[int] = set()
    seen = 0
    out = sys.stdout.buffer
    while arguments.count is None or seen < arguments.count:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            at_end.discard(message.partition())
            out.write(_line(arguments, message))
            seen += 1
            if not sys.stdout.isatty():
                progress.at(seen)
            continue
        if error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
            raise Failed(explain(f"can't read {arguments.topic}", error))
        at_end.add(message.partition())
        out.flush()
        if not arguments.follow and len(at_end) >= len(consumer.assignment()):
            break
    out.flush()
    progress.end()
    print(f"{seen:,} records", file=sys.stderr)
    return EXIT_OK


def _line(arguments: argparse.Namespace, message: Any) -> bytes:
    value = message.value() or b""
    if arguments.json:
        record = {
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": _text(message.key()),
            "value": _text(message.value()),
            "headers": [[name, _text(each)] for name, each in message.headers() or []],
        }
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"
    if arguments.keys:
        return (message.key() or b"") + b"\t" + value + b"\n"
    return bytes(value) + b"\n"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
