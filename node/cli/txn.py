"""`fencepost txn`: which transactions there are, why readers wait, and ending what nobody else will end."""

import argparse
import re
import time
from collections.abc import Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER, TopicPartition
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.metadata.offline import why_offline
from fencepost.cluster.wire.api import ApiKey

from .cluster import EXIT_FAILED, EXIT_OK, Failed, add_cluster_arguments, run_safely, say
from .output import show, show_json
from .txn_reading import (
    choose_places,
    coordinator_of,
    describe,
    describe_all,
    known_by_producer,
    list_ids,
    read_open,
    read_stable,
    with_since,
)
from .txn_sentences import (
    Open,
    Transaction,
    hanging,
    is_hanging,
    show_duration,
    why_stands_still,
)
from .wire import Wire, read_image

# Kafka's kafka-transactions: nothing that its broker allows by default takes longer.
MAX_TIMEOUT: Final = "15m"
TERMINATE_TIMEOUT_MS: Final = 60_000
TRIES, PAUSE_S = 50, 0.2
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
    finding.add_argument("--partition", type=int, help="of the one topic named")
    finding.add_argument("--node", type=int, help="only partitions with a replica on it")
    finding.add_argument(
        "--max-transaction-timeout",
        type=_duration,
        default=_duration(MAX_TIMEOUT),
        metavar="TIME",
        help=f"the longest that a transaction may take; younger ones are left out ({MAX_TIMEOUT})",
    )
    finding.set_defaults(action=_find_hanging)
    aborting = actions.add_parser("abort", help="end a transaction that nobody else ends")
    aborting.add_argument("transactional_id", nargs="?", metavar="ID", help="by its coordinator")
    aborting.add_argument("--topic", help="or a hanging one, in one partition")
    aborting.add_argument("--partition", type=int)
    aborting.add_argument("--start-offset", type=int, help="where it begins, as find-hanging shows")
    aborting.add_argument("--yes", action="store_true", help="needed: its records are never read")
    aborting.set_defaults(action=_abort)
    for action in (listing, describing, finding, aborting):
        add_cluster_arguments(action)


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
            image,
            state_filters=arguments.state,
            duration_filter=arguments.running_for,
            transactional_id_pattern=arguments.pattern,
        )
        found = describe_all(wire, image, [name for name, _ in ids])
    now_ms = _now_ms()
    shown = [found[name] for name, _ in ids if name in found]
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
    empty = (
        "No transactions match."
        if _is_filtered(arguments)
        else (
            "No transactional ids yet. One begins when a producer with a transactional.id starts."
        )
    )
    age = "age_ms" if arguments.json else "open for"
    header = ("transactional_id", "state", "producer_id", "epoch", "coordinator", age, "partitions")
    words = header if arguments.json else tuple(each.replace("_", " ") for each in header)
    show(words, rows, as_json=arguments.json, empty=empty)
    for sentence in silent:
        say(sentence)
    return EXIT_FAILED if silent else EXIT_OK


def _is_filtered(arguments: argparse.Namespace) -> bool:
    return bool(arguments.state or arguments.pattern or arguments.running_for >= 0)


# --- describe -------------------------------------------------------------------------------------


def _describe(arguments: argparse.Namespace) -> int:
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
    return EXIT_OK


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
                image, place, seen, [] if first is None else [first], known, now_ms
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
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms,
        "age_ms": found.age_ms(now_ms),
        "partitions": places,
    }


def _print_description(found: Transaction, places: list[dict[str, Any]], now_ms: int) -> None:
    age = show_duration(found.age_ms(now_ms))
    opened = "nothing is open" if age is None else f"open for {age}"
    print(
        f"{found.transactional_id}  {found.state}, {opened}, timeout {show_duration(found.timeout_ms)}, "
        f"producer {found.producer_id} (epoch {found.producer_epoch}), coordinated by node {found.coordinator}"
    )
    if not places:
        print("No partition waits for it.")
    for row in places:
        print(f"\n{row['topic']}-{row['partition']}  {row['why']}")


# --- what hangs -----------------------------------------------------------------------------------


def _find_hanging(arguments: argparse.Namespace) -> int:
    if arguments.partition is not None and len(arguments.topic) != 1:
        raise Failed("--partition needs one --topic that it is of")
    with Wire(arguments.bootstrap) as wire:
        image = read_image(wire, arguments.topic or None)
        places = choose_places(image, arguments.topic, arguments.partition, arguments.node)
        found = [each for there in read_open(wire, image, places).values() for each in there]
        now_ms = _now_ms()
        long_ms = arguments.max_transaction_timeout
        old = [each for each in found if now_ms - each.last_write_ms > long_ms]
        known, silent = known_by_producer(wire, image, [each.producer_id for each in old])
    if silent:
        # A coordinator that could not be asked may well know them: a marker would tear a transaction.
        raise Failed(f"it can't be told which transactions hang: {'; '.join(silent)}")
    unseen = [each for each in places if _leaderless(image, each)]
    rows = [
        (
            *each.place,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.first_offset,
            now_ms - each.last_write_ms
            if arguments.json
            else show_duration(now_ms - each.last_write_ms),
        )
        for each in hanging(old, known, longer_than_ms=long_ms, now_ms=now_ms)
    ]
    age = "last_write_ms_ago" if arguments.json else "last write"
    header = (
        "topic",
        "partition",
        "producer_id",
        "epoch",
        "coordinator_epoch",
        "start_offset",
        age,
    )
    words = header if arguments.json else tuple(each.replace("_", " ") for each in header)
    looked = f"{len(places)} partition{'' if len(places) == 1 else 's'}"
    show(words, rows, as_json=arguments.json, empty=f"No transaction hangs in {looked}.")
    if rows and not arguments.json:
        print(
            "\nNo coordinator will end these. `fencepost txn abort --topic T --partition P --start-offset O` does."
        )
    for place in unseen:
        say(f"{place} could not be looked at. {why_offline(image, place)}")
    return EXIT_FAILED if unseen else EXIT_OK


def _leaderless(image: ClusterImage, place: TopicPartition) -> bool:
    state = image.partition(*place)
    return state is None or state.leader == NO_LEADER


# --- abort ----------------------------------------------------------------------------------------


def _abort(arguments: argparse.Namespace) -> int:
    by_place = (arguments.topic, arguments.partition, arguments.start_offset)
    if arguments.transactional_id is not None and by_place == (None, None, None):
        return _terminate(arguments, arguments.transactional_id)
    if arguments.transactional_id is not None or None in by_place:
        raise Failed(
            "name the transaction: its transactional id, or --topic, --partition and --start-offset of one that "
            "hangs (`fencepost txn find-hanging`)"
        )
    place = TopicPartition(arguments.topic, arguments.partition)
    with Wire(arguments.bootstrap) as wire:
        image = read_image(wire, [place.topic])
        choose_places(image, [place.topic], place.partition, None)
        chosen = _hanging_at(wire, image, place, arguments.start_offset)
        if not arguments.yes:
            raise Failed(
                f"the transaction of producer {chosen.producer_id} at {place}, offset {chosen.first_offset}, would "
                "be aborted: nobody who reads committed records ever sees it. To do that, say --yes."
            )
        _write_marker(wire, image, chosen)
    _done(arguments, {"topic": place.topic, "partition": place.partition, "start_offset": chosen.first_offset},
          f"aborted the transaction at {place}, offset {chosen.first_offset}")  # fmt: skip
    return EXIT_OK


def _done(arguments: argparse.Namespace, row: dict[str, Any], sentence: str) -> None:
    if arguments.json:
        show_json({**row, "aborted": True})
    else:
        print(sentence)


def _hanging_at(wire: Wire, image: ClusterImage, place: TopicPartition, offset: int) -> Open:
    if _leaderless(image, place):
        raise Failed(f"{place} can't be written to. {why_offline(image, place)}")
    there = read_open(wire, image, [place]).get(place)
    if there is None:
        raise Failed(f"the leader of {place} does not answer; try again when it does")
    chosen = next((each for each in there if each.first_offset == offset), None)
    if chosen is None:
        starts = ", ".join(str(each.first_offset) for each in there)
        others = f"open ones begin at {starts}" if there else "none is open there"
        raise Failed(f"no transaction of {place} begins at offset {offset}; {others}")
    known, silent = known_by_producer(wire, image, [chosen.producer_id])
    if silent:
        raise Failed(f"it can't be told whether it hangs: {'; '.join(silent)}")
    whose = known.get(chosen.producer_id)
    if not is_hanging(chosen, whose):
        assert whose is not None
        raise Failed(
            f"it does not hang: it is the transaction of {whose.transactional_id} ({whose.state}), which node "
            f"{whose.coordinator} will end. `fencepost txn abort {whose.transactional_id}` ends all of it."
        )
    return chosen


def _write_marker(wire: Wire, image: ClusterImage, chosen: Open) -> None:
    """As Kafka's tool: the coordinator's epoch that the partition saw last, 0 if none."""
    state = image.partition(*chosen.place)
    assert state is not None
    reply = wire.ask_node(
        image.brokers[state.leader].endpoints[0],
        ApiKey.write_txn_markers,
        markers=[
            {
                "producer_id": chosen.producer_id,
                "producer_epoch": chosen.producer_epoch,
                "transaction_result": False,
                "coordinator_epoch": max(0, chosen.coordinator_epoch),
                "topics": [
                    {
                        "name": chosen.place.topic,
                        "partition_indexes": [chosen.place.partition],
                    }
                ],
            }
        ],
    )
    error = reply.markers[0].topics[0].partitions[0].error_code
    if error is not ErrorCode.none:
        raise Failed(
            f"the leader of {chosen.place} refused the marker: {error.name.upper()}. Look again with "
            "`fencepost txn find-hanging`."
        )


def _terminate(arguments: argparse.Namespace, transactional_id: str) -> int:
    """As a new incarnation of the producer would: its epoch fences the old one, what is open is aborted."""
    with Wire(arguments.bootstrap) as wire:
        image = read_image(wire, [])
        before = describe(wire, image, transactional_id)
        if not before.is_open:
            raise Failed(f"{transactional_id} has nothing open ({before.state})")
        if not arguments.yes:
            raise Failed(
                f"the transaction of {transactional_id}, open in {len(before.partitions)} partitions, would be "
                "aborted and its producer fenced: it can't go on under this id until it is started again. "
                "To do that, say --yes."
            )
        _fence(wire, image, transactional_id)
    _done(
        arguments,
        {"transactional_id": transactional_id},
        f"aborted the transaction of {transactional_id}",
    )
    return EXIT_OK


def _fence(wire: Wire, image: ClusterImage, transactional_id: str) -> None:
    for _ in range(TRIES):
        node = coordinator_of(wire, image, transactional_id)
        reply = wire.ask_node(
            node.endpoints[0],
            ApiKey.init_producer_id,
            transactional_id=transactional_id,
            transaction_timeout=TERMINATE_TIMEOUT_MS,
        )
        if reply.error_code is ErrorCode.none:
            return
        # It is being aborted: ask until it is.
        if reply.error_code not in (
            ErrorCode.concurrent_transactions,
            ErrorCode.not_coordinator,
            ErrorCode.coordinator_load_in_progress,
        ):
            break
        wire.sleep(PAUSE_S)
    raise Failed(
        f"{transactional_id} can't be aborted: {reply.error_code.name.upper()}. "
        f"`fencepost txn describe {transactional_id}` shows what it waits for."
    )
