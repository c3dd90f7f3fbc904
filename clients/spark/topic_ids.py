"""Which topic an offset is of: a name may be given again, an id is not.

INVARIANT  the two ends of what is read of a topic are of one topic, and not of two that had its name one after the other.
PREVENTS   a topic that was made anew and has outgrown its old offset being read from the middle, and nobody being told.
PROVED BY  tests/spark/test_spark_topic_ids.py::test_a_topic_made_anew_that_has_outgrown_its_offset_is_told
           tests/spark/test_spark_stale_topic_ids.py::test_a_topic_is_not_read_from_its_beginning_because_one_broker_tells_its_old_id

Of two ids nothing says which is the newer. A broker that is cut off from its cluster tells the one that it knows: so of a topic that
is said to be another one all brokers are asked, and what most of them say holds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from ..transactional.asking_again import retrying_for
from . import data_loss
from .offsets import TopicIds

ASK_S: Final = 20.0
TRIES_S: Final = 60.0  # a leader that is away comes back, or another one is elected
NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # what brokers say that have none: Kafka before 2.8
# A topic that went, or that this user may not see any more, has no id at this moment; who reads it says why.
UNSEEN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
ADVICE: Final = (
    f"{data_loss.MISSED} Start a new query (with a new checkpoint), or say failOnDataLoss=false to read the new topic from its "
    "beginning."
)


def ids_of(admin: AdminClient, topics: Iterable[str]) -> TopicIds:
    """What tells a topic from the next one of its name. Without those that the brokers have none for; none is made by asking."""
    names = sorted(set(topics))
    if not names:
        return {}
    found: TopicIds = retrying_for(TRIES_S, lambda: described(admin, names, ASK_S))
    return found


def described(admin: AdminClient, names: Sequence[str], within_s: float) -> TopicIds:
    """As whoever is asked knows them."""
    found: TopicIds = {}
    asked = admin.describe_topics(TopicCollection(list(names)), request_timeout=within_s)
    for name in names:
        try:
            topic_id = str(asked[name].result().topic_id)
        except KafkaException as trouble:
            if trouble.args[0].code() not in UNSEEN:
                raise
            continue
        if topic_id != NO_ID:
            found[name] = topic_id
    return found


def made_anew(noted: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One without an id on either side is taken for the same: it is of an older checkpoint, or of old brokers."""
    return [topic for topic in sorted(now) if noted.get(topic, now[topic]) != now[topic]]


def told_by_most(
    noted: Mapping[str, str], told: Sequence[TopicIds], topics: Iterable[str]
) -> TopicIds:
    """Another id than the noted one only if more than half of those say it who know one; without a topic of which nobody does."""
    found: TopicIds = {}
    for topic in topics:
        ids = Counter(each[topic] for each in told if topic in each)
        if ids:
            [(most, count)] = ids.most_common(1)
            found[topic] = most if 2 * count > ids.total() else noted.get(topic, most)
    return found


def report(
    noted: Mapping[str, str], now: Mapping[str, str], *, fails: bool, going_on: str
) -> list[str]:
    """Those that were made anew, each named; raises for the first one."""
    anew = made_anew(noted, now)
    for topic in anew:
        data_loss.report(
            f"the topic {topic} was deleted and created again: this query has offsets of the one with the id "
            f"{noted[topic]}, and {topic} has the id {now[topic]} now. They mean nothing there.",
            fails=fails,
            advice=ADVICE,
            going_on=going_on,
        )
    return anew
