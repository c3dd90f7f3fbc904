"""What librdkafka's admin client tells of a cluster, for commands that ask by it: no node runs."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigSource, OffsetSpec

Answer = SimpleNamespace
NODE = Answer(id=1, host="127.0.0.1", port=9001)
NOT_ASKED = -1001  # what librdkafka gives for a partition whose leader did not answer in time


def done(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


def refusal(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


class ToldAdmin:
    """Topic orders has two partitions, each from 3 to 10; the leaders of `silent` do not answer. Group g has read to 8."""

    def __init__(self) -> None:
        self.topics = {"orders": (0, 1)}
        self.silent: set[int] = set()
        self.leaderless: set[int] = set()
        self.positions: Any = {("orders", 0): 8, ("orders", 1): 8}
        self.state = ConsumerGroupState.EMPTY
        self.settings: dict[str, tuple[str, ConfigSource]] = {}
        self.after_alter: dict[str, tuple[str, ConfigSource]] | None = None
        self.altered: list[Any] = []
        self.moved: list[TopicPartition] = []

    def list_topics(self, timeout: float = 0, topic: str | None = None) -> Any:
        topics = {}
        for name, numbers in self.topics.items():
            partitions = {
                each: Answer(id=each, leader=-1 if each in self.leaderless else 1, replicas=[1])
                for each in numbers
            }
            topics[name] = Answer(topic=name, partitions=partitions)
        return Answer(topics=topics)

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, "Future[Any]"]:
        found = {}
        for name in topics.topic_names:
            partitions = [
                Answer(
                    id=each,
                    leader=None if each in self.leaderless else NODE,
                    replicas=[NODE],
                    isr=[NODE],
                )
                for each in self.topics[name]
            ]
            found[name] = done(Answer(name=name, topic_id="id", partitions=partitions))
        return found

    def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, "Future[Any]"]:
        found = {}
        for place, spec in wanted.items():
            is_first = type(spec) is type(OffsetSpec.earliest())
            offset = NOT_ASKED if place.partition in self.silent else 3 if is_first else 10
            if place.topic not in self.topics:
                found[place] = done(refusal(KafkaError.UNKNOWN_TOPIC_OR_PART))
            else:
                found[place] = done(Answer(offset=offset))
        return found

    def list_consumer_groups(self, **_: Any) -> "Future[Any]":
        row = Answer(group_id="readers", state=self.state, type=Answer(name="CLASSIC"))
        return done(Answer(valid=[row], errors=[]))

    def describe_consumer_groups(self, names: list[str], **_: Any) -> dict[str, "Future[Any]"]:
        return {
            name: done(
                Answer(
                    state=self.state if name == "readers" else ConsumerGroupState.DEAD,
                    members=[],
                    coordinator=NODE,
                )
            )
            for name in names
        }

    def list_consumer_group_offsets(
        self, requests: list[Any], **_: Any
    ) -> dict[str, "Future[Any]"]:
        name = requests[0].group_id
        if isinstance(self.positions, BaseException):
            return {name: done(self.positions)}
        stored = self.positions if name == "readers" else {}
        rows = [TopicPartition(*place, offset) for place, offset in stored.items()]
        return {name: done(Answer(topic_partitions=rows))}

    def alter_consumer_group_offsets(self, requests: list[Any]) -> dict[str, "Future[Any]"]:
        self.moved = requests[0].topic_partitions
        return {requests[0].group_id: done(Answer(topic_partitions=self.moved))}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, "Future[Any]"]:
        entries = {
            name: Answer(
                value=value,
                source=source.value,
                is_sensitive=False,
                is_default=source is ConfigSource.DEFAULT_CONFIG,
            )
            for name, (value, source) in self.settings.items()
        }
        return {resources[0]: done(entries)}

    def incremental_alter_configs(self, resources: list[Any]) -> dict[Any, "Future[Any]"]:
        self.altered += resources[0].incremental_configs
        if self.after_alter is not None:
            self.settings = self.after_alter
        return {resources[0]: done(None)}
