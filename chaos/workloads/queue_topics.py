"""The keys of the queue workload: their names, the topics that they are in, and where they end."""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from .txn_keys import key_of
from .txn_process import CLIENT, place_of

PARTITIONS: Final = 2  # of a topic
ASK_S: Final = 5.0


def topic_of(key: int) -> str:
    return f"t{key // PARTITIONS}"


def key_name(key: int) -> str:
    return key_of(topic_of(key), key % PARTITIONS)


def keys_beside(keys: Sequence[int]) -> list[str]:
    """Who subscribes to topics is given all of their partitions."""
    topics = sorted({key // PARTITIONS for key in keys})
    return [key_name(topic * PARTITIONS + at) for topic in topics for at in range(PARTITIONS)]


def number_of(name: str) -> int:
    """The key of a name."""
    topic, _, partition = name.rpartition("-")
    return int(topic.removeprefix("t")) * PARTITIONS + int(partition)


class Topics:
    """Made when they are first needed."""

    def __init__(self, bootstrap: str, copies: int) -> None:
        self._bootstrap = bootstrap
        self._copies = copies
        self._there: set[str] = set()

    def _admin(self) -> AdminClient:
        # A client asks with the leader epoch that it once heard of, whatever it is told: so a new one each time.
        settings = {"bootstrap.servers": self._bootstrap, "error_cb": lambda _: None}
        return AdminClient(CLIENT | settings)

    def ensure(self, key: int) -> bool:
        """Whether the topic of a key is there."""
        name = topic_of(key)
        if name not in self._there:
            wanted = NewTopic(name, PARTITIONS, self._copies)
            try:
                admin = self._admin()  # named, or it is gone before it has answered
                admin.create_topics([wanted], request_timeout=ASK_S)[name].result(ASK_S)
            except KafkaException as refused:
                if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    return False
            except TimeoutError:
                return False
            self._there.add(name)
        return True

    def ends(
        self,
        names: Sequence[str],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[str, int]:
        """Of those whose leader answers."""
        asked = {place_of(name): OffsetSpec.latest() for name in names}
        admin = self._admin()
        answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=ASK_S)
        found = {}
        for place, answer in answers.items():
            try:
                offset = answer.result(ASK_S).offset
            except (KafkaException, TimeoutError):
                continue
            # librdkafka says -1001, and no error, where a leader went away before it answered.
            if offset >= 0:
                found[key_of(place.topic, place.partition)] = offset
        return found
