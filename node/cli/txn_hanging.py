"""Ending what nobody else ends: transactions that hang, and those of a producer that is to be fenced."""

import argparse
from collections.abc import Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import NO_LEADER, TopicPartition
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.metadata.offline import why_offline
from fencepost.cluster.wire.api import ApiKey

from ..few import few
from .agreed_moves import partitions_of
from .checked import NotUnderstood
from .cluster import EXIT_FAILED, EXIT_OK, Failed, say
from .output import show, show_json, show_line
from .printable import quoted
from .txn_coordinators import known_by_producer
from .txn_reading import choose_places, coordinator_of, describe, read_open, still_open
from .txn_sentences import (
    NO_TIMEOUT_MS,
    PREPARED,
    Open,
    Transaction,
    hanging,
    is_hanging,
    show_duration,
)
from .wire import Wire, read_image

# Of the next transaction of an id that is fenced, of which there is none: whatever the cluster's longest is, it allows this.
ANY_TIMEOUT_MS: Final = 1
TRIES, PAUSE_S = 50, 0.2
TRIES_PREPARED: Final = 3  # a half message is not aborted so, however long one asks


def find_hanging(arguments: argparse.Namespace, now_ms: int) -> int:
    if arguments.partition is not None and len(arguments.topic) != 1:
        raise NotUnderstood("--partition needs one --topic that it is of")
    with Wire(arguments.bootstrap) as wire:
        image = read_image(wire, arguments.topic or None)
        places = choose_places(image, arguments.topic, arguments.partition, arguments.node)
        told = read_open(wire, image, places)
        found = [each for there in told.values() for each in there]
        long_ms = arguments.max_transaction_timeout
        old = [each for each in found if now_ms - each.last_write_ms > long_ms]
        known, silent = known_by_producer(wire, image, [each.producer_id for each in old])
        lost = hanging(old, known, longer_than_ms=long_ms, now_ms=now_ms)
        lost, untold = still_open(wire, image, lost)
    if silent:
        # A coordinator that could not be asked may well know them: a marker would tear a transaction.
        raise Failed(f"it can't be told which transactions hang: {'; '.join(silent)}")
    unseen = [each for each in places if each not in told or each in untold]
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
        for each in lost
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
    looked = partitions_of(len(places))
    if unseen:
        looked = f"{len(places) - len(unseen)} of {looked}"
    show(words, rows, as_json=arguments.json, empty=f"No transaction hangs in {looked}.")
    if rows and not arguments.json:
        print(
            "\nNo coordinator will end these. `fencepost txn abort --topic T --partition P --start-offset O` does."
        )
    _say_unseen(image, unseen)
    return EXIT_FAILED if unseen else wire.code


def _say_unseen(image: ClusterImage, unseen: Sequence[TopicPartition]) -> None:
    of_leader: dict[int, list[str]] = {}
    for place in unseen:
        state = image.partition(*place)
        if state is None or state.leader == NO_LEADER:
            say(f"{place} could not be looked at. {why_offline(image, place)}")
        else:
            of_leader.setdefault(state.leader, []).append(str(place))
    for leader, names in of_leader.items():
        say(
            f"{few(names)} could not be looked at: node {leader}, which led {'it' if len(names) == 1 else 'them'}, does"
            " not tell what is open there. `fencepost node list` shows who is down."
        )


def _leaderless(image: ClusterImage, place: TopicPartition) -> bool:
    state = image.partition(*place)
    return state is None or state.leader == NO_LEADER


# --- abort ----------------------------------------------------------------------------------------


def abort(arguments: argparse.Namespace) -> int:
    by_place = (arguments.topic, arguments.partition, arguments.start_offset)
    if arguments.transactional_id is not None and by_place == (None, None, None):
        return _terminate(arguments, arguments.transactional_id)
    if arguments.transactional_id is not None or None in by_place:
        raise NotUnderstood(
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
        show_line(sentence)


def _hanging_at(wire: Wire, image: ClusterImage, place: TopicPartition, offset: int) -> Open:
    if _leaderless(image, place):
        raise Failed(f"{place} can't be written to. {why_offline(image, place)}")
    there = read_open(wire, image, [place]).get(place)
    if there is None:
        raise _silent_leader(place)
    chosen = next((each for each in there if each.first_offset == offset), None)
    if chosen is None:
        starts = ", ".join(str(each.first_offset) for each in there)
        others = f"open ones begin at {starts}" if there else "none is open there"
        raise Failed(f"no transaction of {place} begins at offset {offset}; {others}")
    known, silent = known_by_producer(wire, image, [chosen.producer_id])
    is_open, untold = still_open(wire, image, [chosen])
    if untold:
        raise _silent_leader(place)
    if not is_open:
        raise Failed(f"the transaction of {place} at offset {offset} has just ended")
    if silent:
        raise Failed(f"it can't be told whether it hangs: {'; '.join(silent)}")
    whose = known.get(chosen.producer_id)
    if not is_hanging(chosen, whose):
        assert whose is not None
        raise Failed(
            f"it does not hang: it is the transaction of {whose.transactional_id} ({whose.state}), which node "
            f"{whose.coordinator} will end. `fencepost txn abort {quoted(whose.transactional_id)}` ends all of it."
        )
    return chosen


def _silent_leader(place: TopicPartition) -> Failed:
    return Failed(f"the leader of {place} does not tell what is open there; try again when it does")


def _write_marker(wire: Wire, image: ClusterImage, chosen: Open) -> None:
    """As Kafka's tool: the coordinator's epoch that the partition saw last, 0 if none."""
    state = image.partition(*chosen.place)
    assert state is not None
    topics = [{"name": chosen.place.topic, "partition_indexes": [chosen.place.partition]}]
    marker = {
        "producer_id": chosen.producer_id,
        "producer_epoch": chosen.producer_epoch,
        "transaction_result": False,
        "coordinator_epoch": max(0, chosen.coordinator_epoch),
        "topics": topics,
    }
    leader = image.brokers[state.leader]
    try:
        reply = wire.ask_node(leader.endpoints[0], ApiKey.write_txn_markers, markers=[marker])
    except Trouble as trouble:
        raise _unanswered(
            f"node {leader.broker_id}, which leads {chosen.place}",
            trouble,
            f"`fencepost txn find-hanging --topic {quoted(chosen.place.topic)}`",
        ) from trouble
    error = reply.markers[0].topics[0].partitions[0].error_code
    if error is not ErrorCode.none:
        raise Failed(
            f"the leader of {chosen.place} refused the marker: {error.name.upper()}. Look again with "
            "`fencepost txn find-hanging`."
        )


def _unanswered(who: str, trouble: Trouble, look: str, *, was_heard: bool = False) -> Failed:
    if trouble.outcome is Outcome.REFUSED and not was_heard:
        return Failed(f"{who}, can't be asked ({trouble}). Nothing was aborted; try again.")
    return Failed(f"{who}, did not answer ({trouble}). It may have been aborted: look with {look}.")


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
        _fence(wire, image, before)
    _done(
        arguments,
        {"transactional_id": transactional_id},
        f"aborted the transaction of {transactional_id}",
    )
    return EXIT_OK


def _fence(wire: Wire, image: ClusterImage, before: Transaction) -> None:
    transactional_id = before.transactional_id
    # Its own, which the coordinator has accepted: transaction.max.timeout.ms may be shorter than any that we choose.
    timeout_ms = before.timeout_ms
    if timeout_ms in (0, NO_TIMEOUT_MS):
        timeout_ms = ANY_TIMEOUT_MS
    for number in range(TRIES_PREPARED if before.state == PREPARED else TRIES):
        node = coordinator_of(wire, image, transactional_id)
        try:
            reply = wire.ask_node(
                node.endpoints[0],
                ApiKey.init_producer_id,
                transactional_id=transactional_id,
                transaction_timeout=timeout_ms,
            )
        except Trouble as trouble:
            raise _unanswered(
                f"node {node.broker_id}, which coordinates {transactional_id}",
                trouble,
                f"`fencepost txn describe {quoted(transactional_id)}`",
                was_heard=number > 0,  # by whoever answered before
            ) from trouble
        if reply.error_code is ErrorCode.none:
            return
        if (
            reply.error_code is ErrorCode.invalid_transaction_timeout
            and timeout_ms > ANY_TIMEOUT_MS
        ):
            timeout_ms = ANY_TIMEOUT_MS  # the longest that is allowed was shortened since
            continue
        # It is being aborted: ask until it is.
        if reply.error_code not in (
            ErrorCode.concurrent_transactions,
            ErrorCode.not_coordinator,
            ErrorCode.coordinator_load_in_progress,
        ):
            break
        wire.sleep(PAUSE_S)
    why = f"{transactional_id} can't be aborted: {reply.error_code.name.upper()}."
    if before.state == PREPARED:
        raise Failed(
            f"{why} It is prepared: `fencepost txn parked --all` shows whether its producers are asked about it, "
            f"`fencepost txn release {quoted(transactional_id)} --outcome rollback` decides it."
        )
    raise Failed(
        f"{why} `fencepost txn describe {quoted(transactional_id)}` shows what it waits for."
    )
