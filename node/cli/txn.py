"""`fencepost txn`: which transactions there are, why readers wait, and ending what nobody else will end."""

import argparse
import re
import time
from collections.abc import Sequence
from typing import Any, Final

from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.metadata.image import ClusterImage

from .admin_door import add_admin_argument
from .checked import named, number
from .cluster import EXIT_FAILED, add_cluster_arguments, run_safely, say
from .output import show, show_json, show_line
from .txn_coordinators import known_by_producer
from .txn_hanging import abort, find_hanging
from .txn_parked import parked, release
from .txn_reading import (
    describe,
    describe_all,
    list_ids,
    read_open,
    read_stable,
    with_since,
)
from .txn_sentences import (
    Transaction,
    show_duration,
    why_stands_still,
)
from .wire import Wire, read_image

# Kafka's kafka-transactions: nothing that its broker allows by default takes longer.
MAX_TIMEOUT: Final = "15m"
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show transactional ids and what is open")
    listing.add_argument("--state", action="append", default=[], help="only these, such as Ongoing")
    listing.add_argument(
        "--running-for",
        type=_duration,
        default=-1,
        metavar="TIME",
        help="only transactions that have been open for longer, such as 90s or 15m",
    )
    listing.add_argument("--pattern", help="only ids that this regular expression matches whole")
    listing.set_defaults(action=_list)
    describing = actions.add_parser(
        "describe", help="show one transaction, and why readers of its partitions wait"
    )
    describing.add_argument("transactional_id", metavar="ID")
    describing.set_defaults(action=_describe)
    finding = actions.add_parser(
        "find-hanging", help="find open transactions that no coordinator will ever end"
    )
    finding.add_argument("--topic", action="append", default=[], help="default: all")
    finding.add_argument("--partition", type=number, help="of the one topic named")
    finding.add_argument("--node", type=number, help="only partitions with a replica on it")
    finding.add_argument(
        "--max-transaction-timeout",
        type=_duration,
        default=_duration(MAX_TIMEOUT),
        metavar="TIME",
        help=f"the longest that a transaction may take; younger ones are left out ({MAX_TIMEOUT})",
    )
    finding.set_defaults(action=lambda arguments: find_hanging(arguments, _now_ms()))
    aborting = actions.add_parser("abort", help="end a transaction that nobody else ends")
    aborting.add_argument("transactional_id", nargs="?", metavar="ID", help="by its coordinator")
    aborting.add_argument("--topic", help="or a hanging one, in one partition")
    aborting.add_argument("--partition", type=number)
    aborting.add_argument(
        "--start-offset", type=number, help="where it begins, as find-hanging shows"
    )
    aborting.add_argument("--yes", action="store_true", help="needed: its records are never read")
    aborting.set_defaults(action=abort)
    parking = actions.add_parser("parked", help="show half messages that wait for a person")
    parking.add_argument("--all", action="store_true", help="also those that are still checked")
    parking.set_defaults(action=lambda arguments: parked(arguments, _now_ms()))
    releasing = actions.add_parser(
        "release", help="have a parked half message checked again, or decide it"
    )
    releasing.add_argument("transactional_id", metavar="ID")
    releasing.add_argument("--half-id", help="which one (default: the last of that id)")
    releasing.add_argument("--outcome", choices=("commit", "rollback"), help="decide it, for good")
    releasing.set_defaults(action=release)
    for action in (listing, describing, finding, aborting, parking, releasing):
        add_cluster_arguments(action)
    for action in (parking, releasing):
        add_admin_argument(action)


def _duration(text: str) -> int:
    """Milliseconds."""
    found = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h|d)", text.strip(), re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: say a number with a unit, such as 500ms, 90s, 15m, 2h or 1d"
        )
    return int(found[1]) * _UNITS[found[2]]


def run(arguments: argparse.Namespace) -> int:
    return run_safely(arguments.action, arguments)


def _now_ms() -> int:
    return round(time.time() * 1000)


# --- list -----------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    with Wire(arguments.bootstrap) as wire:
        image = read_image(wire, [])
        ids, silent = list_ids(
            wire,
            image.alive_brokers(),
            state_filters=arguments.state,
            duration_filter=arguments.running_for,
            transactional_id_pattern=arguments.pattern,
        )
        found, untold = describe_all(wire, image, [name for name, _ in ids])
        silent += untold
    now_ms = _now_ms()
    shown = [each for name, _ in ids if (each := found.get(name)) is not None]
    if arguments.running_for >= 0:  # by when it began; coordinators count what has ended since, too
        shown = [each for each in shown if each.is_open]
    rows = [
        (
            each.transactional_id,
            each.state,
            each.producer_id,
            each.producer_epoch,
            each.coordinator,
            each.age_ms(now_ms) if arguments.json else show_duration(each.age_ms(now_ms)),
            len(each.partitions),
        )
        for each in shown
    ]
    empty = "No transactional ids yet. One begins when a producer with a transactional.id starts."
    if _is_filtered(arguments):
        empty = "No transactions match."
    if silent:
        empty = "Those that could be asked know of none."
    age = "age_ms" if arguments.json else "open for"
    header = ("transactional_id", "state", "producer_id", "epoch", "coordinator", age, "partitions")
    words = header if arguments.json else tuple(each.replace("_", " ") for each in header)
    show(words, rows, as_json=arguments.json, empty=empty)
    for sentence in silent:
        say(sentence)
    return EXIT_FAILED if silent else wire.code


def _is_filtered(arguments: argparse.Namespace) -> bool:
    return bool(arguments.state or arguments.pattern or arguments.running_for >= 0)


# --- describe -------------------------------------------------------------------------------------


def _describe(arguments: argparse.Namespace) -> int:
    named("a transactional id", arguments.transactional_id)
    with Wire(arguments.bootstrap) as wire:
        found = describe(wire, read_image(wire, []), arguments.transactional_id)
        image = _image_of(wire, found.partitions)
        silent: list[str] = []
        places = _explain(wire, image, found.partitions, silent)
    now_ms = _now_ms()
    if arguments.json:
        show_json(_described(found, places, now_ms))
    else:
        _print_description(found, places, now_ms)
    for sentence in silent:
        say(sentence)
    return EXIT_FAILED if silent else wire.code


def _image_of(wire: Wire, places: Sequence[TopicPartition]) -> ClusterImage:
    """With the topics of these that are still there: one may have been deleted inside an open transaction."""
    names = {each.topic for each in places}
    image = read_image(wire)
    for name in sorted(set(image.topics) - names):
        del image.topics[name]
    return image


def _explain(
    wire: Wire, image: ClusterImage, places: Sequence[TopicPartition], silent: list[str]
) -> list[dict[str, Any]]:
    """A row for each partition; who could not be asked is added to `silent`."""
    there = [each for each in places if image.partition(*each) is not None]
    stable = read_stable(wire, image, there)
    open_there = read_open(wire, image, there)
    firsts = {
        place: with_since(wire, image, min(each, key=lambda one: one.first_offset))
        for place, each in open_there.items()
        if each
    }
    known, missing = known_by_producer(wire, image, [each.producer_id for each in firsts.values()])
    silent += missing
    now_ms = _now_ms()
    rows = []
    for place in places:
        first = firsts.get(place)
        seen = stable.get(place)
        why = "The topic is gone, and what was written to it."
        if place in there:
            why = why_stands_still(
                image,
                place,
                # Of what nobody tells what is open there, nothing has ended.
                seen if place in open_there else None,
                [] if first is None else [first],
                known,
                now_ms,
                is_known_by_all=not missing,
            )
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "last_stable_offset": None if seen is None else seen.last_stable_offset,
                "high_watermark": None if seen is None else seen.high_watermark,
                "since_ms": None if first is None else first.since_ms,
                "held_by_producer_id": None if first is None else first.producer_id,
                "why": why,
            }
        )
    return rows


def _described(found: Transaction, places: list[dict[str, Any]], now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator": found.coordinator,
        "timeout_ms": found.timeout_ms if found.has_timeout else None,
        "started_ms": found.started_ms,
        "age_ms": found.age_ms(now_ms),
        "partitions": places,
    }


def _print_description(found: Transaction, places: list[dict[str, Any]], now_ms: int) -> None:
    age = show_duration(found.age_ms(now_ms))
    opened = "nothing is open" if age is None else f"open for {age}"
    timeout = f"timeout {show_duration(found.timeout_ms)}" if found.has_timeout else "no timeout"
    show_line(
        f"{found.transactional_id}  {found.state}, {opened}, {timeout}, "
        f"producer {found.producer_id} (epoch {found.producer_epoch}), coordinated by node {found.coordinator}"
    )
    if not places:
        print("No partition waits for it.")
    for row in places:
        print()
        show_line(f"{row['topic']}-{row['partition']}  {row['why']}")
