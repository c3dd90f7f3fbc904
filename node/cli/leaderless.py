"""Why nothing moves: a client waits in silence for a partition that nobody leads, so the commands look and say so."""

import argparse
import contextlib
import time
from collections.abc import Collection
from typing import Any, Final

from .checked import Failed
from .cluster import say
from .kafka_client import KafkaException
from .printable import quoted

STILL_S: Final = 3.0  # an election takes less
AGAIN_S: Final = 30.0  # nobody may have led only a while after everything stood still
LOOK_S: Final = 5.0  # how long a broker may take to say who leads
OFFSETS_TOPIC: Final = "__consumer_offsets"


class Stall:
    """`look` while nothing comes: it looks when nothing has come for a while, and says each thing once."""

    def __init__(self, arguments: argparse.Namespace, admin: Any, doing: str) -> None:
        self._arguments = arguments
        self._admin = admin
        self._doing = doing
        self._said: set[str] = set()
        self.waited_for: list[
            str
        ] = []  # of when it was last looked: without a leader, or all of which nobody knows
        self.moved()

    def moved(self) -> None:
        self._look_at = time.monotonic() + STILL_S

    def look(self, partitions: Collection[int] | None, *, joins: bool = False) -> bool:
        """Whether it goes on only when a person does something. `partitions` are those that are waited for (None: all).

        `joins`: a group is being joined, which a partition of its positions that nobody leads keeps from it.
        """
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + AGAIN_S
        try:
            topics = self._admin.list_topics(timeout=LOOK_S).topics
        except KafkaException:
            return False  # that no broker answers is said elsewhere
        name = self._arguments.topic
        found = _leaderless(topics, name)
        every = sorted(topics[name].partitions) if name in topics else []
        if partitions is not None:
            found = [each for each in found if each in partitions]
            every = [each for each in every if each in partitions]
        self.waited_for = [f"{name}-{each}" for each in found or every]
        self._say(name, found, f"nothing can be {self._doing} there")
        if joins:
            self._say(OFFSETS_TOPIC, _leaderless(topics, OFFSETS_TOPIC), "some groups can't begin")
        return bool(found) or self._is_without_majority()

    def _say(self, topic: str, partitions: list[int], means: str) -> None:
        new = [name for each in partitions if (name := f"{topic}-{each}") not in self._said]
        self._said.update(new)
        if new:
            has = "has" if len(new) == 1 else "have"
            say(
                f"{', '.join(new)} {has} no leader: {means}. `fencepost partition list --offline {quoted(topic)}` says why,"
                " and what to do."
            )

    def _is_without_majority(self) -> bool:
        """Then a partition is called that of a leader that is gone, and nobody makes another."""
        from .leading import why_nobody_leads  # as rarely needed as it is slow to import
        from .wire import Wire

        why = None
        with Wire(self._arguments.bootstrap) as wire, contextlib.suppress(Failed):
            why = why_nobody_leads(wire)  # Failed: that no broker answers is said elsewhere
        if why is not None and why not in self._said:
            self._said.add(why)
            say(
                f"{why} Until somebody does, a partition whose leader is down gets no other, and nothing can be"
                f" {self._doing} there."
            )
        return why is not None


def _leaderless(topics: Any, name: str) -> list[int]:
    if name not in topics:
        return []
    return [each.id for each in topics[name].partitions.values() if each.leader < 0]
