"""`fencepost produce`: lines from standard input, or a file, become records; each is acknowledged or named."""

import argparse
import functools
import os
import pathlib
import stat
import sys
import time
from typing import Any, BinaryIO

from fencepost.cluster.base.shown import printable

from ..few import few
from .checked import Failed, NotUnderstood, check_partition, named, number
from .cluster import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    READ_S,
    Outage,
    add_cluster_arguments,
    client_settings,
    confluent_kafka,
    connect,
    explain,
    guess,
    pair_list,
    records,
    run_safely,
    say,
)
from .kafka_client import KafkaError, KafkaException
from .leaderless import Stall
from .output import Progress
from .printable import quoted

# Said in full for the first few; the rest are counted.
FAILURES_SHOWN = 5
# Lines of a file between two looks at what was acknowledged.
POLL_EVERY = 1_000
FLUSH_S = 1.0
# How long the cluster has for a record, and how often it is said that one is waited for.
DELIVERY_S = 300
# As much as librdkafka can be told; how large a record may be is the topic's business.
MESSAGE_BYTES_MAX = 1_000_000_000
REMIND_S = 10.0
SHOWN_MAX = 60  # characters of a line that is refused
NO_KEY = (
    " It has no key, and a compacted topic (cleanup.policy) takes no record without: `--key-separator TEXT` parts each line"
    " into key and value."
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument(
        "--file", metavar="FILE", help="read lines from here instead of standard input"
    )
    parser.add_argument(
        "--key-separator",
        type=_separator,
        metavar="TEXT",
        help="what parts a line into key and value: each must have it, and the first parts; else no record has a key",
    )
    parser.add_argument("--partition", type=number, help="default: by key, or spread")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of every record; may be repeated, of one name too: all are there, in this order",
    )
    parser.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none"
    )
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all")
    add_cluster_arguments(parser, with_json=False)


def _separator(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it can't be empty")
    return text


def run(arguments: argparse.Namespace) -> int:
    return run_safely(_produce, arguments)


def _produce(arguments: argparse.Namespace) -> int:
    named("a topic's name", arguments.topic)
    check_partition(arguments.partition)
    headers = pair_list(arguments.header)
    with _open(arguments.file) as lines:
        return _produced(arguments, headers, lines)


def _produced(
    arguments: argparse.Namespace, headers: list[tuple[str, str]], lines: BinaryIO
) -> int:
    admin = connect(arguments)
    if arguments.file is None and sys.stdin.isatty():
        print("Each line becomes a record; Ctrl-D ends.", file=sys.stderr)
    outage = Outage(arguments.bootstrap)
    settings = client_settings(arguments, on_error=outage.heard) | {
        "acks": arguments.acks,
        "enable.idempotence": arguments.acks == "all",
        "compression.type": arguments.compression,
        "linger.ms": 5,
        "delivery.timeout.ms": DELIVERY_S * 1000,
        "message.max.bytes": MESSAGE_BYTES_MAX,
    }
    producer = confluent_kafka.Producer(settings)
    creation = _Creation(admin, arguments.topic, is_answered=arguments.acks != "0")
    tally = _Tally(arguments, outage, Stall(arguments, admin, "written"), creation)
    refused: _NoSeparator | None = None
    try:
        try:
            _send(arguments, headers, lines, producer, tally)
        except _NoSeparator as line:
            refused = line
        while producer.flush(FLUSH_S):
            tally.waits()
    except KeyboardInterrupt:
        # What is on its way gets a moment; what then has no answer is said to have none.
        producer.flush(FLUSH_S)
        tally.finish()
        return EXIT_INTERRUPTED
    code = tally.finish()
    if refused is not None:
        raise refused
    return code


def _send(
    arguments: argparse.Namespace,
    headers: list[tuple[str, str]],
    lines: BinaryIO,
    producer: Any,
    tally: "_Tally",
) -> None:
    separator = None if arguments.key_separator is None else arguments.key_separator.encode()
    extra: dict[str, Any] = {"headers": headers} if headers else {}
    if arguments.partition is not None:
        extra["partition"] = arguments.partition
    status = os.fstat(lines.fileno())
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    done = 0
    for line in lines:
        done += len(line)
        text = line.removesuffix(b"\n")
        key, found, value = (None, True, text) if separator is None else text.partition(separator)
        if not found:
            raise _NoSeparator(tally.where(tally.sent + 1), text, arguments.key_separator)
        _queue(producer, arguments.topic, tally, value=value, key=key, **extra)
        if tally.sent % POLL_EVERY == 0 or arguments.file is None:
            producer.poll(0)
            tally.progress.at(tally.acknowledged, done / size if size else None)


def _queue(producer: Any, topic: str, tally: "_Tally", **record: Any) -> None:
    tally.queues()
    delivered = functools.partial(tally.delivered, line=tally.sent)
    while True:
        try:
            producer.produce(topic, on_delivery=delivered, **record)
            return
        except BufferError:
            producer.poll(0.1)
            tally.waits()
        except KafkaException as refused:
            delivered(refused.args[0], None)
            return


class _NoSeparator(Failed):
    """Kafka's console producer stops there, too: without its key the record may go elsewhere, and be compacted away."""

    def __init__(self, where: str, line: bytes, separator: str) -> None:
        text = line.decode(errors="replace")
        shown = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
        super().__init__(
            f"{where}: {shown!r} has no {separator!r} (--key-separator), so what its key is can't be told. What comes before"
            " it was sent; it was not, nor what comes after: mend it, and go on from there."
        )


def _open(path: str | None) -> BinaryIO:
    if path is None:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return pathlib.Path(path).open("rb")
    except OSError as missing:
        raise NotUnderstood(f"can't read {path}: {missing.strerror}") from missing


class _Creation:
    """Says once that the topic was made by its first record, as Kafka makes it: its name may be a typing error."""

    def __init__(self, admin: Any, topic: str, *, is_answered: bool = True) -> None:
        self._admin = admin
        self._is_answered = is_answered
        self._topic = topic
        self._others = self._names()
        self._may_be_told = self._others is not None and topic not in self._others

    def look(self, *, is_written: bool) -> None:
        if not self._may_be_told or (is_written and not self._is_answered):
            return
        if not is_written and self._topic not in (self._names() or ()):
            return
        self._may_be_told = False
        say(
            f"there was no topic {self._topic}: it was created.{guess(self._topic, self._others or ())}"
            f" `fencepost topic delete {quoted(self._topic)}` takes it away again."
        )

    def _names(self) -> list[str] | None:
        """None when nobody tells them; the records go on."""
        try:
            return sorted(self._admin.list_topics(timeout=READ_S).topics)
        except KafkaException:
            return None


class _Tally:
    """What became of each record."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        outage: Outage,
        stall: Stall,
        creation: _Creation,
    ) -> None:
        self.topic = topic = arguments.topic
        self._file = arguments.file
        self._is_keyless = arguments.key_separator is None
        self.outage = outage
        self._stall = stall
        self._creation = creation
        self._partitions = None if arguments.partition is None else [arguments.partition]
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0
        self.progress = Progress(f"producing to {topic}")
        self._moves()
        self._queued_at = time.monotonic()  # the last of them

    def _moves(self) -> None:
        self._stall.moved()
        self._remind_at = time.monotonic() + REMIND_S

    def queues(self) -> None:
        """A record more, which is a line more."""
        if self.unknown == 0:  # what comes slowly has not waited
            self._moves()
        self.sent += 1
        self._queued_at = time.monotonic()

    def waits(self) -> None:
        self.progress.at(self.acknowledged)
        self._stall.look(self._partitions)
        now = time.monotonic()
        if self.unknown and now >= self._remind_at:
            self._remind_at = now + REMIND_S
            self.progress.end()
            say(self._what_is_waited_for(now))

    def _what_is_waited_for(self, now: float) -> str:
        places = few(self._stall.waited_for) or self.topic
        minutes, seconds = divmod(max(0, round(self._queued_at + DELIVERY_S - now)), 60)
        left = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
        are, they = ("is", "it fails") if self.unknown == 1 else ("are", "they fail")
        return (
            f"still waiting for {places}: {records(self.unknown)} {are} not acknowledged; {they} in {left} at the latest."
            " Ctrl-C ends it before."
        )

    def delivered(self, error: Any, message: Any, line: int = 0) -> None:
        self._moves()
        if error is None:
            self.acknowledged += 1
            self._creation.look(is_written=True)
            self.outage.over()
            return
        self.failed += 1
        if self.failed <= FAILURES_SHOWN:
            what = f"{self.where(line)}: a record to {self.topic} failed"
            told = explain(what, error, topic=self.topic)
            if self._is_keyless and error.code() == KafkaError.INVALID_RECORD:
                told += NO_KEY
            sys.stderr.write(printable(told) + "\n")

    def where(self, line: int) -> str:
        return f"line {line}" if self._file is None else f"{self._file}, line {line}"

    @property
    def unknown(self) -> int:
        return self.sent - self.acknowledged - self.failed

    def finish(self) -> int:
        self.progress.end()
        self._creation.look(is_written=False)
        text = f"{records(self.acknowledged)} acknowledged"
        if self.unknown:
            text += f", {self.unknown:,} without an answer (they may be there)"
        if self.failed:
            text += f", {self.failed:,} failed"
        print(text, file=sys.stderr)
        return EXIT_FAILED if self.failed else EXIT_OK
