"""Carrying out a plan: orders are given a few at a time, and what becomes of them is shown until all are done."""

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey

from .cluster import Failed
from .move_plan import Move
from .output import Progress, show_size
from .wire import ASK_MS, Wire

LOOK_S: Final = 0.25
ORDERS_MAX: Final = 500  # of one request
PREFERRED: Final = 0
TOPIC, BROKERS, SET, UNSET = 2, 4, 0, 1
SIDES: Final = ("leader", "follower")
RATES: Final = [f"{side}.replication.throttled.rate" for side in SIDES]
THROTTLED: Final = [f"{side}.replication.throttled.replicas" for side in SIDES]
ALL: Final = "*"
OF_THE_TOPIC: Final = 1  # ConfigSource.DYNAMIC_TOPIC_CONFIG
TOPICS_MAX: Final = 1000  # of one question
DONE: Final = (ErrorCode.none, ErrorCode.no_reassignment_in_progress)  # that arrived just before
CANCEL: Final = "`fencepost node cancel-moves`"

Key = tuple[str, int]
Values = Mapping[str, str | None]


class Carrier:
    """Gives the orders of one plan. `left` are those that were not given yet, `under_way` those not done yet."""

    def __init__(
        self, wire: Wire, moves: Sequence[Move], parallel: int, throttle: "Throttle"
    ) -> None:
        self.wire = wire
        self.throttle = throttle
        self.left = deque(moves)
        self.under_way: dict[Key, Move] = {}
        self.done: list[Move] = []
        self.refused: list[tuple[Move, str]] = []
        self._parallel = parallel
        self._total = sum(move.bytes_copied for move in moves)
        self._count = len(moves)

    def run(self) -> None:
        """Until all is done. A KeyboardInterrupt leaves what is under way under way."""
        bar = Progress("moving")
        while self.left or self.under_way:
            self._order()
            self._look()
            copied = sum(move.bytes_copied for move in self.done)
            share = copied / self._total if self._total else len(self.done) / self._count
            bar.at(len(self.done), share)
            if self.left or self.under_way:
                self.wire.sleep(LOOK_S)
        bar.end()

    def _order(self) -> None:
        room = self._parallel - len(self.under_way)
        orders = list(islice(self.left, max(0, room)))
        self.throttle.begin([move.topic for move in orders])
        for move in orders:
            self.left.popleft()
            # Whoever is interrupted before the answer is here has given the order all the same.
            self.under_way[move.topic, move.partition] = move
        answers = order(self.wire, [(m.topic, m.partition, m.after) for m in orders])
        for move in orders:
            why = answers[move.topic, move.partition]
            if why is not None:
                del self.under_way[move.topic, move.partition]
                self.refused.append((move, why))

    def _look(self) -> None:
        if not self.under_way:
            return
        moving = reassigning(self.wire)
        for key in [key for key in self.under_way if key not in moving]:
            self.done.append(self.under_way.pop(key))


class Throttle:
    """Of the moves of one plan: no node sends or takes more (KIP-73). A topic's begins with its first order."""

    def __init__(self, wire: Wire, all_topics: Sequence[str], bytes_per_s: int | None) -> None:
        self._wire = wire
        self._all_topics = all_topics
        self._bytes_per_s = bytes_per_s
        self._topics: dict[str, dict[str, str]] = {}  # and what they had before

    def begin(self, topics: Sequence[str]) -> None:
        new = [topic for topic in dict.fromkeys(topics) if topic not in self._topics]
        if self._bytes_per_s is None or not new:
            return
        rates: Values = dict.fromkeys(RATES, str(self._bytes_per_s))
        which: Values = dict.fromkeys(THROTTLED, ALL)
        of_topics = [_setting(TOPIC, topic, which) for topic in new]
        before = _throttled(self._wire, new)
        self._topics.update((topic, before.get(topic, {})) for topic in new)
        _alter(self._wire, [_setting(BROKERS, "", rates), *of_topics])

    def end(self, *, but: Sequence[str] = ()) -> None:
        """All but what goes on moving without us."""
        done = [topic for topic in self._topics if topic not in but]
        theirs = [_setting(TOPIC, each, self._topics[each]) for each in done if self._topics[each]]
        if theirs:
            _alter(self._wire, theirs)
        ours = [(each, 0) for each in done if not self._topics[each]]
        if done:
            lift_throttle(self._wire, self._all_topics, ours)


def order(
    wire: Wire, orders: Sequence[tuple[str, int, Sequence[int] | None]]
) -> dict[Key, str | None]:
    """Give orders; None cancels, if it has not arrived meanwhile. What was refused, and why."""
    answers: dict[Key, str | None] = {}
    for start in range(0, len(orders), ORDERS_MAX):
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, partition, replicas in orders[start : start + ORDERS_MAX]:
            topics.setdefault(topic, []).append(
                {"partition_index": partition, "replicas": replicas}
            )
        reply = wire.ask(
            ApiKey.alter_partition_reassignments,
            timeout=ASK_MS,
            topics=[{"name": name, "partitions": each} for name, each in topics.items()],
        )
        if reply.error_code is not ErrorCode.none:
            raise Failed(f"the cluster refused: {reply.error_code.name}: {reply.error_message}")
        for answered in reply.responses:
            for each in answered.partitions:
                why = None
                if each.error_code not in DONE:
                    why = each.error_message or each.error_code.name
                answers[answered.name, each.partition_index] = why
    return answers


def reassigning(wire: Wire) -> dict[Key, Any]:
    """What is on the move now."""
    reply = wire.ask(ApiKey.list_partition_reassignments, timeout=ASK_MS, topics=None)
    return {
        (topic.name, each.partition_index): each
        for topic in reply.topics
        for each in topic.partitions
    }


def lift_throttle(
    wire: Wire, all_topics: Sequence[str], keys: Sequence[Key], *, left_behind: bool = False
) -> None:
    """Of these partitions. What others are throttled by stays, and the rate while anything is.

    `left_behind`: also of topics that are throttled as a whole, as only these commands do it. A move that arrived
    after its command was ended has nobody else who lifts it.
    """
    throttled = _throttled(wire, all_topics)
    mine: dict[str, set[int]] = {}
    if left_behind:
        whole = [topic for topic, said in throttled.items() if set(said.values()) == {ALL}]
        mine.update((topic, set()) for topic in whole)
    for topic, partition in keys:
        mine.setdefault(topic, set()).add(partition)
    resources = []
    for topic in sorted(mine.keys() & throttled.keys()):
        left = {name: _without(value, mine[topic]) for name, value in throttled.pop(topic).items()}
        resources.append(_setting(TOPIC, topic, left))
        if any(left.values()):
            throttled[topic] = {}
    if not throttled:
        resources.append(_setting(BROKERS, "", dict.fromkeys(RATES)))
    if resources:
        _alter(wire, resources)


def _throttled(wire: Wire, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Topic -> which replicas of it are throttled, for topics that say so themselves."""
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(topics), TOPICS_MAX):
        asked = [
            {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": THROTTLED}
            for topic in topics[start : start + TOPICS_MAX]
        ]
        reply = wire.ask(ApiKey.describe_configs, resources=asked, include_synonyms=False)
        for topic in reply.results:
            said = {
                each.name: each.value
                for each in topic.configs
                if each.config_source == OF_THE_TOPIC and each.value
            }
            if said:
                found[topic.resource_name] = said
    return found


def _without(value: str, partitions: set[int]) -> str | None:
    """`0:1,0:2,3:1` without what is of these; all of a topic is what such a command set for its moves."""
    if value == ALL:
        return None
    kept = [each for each in value.split(",") if each.partition(":")[0] not in map(str, partitions)]
    return ",".join(kept) or None


def _alter(wire: Wire, resources: Sequence[dict[str, Any]]) -> None:
    reply = wire.ask(ApiKey.incremental_alter_configs, validate_only=False, resources=resources)
    for answer in reply.responses:
        gone = answer.error_code is ErrorCode.unknown_topic_or_partition
        if answer.error_code is not ErrorCode.none and not gone:
            raise Failed(f"the throttle was refused: {answer.error_message}")


def _setting(kind: int, name: str, values: Values) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": each, "config_operation": UNSET if value is None else SET, "value": value}
            for each, value in values.items()
        ],
    }


def elect_preferred(wire: Wire, keys: Sequence[Key]) -> None:
    """Those who can't lead now don't; the cluster tries again by itself."""
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    wire.ask(
        ApiKey.elect_leaders,
        timeout=ASK_MS,
        election_type=PREFERRED,
        topic_partitions=[{"topic": name, "partitions": each} for name, each in topics.items()],
    )


def carry_out(carrier: Carrier, *, say: Callable[[str], None]) -> bool:
    """Whether all of it happened. Ctrl-C leaves what has begun going on, and says how it is cancelled."""
    try:
        carrier.run()
    except KeyboardInterrupt:
        begun, not_begun = len(carrier.under_way), len(carrier.left)
        print(file=sys.stderr)
        carrier.throttle.end(but=[topic for topic, _ in carrier.under_way])
        say(
            f"{len(carrier.done)} partitions have moved; {begun} go on moving without this command,"
            f" {not_begun} were not begun. {CANCEL} stops those that go on."
        )
        raise
    carrier.throttle.end()
    for move, why in carrier.refused:
        print(f"fencepost: {move.topic}-{move.partition} stays: {why}", file=sys.stderr)
    copied = show_size(sum(move.bytes_copied for move in carrier.done))
    count = len(carrier.done)
    say(f"{count} partition{'' if count == 1 else 's'} moved, {copied} copied")
    return not carrier.refused
