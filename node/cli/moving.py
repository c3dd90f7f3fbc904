"""Carrying out a plan: orders are given a few at a time, and what becomes of them is shown until all are done."""

import sys
from collections import deque
from collections.abc import Callable, Sequence
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
CANCEL: Final = "`fencepost node cancel-moves`"

Key = tuple[str, int]


class Carrier:
    """Gives the orders of one plan. `left` are those that were not given yet, `under_way` those not done yet."""

    def __init__(self, wire: Wire, moves: Sequence[Move], parallel: int) -> None:
        self.wire = wire
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
        orders: list[Move] = []
        while self.left and len(self.under_way) + len(orders) < self._parallel:
            orders.append(self.left.popleft())
        answers = order(self.wire, [(m.topic, m.partition, m.after) for m in orders])
        for move in orders:
            why = answers[move.topic, move.partition]
            if why is None:
                self.under_way[move.topic, move.partition] = move
            else:
                self.refused.append((move, why))

    def _look(self) -> None:
        if not self.under_way:
            return
        moving = reassigning(self.wire)
        for key in [key for key in self.under_way if key not in moving]:
            self.done.append(self.under_way.pop(key))


def order(
    wire: Wire, orders: Sequence[tuple[str, int, Sequence[int] | None]]
) -> dict[Key, str | None]:
    """Give orders; None cancels. What was refused, and why."""
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
                if each.error_code is not ErrorCode.none:
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


def set_throttle(wire: Wire, topics: Sequence[str], bytes_per_s: int | None) -> None:
    """Of what moves: no node sends or takes more. None lifts it (KIP-73)."""
    rate = None if bytes_per_s is None else str(bytes_per_s)
    which = None if bytes_per_s is None else "*"
    resources = [
        _setting(BROKERS, "", {f"{side}.replication.throttled.rate": rate for side in SIDES}),
        *(
            _setting(
                TOPIC, topic, {f"{side}.replication.throttled.replicas": which for side in SIDES}
            )
            for topic in topics
        ),
    ]
    reply = wire.ask(ApiKey.incremental_alter_configs, validate_only=False, resources=resources)
    for answer in reply.responses:
        gone = answer.error_code is ErrorCode.unknown_topic_or_partition
        if answer.error_code is not ErrorCode.none and not gone:
            raise Failed(f"the throttle was refused: {answer.error_message}")


def _setting(kind: int, name: str, values: dict[str, str | None]) -> dict[str, Any]:
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
        say(
            f"{len(carrier.done)} partitions have moved; {begun} go on moving without this command,"
            f" {not_begun} were not begun. {CANCEL} stops those that go on."
        )
        raise
    for move, why in carrier.refused:
        print(f"fencepost: {move.topic}-{move.partition} stays: {why}", file=sys.stderr)
    copied = show_size(sum(move.bytes_copied for move in carrier.done))
    count = len(carrier.done)
    say(f"{count} partition{'' if count == 1 else 's'} moved, {copied} copied")
    return not carrier.refused
