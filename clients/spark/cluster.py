"""What the driver asks the cluster before it plans: which partitions there are, and where they begin and end.

INVARIANT  an end of what may be read is one that `read_committed` readers reach.
PREVENTS   a task that waits at an open transaction for an offset that it was told to read up to.
PROVED BY  tests/spark/test_spark_reading.py::test_a_batch_ends_before_an_open_transaction
           tests/spark/test_spark_range_bounds.py::test_an_end_before_what_was_read_is_asked_of_other_brokers
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from types import MappingProxyType
from typing import Final

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ClusterMetadata, ListOffsetsResultInfo, OffsetSpec

from ..transactional import asking_others
from ..transactional.asking_again import (
    PAUSE_S,
    raise_unless_passing,
    retrying_for,
    who_was_asked,
)
from ..transactional.asking_others import each_to_ask
from .listings import Listings, Topics, together, topics_in
from .offsets import EARLIEST, INTERNAL_TOPICS, LATEST, Offsets, Place, TopicIds
from .options import BOOTSTRAP, Bound, ReadOptions
from .topic_ids import ASK_S, TRIES_S, ids_of, told_by_most

LOOKS_MIN: Final = 3  # at all brokers
NOTHING_READ: Final[Mapping[Place, int]] = MappingProxyType({})
NOTHING_NOTED: Final[Mapping[str, str]] = MappingProxyType({})
# So often what such a broker may say is heard; then a new client asks whichever broker it meets.
REFUSALS: Final = 5
NOT_THERE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
STALE: Final = (*NOT_THERE, KafkaError._UNKNOWN_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE)
# When none of the partitions that were asked for had a leader for as long as one question takes.
NO_LEADERS: Final = KafkaError._NOENT
NO_SUCH_OFFSET: Final = -1  # the answer for a time after the youngest record
# Of a consumer, which an admin client is not asked to know.
READERS_OWN: Final = ("isolation.level", "group.id", "fetch.", "queued.", "max.poll.", "check.crcs")


class NotReached(ConnectionError):
    """Who was asked, and what there is to look at."""


class WrongTopic(ValueError):
    """What was asked for is not there: its name, and what is."""


class Vanished(WrongTopic):
    """It was there when the topics were listed, and went before its offsets were asked for."""


def _has(found: Topics, topics: Iterable[str], places: Iterable[Place]) -> bool:
    return all(topic in found for topic in topics) and all(
        partition in found.get(topic, ()) for topic, partition in places
    )


def _told(answer: "Future[ListOffsetsResultInfo]") -> int:
    """Librdkafka gives -1001, and no error, where a leader went away before it answered: a batch would end there."""
    offset = int(answer.result().offset)
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "its leader did not answer"))
    return offset


def _refusals(code: int) -> int:
    """Who finds no leader may have waited for as long as a question takes, at one broker that does not know the partition."""
    return REFUSALS if code == NO_LEADERS else int(code in STALE)


class Cluster:
    """Made in a process of Spark's driver, used by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._settings = {k: v for k, v in options.client.items() if not k.startswith(READERS_OWN)}
        self._admin = AdminClient(self._settings)
        self._listings = Listings(self._settings)
        is_committed = options.client["isolation.level"] == "read_committed"
        self._isolation = (
            IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        )
        self.cluster_id = ""

    def places(self, known: Collection[Place] = (), *, of_all: bool = False) -> list[Place]:
        """The partitions of what was subscribed to, as they are now. `known` are some that were there before; `of_all` is for who
        does not look again soon."""
        options = self._options
        topics = options.topics or tuple(sorted({topic for topic, _ in options.places}))
        found = self._topics(topics, {*options.places, *known}, of_all=of_all)
        if options.pattern:
            pattern = re.compile(options.pattern)
            names = sorted(found.keys() - INTERNAL_TOPICS)
            topics = tuple(each for each in names if pattern.fullmatch(each))
        for topic in topics:
            if topic not in found:
                raise WrongTopic(
                    f"there is no topic {topic} in the cluster at {options.client[BOOTSTRAP]}: create "
                    "it, or correct subscribe or assign"
                )
        everything = [(topic, each) for topic in topics for each in found[topic]]
        if not options.places:
            return everything
        gone = sorted(set(options.places) - set(everything))
        if gone:
            topic, partition = gone[0]
            raise WrongTopic(
                f"there is no partition {topic}-{partition}: {topic} has {len(found[topic])}; correct assign"
            )
        return list(options.places)

    def _topics(self, topics: Iterable[str], places: Iterable[Place], *, of_all: bool) -> Topics:
        """1. One broker is asked. It may be cut off from the others, and not know what was made since.
        2. What should be there and is not is looked for at others, until it is found or none of them has known it for `GONE_S`.
        3. What nobody has seen yet is missed by nobody: who needs all of it asks others anyway, once.
        """
        seen = self._seen()
        lists = [topics_in(seen)]
        found = together(self._listings.believed(lists))
        if not of_all and _has(found, topics, places):
            return found
        for _ in each_to_ask(LOOKS_MIN):
            lists += self._listings.of_all(seen)
            found = together(self._listings.believed(lists))
            if _has(found, topics, places):
                break
        self._admin = AdminClient(self._settings)
        return found

    def _seen(self) -> ClusterMetadata:
        try:
            seen = retrying_for(TRIES_S, lambda: self._admin.list_topics(timeout=ASK_S))
        except KafkaException as trouble:
            error, servers = trouble.args[0], self._options.client[BOOTSTRAP]
            if whom := who_was_asked(error, servers, f"kafka.{BOOTSTRAP}"):
                raise NotReached(f"{error.name()}{whom}") from trouble
            raise
        self.cluster_id = seen.cluster_id or ""
        return seen

    def topic_ids(
        self, topics: Iterable[str], noted: Mapping[str, str] = NOTHING_NOTED
    ) -> TopicIds:
        """1. One broker is asked. It may be cut off from the others, and tell the id of a topic that is no more.
        2. Of one that is another than `noted` says, or is noted for the first time, all are asked. Who is only late to hear of it has
           heard when the time is over.
        3. If some still say what was noted, what most say holds: whoever is cut off is in the minority.
        4. Where most don't answer, all who do may be cut off, and this client with them: then nobody knows.
        """
        found = ids_of(self._admin, topics)
        news = [topic for topic in found if noted.get(topic) != found[topic]]
        if not news:
            return found
        same = [topic for topic in news if topic in noted]
        told: list[TopicIds] = []
        for _ in each_to_ask(LOOKS_MIN):
            told, asked = self._listings.ids_of_all(self._seen(), news)
            are_most = 2 * len(told) > asked or not same
            if are_most and not any(
                each.get(topic) == noted[topic] for each in told for topic in same
            ):
                break
        self._admin = AdminClient(self._settings)
        if not are_most:
            raise NotReached(
                f"{len(told)} of {asked} brokers answer, and who was asked says that {', '.join(same)} was deleted and created again."
                " One that is cut off from the others would say so, too: run the query again when most of them can be reached."
            )
        return found | told_by_most(noted, told, news)

    def ends(
        self, places: Iterable[Place], at_least: Mapping[Place, int] = NOTHING_READ
    ) -> Offsets:
        """Of one that is said to end before what was read of it a leader may have spoken that was deposed, and has not heard of
        it: others are asked. Ends move on, so of two answers the further one is the newer."""
        found = self._ask(dict.fromkeys(places, OffsetSpec.latest()))
        for _ in each_to_ask(LOOKS_MIN):
            behind = [each for each in found if found[each] < at_least.get(each, 0)]
            if not behind:
                break
            self._admin = AdminClient(self._settings)
            again = self._ask(dict.fromkeys(behind, OffsetSpec.latest()))
            found |= {each: max(found[each], again[each]) for each in behind}
        return found

    def starts(self, places: Iterable[Place]) -> Offsets:
        return self._ask(dict.fromkeys(places, OffsetSpec.earliest()))

    def resolve(self, side: str, bound: Bound, places: list[Place]) -> Offsets:
        """A bound as offsets of all these partitions."""
        named, said = bound.named, bound.said_as(side.removesuffix("Offsets"))
        if named is not None and named != frozenset(places):
            missing = sorted(set(places) - named) or sorted(named - set(places))
            what = "is not named" if set(places) - named else "is not read here"
            raise WrongTopic(
                f"{said} must name each partition that is read, and no other: {missing[0][0]}-{missing[0][1]} {what}"
            )
        if bound.timestamp_ms is not None:
            times: Offsets = dict.fromkeys(places, bound.timestamp_ms)
            return self._at(said, times, or_latest=bound.or_latest)
        if bound.timestamps_ms:
            times = bound.timestamps_ms
            return self._at(said, times, or_latest=bound.or_latest)
        wanted = {
            place: bound.offsets[place] if bound.everywhere is None else bound.everywhere
            for place in places
        }
        early = [place for place in places if wanted[place] == EARLIEST]
        late = [place for place in places if wanted[place] == LATEST]
        return {
            **wanted,
            **(self.starts(early) if early else {}),
            **(self.ends(late) if late else {}),
        }

    def _at(self, side: str, times: Mapping[Place, int], *, or_latest: bool) -> Offsets:
        found = self._ask({place: OffsetSpec.for_timestamp(times[place]) for place in times})
        none = [place for place in found if found[place] == NO_SUCH_OFFSET]
        if none and not or_latest:
            topic, partition = none[0]
            raise WrongTopic(
                f"{topic}-{partition} has no record from {times[none[0]]} ms on, which {side} asks for: say an earlier "
                "time, or startingOffsetsByTimestampStrategy=latest"
            )
        return {**found, **(self.ends(none) if none else {})}

    def _ask(self, specs: Mapping[Place, OffsetSpec]) -> Offsets:
        """Each partition's leader; those whose leader is away are asked again."""
        found: Offsets = {}
        deadline, gone_at = time.monotonic() + TRIES_S, time.monotonic() + asking_others.GONE_S
        left, refusals = dict(specs), 0
        while left:
            asked = {TopicPartition(*place): left[place] for place in left}
            futures = self._admin.list_offsets(
                asked, isolation_level=self._isolation, request_timeout=ASK_S
            )
            refused = 0
            for partition in futures:
                place = (partition.topic, partition.partition)
                try:
                    found[place] = _told(futures[partition])
                    del left[place]
                except KafkaException as trouble:
                    self._raise_unless_passing(place, trouble, deadline, gone_at)
                    refused = max(refused, _refusals(trouble.args[0].code()))
            refusals += refused
            if refusals >= REFUSALS:
                self._admin, refusals = AdminClient(self._settings), 0
            if left:
                time.sleep(PAUSE_S)
        return {place: found[place] for place in specs}

    def _raise_unless_passing(
        self, place: Place, trouble: KafkaException, deadline: float, gone_at: float
    ) -> None:
        """Which partition it was, and who was asked: of both librdkafka says nothing."""
        error, which = trouble.args[0], f"{place[0]}-{place[1]}"
        if error.code() in NOT_THERE:
            if time.monotonic() > gone_at:
                self._listings.has_vanished(place)
                raise Vanished(f"{which} is not there any more: was it deleted?") from trouble
        elif error.code() != NO_LEADERS or time.monotonic() > deadline:
            try:
                raise_unless_passing(trouble, deadline)
            except KafkaException:
                raise NotReached(self._why_no_offset(which, error)) from trouble

    def _why_no_offset(self, which: str, error: KafkaError) -> str:
        return (
            f"{which}: its leader does not say where it begins and ends: {error.name()}: {error.str()} "
            f"(asked by way of {self._options.client[BOOTSTRAP]}, kafka.{BOOTSTRAP}). Are all nodes there?"
        )
