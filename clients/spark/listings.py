"""Which partitions there are, as several brokers know it: one that is cut off from its cluster still answers, with what was.

INVARIANT  a partition is there if any broker that was asked lists it, unless its leader has said that it is not.
PREVENTS   a partition that is left out, or told as lost, because the one broker that was asked has not heard of it.
PROVED BY  tests/spark/test_spark_listings.py::test_a_partition_that_any_broker_lists_is_there

Partitions of a topic are added and never taken away. So of two lists of one topic the longer one is the newer, and together they
miss nothing. A topic that was deleted is in the lists of those that have not heard of that: whoever lists a partition that its
leader does not know is not believed, if anybody else is there.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from .client_settings import BOOTSTRAP
from .offsets import Place, TopicIds
from .topic_ids import described

Said = TypeVar("Said")
Topics = dict[str, list[int]]  # partitions

LIST_S: Final = 3.0  # for each, all at once
# Where fewer are said, as one name for all, brokers that these name are asked, too.
ADDRESSES_MIN: Final = 3
ADDRESSES_MAX: Final = 6
# So long it is remembered what a leader does not know: a topic may be made again.
VANISHED_S: Final = 60.0

log = logging.getLogger("fencepost.clients")


def topics_in(seen: ClusterMetadata) -> Topics:
    return {name: sorted(seen.topics[name].partitions) for name in sorted(seen.topics)}


def together(lists: list[Topics]) -> Topics:
    found: dict[str, set[int]] = {}
    for each in lists:
        for topic in each:
            found.setdefault(topic, set()).update(each[topic])
    return {topic: sorted(found[topic]) for topic in sorted(found)}


def _named(seen: ClusterMetadata) -> list[str]:
    brokers = [seen.brokers[each] for each in sorted(seen.brokers)]
    return list(dict.fromkeys(f"{each.host}:{each.port}" for each in brokers))


class Listings:
    """Asked for by new clients, one for each address: librdkafka's own choice might be the same broker again."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        # Of an address where nobody answers it would say so a few times.
        self._settings = {"log_level": "2", **settings}
        self._vanished: dict[Place, float] = {}

    def has_vanished(self, place: Place) -> None:
        """Its leader says so."""
        self._vanished[place] = time.monotonic()

    def of_all(self, seen: ClusterMetadata) -> list[Topics]:
        """Those that answer soon."""
        addresses = self._addresses(seen)
        return self._each(addresses, lambda admin: topics_in(admin.list_topics(timeout=LIST_S)))

    def ids_of_all(
        self, seen: ClusterMetadata, topics: Sequence[str]
    ) -> tuple[list[TopicIds], int]:
        """As each of those knows them that answer soon, and how many were asked. They are counted, so each is asked once: by the name
        that brokers have for it. A bootstrap address may be a second name of one, or one for all."""
        addresses = _named(seen)[:ADDRESSES_MAX] or self._said()
        told = self._each(addresses, lambda admin: described(admin, topics, LIST_S))
        return told, len(addresses)

    def _each(self, addresses: list[str], ask: Callable[[AdminClient], Said]) -> list[Said]:
        with ThreadPoolExecutor(len(addresses)) as pool:
            told = pool.map(lambda each: self._of(each, ask), addresses)
            return [found for found in told if found is not None]

    def believed(self, lists: list[Topics]) -> list[Topics]:
        now_s = time.monotonic()
        gone = [each for each in self._vanished if now_s - self._vanished[each] < VANISHED_S]
        newer = [
            each
            for each in lists
            if not any(partition in each.get(topic, ()) for topic, partition in gone)
        ]
        return newer or lists

    def _addresses(self, seen: ClusterMetadata) -> list[str]:
        found = self._said()
        others = [each for each in _named(seen) if each not in found]
        return [*found, *others[: max(ADDRESSES_MIN - len(found), 0)]]

    def _said(self) -> list[str]:
        said = [each.strip() for each in self._settings[BOOTSTRAP].split(",")]
        return list(dict.fromkeys(each for each in said if each))[:ADDRESSES_MAX]

    def _of(self, address: str, ask: Callable[[AdminClient], Said]) -> Said | None:
        try:
            return ask(AdminClient({**self._settings, BOOTSTRAP: address}))
        except KafkaException as trouble:
            log.info("%s does not say which topics there are: %s", address, trouble)
            return None
