"""Carrying out a plan: orders are given a few at a time, and what becomes of them is shown until all are done.

INVARIANT  a move is done when the partition's replicas are where the plan has them, and not when it moves no more.
PREVENTS   "node 3 is empty", after somebody has cancelled its moves.
PROVED BY  tests/node/test_moving.py::test_a_move_that_was_cancelled_is_not_done
"""

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey

from ..few import few
from .checked import Failed
from .cluster import say as tell
from .leading import of_now
from .move_plan import Move
from .output import Progress, show_size
from .throttling import PASSING, Key, Refused, Throttle
from .wire import ASK_MS, Wire

LOOK_S: Final = 0.25
OUT_LOOK_S: Final = 2.0  # while nobody answers
OUTAGE_S: Final = 300.0  # a machine has come back by then
STANDS_S: Final = 60.0  # without anything that has arrived
ORDERS_MAX: Final = 500  # of one request
PREFERRED: Final = 0
LEADS: Final = (ErrorCode.none, ErrorCode.election_not_needed)
DONE: Final = (ErrorCode.none, ErrorCode.no_reassignment_in_progress)  # that arrived just before
CANCEL: Final = "`fencepost node cancel-moves`"

Replicas = tuple[int, ...] | None  # None: there is no such partition


class Carrier:
    """Gives the orders of one plan. `left` are those that were not given yet, `under_way` those not done yet."""

    def __init__(
        self, wire: Wire, moves: Sequence[Move], parallel: int, throttle: Throttle
    ) -> None:
        self.wire = wire
        self.throttle = throttle
        self.left = deque(moves)
        self.under_way: dict[Key, Move] = {}
        self.done: list[Move] = []
        self.refused: list[tuple[Move, str]] = []
        self.given_up = 0  # that were not begun, as others have changed what was
        self._parallel = parallel
        self._total = sum(move.bytes_copied for move in moves)
        self._count = len(moves)
        # Orders that may have been heard, and were not answered.
        self._unanswered: set[Key] = set()
        self._out_since: float | None = None
        self._bar = Progress("moving")
        self._standing = Standing(wire, self._tell)

    def run(self) -> None:
        """Until all is done. A KeyboardInterrupt, or Failed, leaves what is under way under way."""
        while self.left or self.under_way:
            self.through_outages(self._step)
            copied = sum(move.bytes_copied for move in self.done)
            share = copied / self._total if self._total else len(self.done) / self._count
            self._bar.at(len(self.done), share)
            if self.left or self.under_way:
                self.wire.sleep(LOOK_S)
        self._bar.end()

    def _tell(self, sentence: str) -> None:
        self._bar.end()  # it is drawn again
        tell(sentence)

    def through_outages(self, step: Callable[[], None]) -> None:
        """Do it, for some minutes again and again while nobody answers: the moves go on all the same."""
        while True:
            try:
                step()
            except Refused:
                raise
            except Failed as failed:
                now = time.monotonic()
                if self._out_since is None:
                    self._out_since = now
                    self._tell(
                        f"{str(failed).rstrip('.')}. What moves goes on; this command waits for"
                        f" {OUTAGE_S / 60:.0f} minutes at most, Ctrl-C ends it."
                    )
                elif now - self._out_since > OUTAGE_S:
                    raise
                self.wire.sleep(OUT_LOOK_S)
            else:
                if self._out_since is not None:
                    self._out_since = None
                    self._tell("the cluster answers again")
                return

    def _step(self) -> None:
        self._order()
        self._look()
        self._standing.look(self.under_way, len(self.done))

    def _order(self) -> None:
        room = self._parallel - len(self.under_way)
        orders = list(islice(self.left, max(0, room)))
        self.throttle.begin([move.topic for move in orders])
        for move in orders:
            self.left.popleft()
            # Whoever is interrupted before the answer is here has given the order all the same.
            self.under_way[move.topic, move.partition] = move
            self._unanswered.add((move.topic, move.partition))
        answers = order(self.wire, [(m.topic, m.partition, m.after) for m in orders])
        self._unanswered -= answers.keys()
        for move in orders:
            why = answers[move.topic, move.partition]
            if why is not None:
                del self.under_way[move.topic, move.partition]
                self.refused.append((move, why))

    def _look(self) -> None:
        """What moves no more has arrived, or somebody has stopped it."""
        moving = reassigning(self.wire)
        self._unanswered -= moving.keys()
        still = [key for key in self.under_way if key not in moving]
        found = replicas_of(self.wire, still)
        if any(found[key] not in (None, self.under_way[key].after) for key in still):
            # Or whoever was asked does not know yet that it moves.
            moving, found = of_now(
                self.wire, lambda: (reassigning(self.wire), replicas_of(self.wire, still))
            )
        for key in still:
            if key not in moving:
                self._stands_still(key, found[key])

    def _stands_still(self, key: Key, replicas: Replicas) -> None:
        move = self.under_way.pop(key)
        if replicas == move.after:
            self.done.append(move)
        elif key in self._unanswered:
            self.left.appendleft(move)  # the order was not heard
        elif replicas is not None:
            where = ",".join(map(str, replicas))
            self.refused.append((move, f"it is on {where}, cancelled or changed by others"))
            self.given_up += len(self.left)
            self.left.clear()  # whoever stopped that one means these as well
        self._unanswered.discard(key)


class Standing:
    """Says once, for those that arrive nowhere, which they are, and that nobody is there where they go."""

    def __init__(self, wire: Wire, tell: Callable[[str], None]) -> None:
        self._wire = wire
        self._tell = tell
        self._done = -1
        self._look_at = 0.0
        self._said: set[str] = set()

    def look(self, under_way: Mapping[Key, Move], done: int) -> None:
        now = time.monotonic()
        if done != self._done:
            self._done, self._look_at = done, now + STANDS_S
        if now < self._look_at or not under_way:
            return
        self._look_at = now + STANDS_S
        brokers = self._wire.ask(ApiKey.describe_cluster, include_fenced_brokers=True).brokers
        up = {each.broker_id for each in brokers if not getattr(each, "is_fenced", False)}
        down = sorted({node for each in under_way.values() for node in each.added} - up)
        for node in down:
            stand = [key for key, move in under_way.items() if node in move.added]
            self._say(
                f"node {node} is down, and {_named(stand)} can't arrive there. They go on when it is back;"
                f" {CANCEL} gives them up."
            )
        if not down:
            self._say(
                f"nothing has arrived for {STANDS_S:.0f} s; still under way: {_named(under_way)}. The nodes that"
                " they go to are up."
            )

    def _say(self, sentence: str) -> None:
        kind = sentence.partition(" is down")[0].partition(";")[0]
        if kind not in self._said:
            self._said.add(kind)
            self._tell(sentence)


def _named(keys: Iterable[Key]) -> str:
    return few([f"{topic}-{partition}" for topic, partition in keys])


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
            kind = Failed if reply.error_code in PASSING else Refused
            raise kind(f"the cluster refused: {reply.error_code.name}: {reply.error_message}")
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


def replicas_of(wire: Wire, keys: Iterable[Key]) -> dict[Key, Replicas]:
    """Where these are, one question each: of a topic of thousands only a few are asked for at a time."""
    found: dict[Key, Replicas] = {}
    for topic, partition in keys:
        page = wire.ask(
            ApiKey.describe_topic_partitions,
            topics=[{"name": topic}],
            response_partition_limit=1,
            cursor={"topic_name": topic, "partition_index": partition},
        )
        found[topic, partition] = None
        for each in (each for told in page.topics for each in told.partitions):
            if each.partition_index == partition:
                found[topic, partition] = tuple(each.replica_nodes)
    return found


def elect_preferred(wire: Wire, keys: Sequence[Key]) -> dict[Key, str]:
    """Those who can't lead now don't, and why; the cluster tries again by itself."""
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    reply = wire.ask(
        ApiKey.elect_leaders,
        timeout=ASK_MS,
        election_type=PREFERRED,
        topic_partitions=[{"topic": name, "partitions": each} for name, each in topics.items()],
    )
    refused: dict[Key, str] = {}
    # Version 0 has none.
    if (code := getattr(reply, "error_code", ErrorCode.none)) is not ErrorCode.none:
        refused = dict.fromkeys(keys, code.name.upper())
    for answered in reply.replica_election_results:
        for each in answered.partition_result:
            if each.error_code not in LEADS:
                why = each.error_message or each.error_code.name.upper()
                refused[answered.topic, each.partition_id] = why
    return refused


def carry_out(carrier: Carrier, *, say: Callable[[str], None]) -> bool:
    """Whether all of it happened. Ctrl-C, or an outage, leaves what has begun going on, and says how it is cancelled."""
    try:
        carrier.run()
        carrier.through_outages(carrier.throttle.end)
    except (KeyboardInterrupt, Failed) as ended:
        if isinstance(ended, KeyboardInterrupt):
            print(file=sys.stderr)
        with contextlib.suppress(Failed):  # then it stays, which is said
            carrier.throttle.end(but=[topic for topic, _ in carrier.under_way])
        say(_left_behind(carrier))
        raise
    for move, why in carrier.refused:
        tell(f"{move.topic}-{move.partition} stays: {why}")
    if carrier.given_up:
        tell(f"{carrier.given_up} more were not begun")
    copied = show_size(sum(move.bytes_copied for move in carrier.done))
    count = len(carrier.done)
    say(f"{count} partition{'' if count == 1 else 's'} moved, {copied} copied")
    return not carrier.refused


def _left_behind(carrier: Carrier) -> str:
    begun, not_begun = len(carrier.under_way), len(carrier.left)
    sentence = (
        f"{len(carrier.done)} partitions have moved; {begun} go on moving without this command,"
        f" {not_begun} were not begun. {CANCEL} stops those that go on."
    )
    if carrier.throttle.is_set:
        sentence += f" The throttle stays, for all that is copied: {CANCEL} lifts it, also when all have arrived."
    return sentence
