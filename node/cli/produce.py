"""`fencepost produce`: lines from standard input, or a file, become records; each is acknowledged or named."""

import argparse
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from .cluster import (
    EXIT_FAILED,
    EXIT_OK,
    Failed,
    add_cluster_arguments,
    client_settings,
    confluent_kafka,
    connect,
    explain,
    pairs,
    run_safely,
)
from .output import Progress

# Said in full for the first few; the rest are counted.
FAILURES_SHOWN = 5


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument(
        "--file", metavar="FILE", help="read lines from here instead of standard input"
    )
    parser.add_argument(
        "--key-separator", metavar="TEXT", help="what parts a line into key and value"
    )
    parser.add_argument("--partition", type=int, default=-1, help="default: by key, or spread")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none"
    )
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all")
    add_cluster_arguments(parser, with_json=False)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(_produce, arguments)


def _produce(arguments: argparse.Namespace) -> int:
    connect(arguments)
    settings = client_settings(arguments) | {
        "acks": arguments.acks,
        "enable.idempotence": arguments.acks == "all",
        "compression.type": arguments.compression,
        "linger.ms": 5,
    }
    producer = confluent_kafka.Producer(settings)
    tally = _Tally(arguments.topic)
    headers = list(pairs(arguments.header).items())
    for key, value in _records(arguments):
        record: dict[str, Any] = {"key": key, "value": value, "headers": headers}
        if arguments.partition >= 0:
            record["partition"] = arguments.partition
        while True:
            try:
                producer.produce(arguments.topic, on_delivery=tally.delivered, **record)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        tally.sent += 1
        tally.progress.at(tally.sent)
    producer.flush()
    return tally.finish()


def _records(arguments: argparse.Namespace) -> Iterator[tuple[bytes | None, bytes]]:
    separator = None if arguments.key_separator is None else arguments.key_separator.encode()
    with _open(arguments.file) as lines:
        for line in lines:
            text = line.removesuffix(b"\n")
            if separator is None:
                yield None, text
            else:
                key, found, value = text.partition(separator)
                yield (key, value) if found else (None, text)


def _open(path: str | None) -> BinaryIO:
    if path is None:
        return sys.stdin.buffer
    try:
        return pathlib.Path(path).open("rb")
    except OSError as missing:
        raise Failed(f"can't read {path}: {missing.strerror}") from missing


class _Tally:
    """What became of each record."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0
        self.progress = Progress(f"producing to {topic}", None)

    def delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
            return
        self.failed += 1
        if self.failed <= FAILURES_SHOWN:
            sys.stderr.write(explain(f"a record to {self.topic} failed", error) + "\n")

    def finish(self) -> int:
        self.progress.end()
        text = f"{self.acknowledged:,} acknowledged"
        if self.failed:
            text += f", {self.failed:,} failed"
        print(text, file=sys.stderr)
        return EXIT_FAILED if self.failed else EXIT_OK
