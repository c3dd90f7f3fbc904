"""`fencepost consume`: records to standard output, from a place, for a group, or up to where the topic ends now.

INVARIANT  a group's position is never beyond a record that standard output has not taken.
PREVENTS   a full disk, or a reader that goes away (`| head`), behind which the group has read what nobody has.
PROVED BY  tests/node/test_full_output.py::test_a_groups_position_is_not_beyond_what_was_written
"""

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

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
    EXIT_INTERRUPTED,
    EXIT_OK,
    Outage,
    add_cluster_arguments,
    client_settings,
    confluent_kafka,
    connect,
    explain,
    find_topic,
    offsets_at,
    records,
    run_safely,
    say,
)
from .kafka_client import KafkaException, OffsetSpec, TopicPartition
from .leaderless import Stall
from .output import Progress
from .printable import json_text, quoted

FLUSH_S = 1.0  # while records come without end
LEAVES_S = 10.0  # librdkafka's close may wait for ever for a group that is no more (its issue 4884), and hears no signal
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
    parser.add_argument("--partition", type=number, help="only this partition")
    parser.add_argument("--group", help="read as a member of this group and commit its positions")
    parser.add_argument("--count", type=number, help="stop after so many records")
    parser.add_argument(
        "--follow", action="store_true", help="go on at the end instead of stopping, until Ctrl-C"
    )
    parser.add_argument("--keys", action="store_true", help="print KEY<tab>VALUE")
    parser.add_argument("--isolation", choices=("committed", "uncommitted"), default="committed")
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(_consume, arguments)


def _consume(arguments: argparse.Namespace) -> int:
    _check(arguments)
    admin = connect(arguments)
    topic = find_topic(admin, arguments.topic)
    outage = Outage(arguments.bootstrap)
    consumer = confluent_kafka.Consumer(
        client_settings(arguments, on_error=outage.heard)
        | {
            "group.id": arguments.group or "fencepost-cli",
            "enable.auto.commit": arguments.group is not None,
            "enable.auto.offset.store": False,
            # Also of an offset: what is deleted while it is read is passed over, and not all the rest.
            "auto.offset.reset": "latest" if arguments.start == "end" else "earliest",
            "isolation.level": f"read_{arguments.isolation}",
            "enable.partition.eof": True,
            # Its default is a second, of which a full queue makes most of the time.
            "fetch.queue.backoff.ms": 20,
            "allow.auto.create.topics": False,
        }
    )
    written = _Written(consumer, arguments)
    try:
        if arguments.group is None:
            consumer.assign(_assignment(arguments, admin, topic.partitions))
        else:
            consumer.subscribe([arguments.topic], on_revoke=written.before_others_read_on)
        return _print_records(arguments, written, outage, Stall(arguments, admin, "read"))
    finally:
        _leave(consumer, arguments)


def _leave(consumer: Any, arguments: argparse.Namespace) -> None:
    raised: list[BaseException] = []

    def close() -> None:
        try:
            consumer.close()
        except BaseException as trouble:  # noqa: BLE001 - raised again below: it is of the output, as a rule
            raised.append(trouble)

    leaving = threading.Thread(target=close, name="leaving the group", daemon=True)
    leaving.start()
    leaving.join(LEAVES_S)
    if leaving.is_alive() and arguments.group is not None:
        say(
            f"the client did not leave {arguments.group} in {LEAVES_S:g} s: others read on when the session of this member is"
            f" over. `fencepost group describe {quoted(arguments.group)}` shows how far the group is."
        )
    if raised:
        raise raised[0]


class _Written:
    """Standard output, and with it the group's position."""

    def __init__(self, consumer: Any, arguments: argparse.Namespace) -> None:
        self.consumer = consumer
        self.seen = 0
        self._arguments = arguments
        self._out = sys.stdout.buffer
        self._ends: dict[int, int] = {}  # behind what was written and is not stored yet
        self._takes = True  # until it has failed
        self._flushed_s = time.monotonic()

    def add(self, message: Any) -> None:
        self._takes = False
        self._out.write(_line(self._arguments, message))
        self._takes = True
        self.seen += 1
        self._ends[message.partition()] = message.offset() + 1
        if time.monotonic() - self._flushed_s > FLUSH_S:
            self.flush()

    def flush(self) -> None:
        self._takes = False
        self._out.flush()
        self._takes = True
        self._flushed_s = time.monotonic()
        if self._arguments.group is not None:
            for partition, end in self._ends.items():
                with contextlib.suppress(KafkaException):  # it is another member's by now
                    place = TopicPartition(self._arguments.topic, partition, end)
                    self.consumer.store_offsets(offsets=[place])
        self._ends.clear()

    def before_others_read_on(self, *_: object) -> None:
        """What the group is about to take away, also when this member leaves."""
        if self._takes:
            self.flush()


def _check(arguments: argparse.Namespace) -> None:
    named("a topic's name", arguments.topic)
    check_partition(arguments.partition)
    if arguments.start not in _PLACES:
        if not is_number(arguments.start):
            raise NotUnderstood(f"--from {arguments.start}: say start, end or an offset")
        whole("--from", int(arguments.start), 0, OFFSET_MAX)
    if arguments.count is not None and arguments.count < 1:
        raise NotUnderstood(f"--count {arguments.count}: say how many records, 1 or more")
    if arguments.group is None:
        return
    named("a group's name", arguments.group)
    if arguments.partition is not None:
        raise NotUnderstood(
            "--partition does not go with --group: a group shares all partitions out"
        )
    if arguments.start not in _PLACES:
        raise NotUnderstood(
            "--from OFFSET does not go with --group; move the group first: "
            f"`fencepost group seek {quoted(arguments.group)} --topic {quoted(arguments.topic)} "
            f"--to {arguments.start}`"
        )


def _assignment(
    arguments: argparse.Namespace, admin: Any, there: Mapping[int, Any]
) -> list[TopicPartition]:
    partitions = sorted(there)
    if arguments.partition is not None:
        if arguments.partition not in partitions:
            raise Failed(
                f"{arguments.topic} has no partition {arguments.partition}; "
                f"it has {partitions[0]} to {partitions[-1]}"
            )
        partitions = [arguments.partition]
    place = _PLACES.get(arguments.start)
    starts = dict.fromkeys(partitions, place)
    if place is None:
        led = [each for each in partitions if there[each].leader >= 0]
        starts = dict.fromkeys(partitions, int(arguments.start))
        starts |= _within(arguments, admin, led)
    return [TopicPartition(arguments.topic, each, starts[each]) for each in partitions]


def _within(arguments: argparse.Namespace, admin: Any, partitions: list[int]) -> dict[int, int]:
    """The offset in each of these that is nearest to the one asked for: librdkafka would begin at either end."""
    start = int(arguments.start)
    names = [(arguments.topic, each) for each in partitions]
    firsts, ends = offsets_at(admin, names, OffsetSpec.earliest(), OffsetSpec.latest())
    if late := [
        f"{name}-{each} begins at {at}" for (name, each), at in firsts.items() if at > start
    ]:
        say(
            f"{few(sorted(late))}: what was before that is deleted, and --from {start} begins there."
        )
    return {place[1]: min(max(start, firsts[place]), ends[place]) for place in names}


def _print_records(
    arguments: argparse.Namespace, written: _Written, outage: Outage, stall: Stall
) -> int:
    """Until the count, the end, Ctrl-C, or a partition that nobody leads; then says how many there were."""
    progress = Progress(f"consuming {arguments.topic}")
    at_end: set[int] = set()
    start = int(arguments.start) if is_number(arguments.start) else None
    ends: dict[int, int] = {}  # of those that end before that
    code = EXIT_OK
    consumer = written.consumer
    on_terminal = sys.stdout.isatty()
    try:
        while arguments.count is None or written.seen < arguments.count:
            message = consumer.poll(1.0)
            if message is None:
                written.flush()
                if _is_stuck(consumer, at_end, stall) and not arguments.follow:
                    code = EXIT_FAILED
                    break
                continue
            outage.over()
            stall.moved()
            error = message.error()
            if error is None:
                at_end.discard(message.partition())
                written.add(message)
                if not on_terminal:
                    seen = written.seen
                    progress.at(seen, seen / arguments.count if arguments.count else None)
                continue
            if error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                raise Failed(explain(f"can't read {arguments.topic}", error, topic=arguments.topic))
            at_end.add(message.partition())
            if start is not None and message.offset() < start:
                ends[message.partition()] = message.offset()
            written.flush()
            if len(at_end) >= len(consumer.assignment()):
                _say_where_it_ends(arguments, ends)
                if not arguments.follow:
                    break
    except KeyboardInterrupt:
        ends_so = arguments.follow and arguments.count is None  # it has no other end
        code = EXIT_OK if ends_so else EXIT_INTERRUPTED
    written.flush()
    progress.end()
    print(records(written.seen), file=sys.stderr)
    return code


def _say_where_it_ends(arguments: argparse.Namespace, ends: dict[int, int]) -> None:
    """Once: librdkafka reads on from the end where what was asked for lies beyond it."""
    if not ends:
        return
    told = few([f"{arguments.topic}-{each} ends at {ends[each]}" for each in sorted(ends)])
    say(
        f"{told}: --from {arguments.start} is beyond that, where nothing has been written yet. `fencepost topic describe"
        f" {quoted(arguments.topic)}` shows what there is."
    )
    ends.clear()


def _is_stuck(consumer: Any, at_end: set[int], stall: Stall) -> bool:
    mine = {each.partition for each in consumer.assignment()}
    if mine and mine <= at_end:
        return False  # whoever follows waits for what is yet to be written
    return stall.look(mine - at_end, joins=not mine)


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
        return json_text(record).encode() + b"\n"
    if arguments.keys:
        return (message.key() or b"") + b"\t" + value + b"\n"
    return bytes(value) + b"\n"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
