"""What becomes of requests to create and delete topics: Kafka's rules in Kafka's words."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ..base.errors import ConfigRefused, ErrorCode
from ..base.ids import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ..metadata.config_def import show_value
from ..metadata.describe import DescribedConfig, describe_topic
from ..metadata.records import NewPartition, TopicCreated, TopicDeleted
from ..metadata.topic_config import check_topic_configs
from ..metadata.topic_names import (
    CLUSTER_METADATA_TOPIC,
    colliding_names,
    may_collide,
    unified,
    why_topic_not_made,
)
from .commands import (
    AutoCreateTopics,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    TopicRef,
    TopicResult,
)
from .decision import (
    PARTITIONS_PER_REQUEST_MAX,
    TOO_LARGE,
    TOO_MANY_PARTITIONS,
    CommandRefused,
    Decision,
    Scene,
    is_too_long,
)
from .placement_policy import active_brokers, assigned_partition, check_assignment, place

NO_ID: Final = UUID(int=0)
# Of one request's topics so many are told with their settings: between nodes those of one are 7 KB, 0.25 ms to write and twice
# that to read. 10,000 of them held up who decides, and who had asked for longer than a session lasts.
TOLD_WITH_SETTINGS_MAX: Final = 200
_UNKNOWN_TOPIC: Final = "This server does not host this topic-partition."
_UNKNOWN_ID: Final = "This server does not host this topic ID."
DUPLICATE_NAME: Final = "Duplicate topic name."


def failed(name: str | None, refused: CommandRefused, topic_id: UUID | None = None) -> TopicResult:
    return TopicResult(
        name=name,
        topic_id=topic_id,
        error_code=refused.error_code,
        error_message=refused.message,
    )


def twice_in(names: Sequence[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


# --- creating -------------------------------------------------------------------------------------


def decide_create_topics(scene: Scene, command: CreateTopics) -> Decision[list[TopicResult]]:
    twice = twice_in([topic.name for topic in command.topics])
    prohibited = [topic.name for topic in command.topics if topic.name == CLUSTER_METADATA_TOPIC]
    wanted = [
        topic
        for topic in command.topics
        if topic.name not in twice and topic.name not in prohibited
    ]
    creation = _Creation(scene, tells=TOLD_WITH_SETTINGS_MAX)
    refused = _too_much(scene, wanted)
    if refused is not None:
        results = [failed(topic.name, refused) for topic in wanted]
    else:
        results = [creation.result_of(topic) for topic in wanted]
    for name in twice:
        results.append(failed(name, CommandRefused(ErrorCode.invalid_request, DUPLICATE_NAME)))
    if prohibited and CLUSTER_METADATA_TOPIC not in twice:
        why = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        refused = CommandRefused(ErrorCode.invalid_request, why)
        results.append(failed(CLUSTER_METADATA_TOPIC, refused))
    records = [] if command.validate_only else creation.records
    return Decision(
        records=list(records),
        reply=lambda _version: results,
        too_large=lambda refused: [failed(topic.name, refused) for topic in wanted],
    )


def decide_auto_create_topics(
    scene: Scene, command: AutoCreateTopics
) -> Decision[list[TopicResult]]:
    creation = _Creation(scene, tells=0)  # whoever asks looks at the image afterwards
    names = tuple(dict.fromkeys(command.names))
    missing = {name: _automatic(scene, name) for name in names if name not in scene.image.topics}
    refused = _too_much(scene, tuple(missing.values()))
    results = []
    for name in names:
        known = scene.image.topics.get(name)
        if known is not None:
            results.append(TopicResult(name=name, topic_id=known.topic_id))
        elif refused is not None:
            results.append(failed(name, refused))
        else:
            results.append(creation.result_of(missing[name]))
    return Decision(
        records=list(creation.records),
        reply=lambda _version: results,
        too_large=lambda refused: [failed(name, refused) for name in names],
    )


def _automatic(scene: Scene, name: str) -> NewTopic:
    """What Kafka's coordinators ask for their topics; for all others the defaults."""
    settings = scene.settings

    def text(setting: str) -> str:
        return show_value(settings.of(setting)) or ""

    if name == GROUP_OFFSETS_TOPIC:
        return NewTopic(
            name=name,
            num_partitions=settings.integer("offsets.topic.num.partitions"),
            replication_factor=settings.integer("offsets.topic.replication.factor"),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", text("offsets.topic.segment.bytes")),
            ),
        )
    if name == TRANSACTION_STATE_TOPIC:
        return NewTopic(
            name=name,
            num_partitions=settings.integer("transaction.state.log.num.partitions"),
            replication_factor=settings.integer("transaction.state.log.replication.factor"),
            configs=(
                ("unclean.leader.election.enable", "false"),
                ("compression.type", "uncompressed"),
                ("cleanup.policy", "compact"),
                ("min.insync.replicas", text("transaction.state.log.min.isr")),
                ("segment.bytes", text("transaction.state.log.segment.bytes")),
            ),
        )
    return NewTopic(name=name)


def _too_much(scene: Scene, wanted: Sequence[NewTopic]) -> CommandRefused | None:
    default = scene.settings.integer("num.partitions")
    if sum(_count(topic, default) for topic in wanted) > PARTITIONS_PER_REQUEST_MAX:
        return CommandRefused(ErrorCode.policy_violation, TOO_MANY_PARTITIONS)
    if is_too_long(value for topic in wanted for _, value in topic.configs):
        return CommandRefused(ErrorCode.policy_violation, TOO_LARGE)
    return None


def _count(topic: NewTopic, default: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default if topic.num_partitions == -1 else max(topic.num_partitions, 0)


class _Creation:
    """The topics of one request: the records for those that can be, an error for the others."""

    def __init__(self, scene: Scene, *, tells: int) -> None:
        self.scene = scene
        self.tells = tells  # of how many topics the settings, too
        self.records: list[TopicCreated] = []
        self.active = active_brokers(scene.image)
        self.described: dict[tuple[tuple[str, str], ...], tuple[DescribedConfig, ...]] = {}

    @functools.cached_property
    def colliding(self) -> dict[str, str]:
        return colliding_names(self.scene.image.topics)

    def result_of(self, topic: NewTopic) -> TopicResult:
        try:
            created = self._create(topic)
        except CommandRefused as refused:
            return failed(topic.name, refused)
        self.records.append(created)
        return TopicResult(
            name=created.name,
            topic_id=created.topic_id,
            num_partitions=len(created.partitions),
            replication_factor=len(created.partitions[0].replicas),
            configs=self._describe(dict(created.configs))
            if len(self.records) <= self.tells
            else (),
        )

    def _create(self, topic: NewTopic) -> TopicCreated:
        self._check_name(topic.name)
        configs = self._check_configs(topic)
        partitions = self._assigned(topic) if topic.assignments else self._placed(topic)
        return TopicCreated(
            name=topic.name,
            topic_id=self.scene.new_id(),
            partitions=tuple(partitions),
            configs=configs,
        )

    def _check_name(self, name: str) -> None:
        if name in self.scene.image.topics:
            why = f"Topic '{name}' already exists."
            raise CommandRefused(ErrorCode.topic_already_exists, why)
        invalid = why_topic_not_made(name)
        if invalid is not None:
            raise CommandRefused(ErrorCode.invalid_topic_exception, invalid)
        # Against the topics that there are; two of one request may collide, as in Kafka.
        other = self.colliding.get(unified(name)) if may_collide(name) else None
        if other is not None:
            why = f"Topic '{name}' collides with existing topic: {other}"
            raise CommandRefused(ErrorCode.invalid_topic_exception, why)

    def _check_configs(self, topic: NewTopic) -> dict[str, str]:
        without_value = [name for name, value in topic.configs if value is None]
        if without_value:
            why = f"Null value not supported for topic configs: {','.join(without_value)}"
            raise CommandRefused(ErrorCode.invalid_config, why)
        configs = {name: value for name, value in topic.configs if value is not None}
        try:
            check_topic_configs(configs)
        except ConfigRefused as refused:
            raise CommandRefused(ErrorCode.invalid_config, str(refused)) from refused
        return configs

    def _placed(self, topic: NewTopic) -> list[NewPartition]:
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise CommandRefused(
                ErrorCode.invalid_replication_factor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise CommandRefused(
                ErrorCode.invalid_partitions,
                "Number of partitions was set to an invalid non-positive value.",
            )
        settings, count, factor = (
            self.scene.settings,
            topic.num_partitions,
            topic.replication_factor,
        )
        if count == -1:
            count = settings.integer("num.partitions")
        if factor == -1:
            factor = settings.integer("default.replication.factor")
        brokers = self.scene.image.brokers.values()
        try:
            return place(brokers, count, factor, self.scene.rng)
        except CommandRefused as refused:
            why = f"Unable to replicate the partition {factor} time(s): {refused.message}"
            raise CommandRefused(refused.error_code, why) from refused

    def _assigned(self, topic: NewTopic) -> list[NewPartition]:
        for what, value in (
            ("replication factor", topic.replication_factor),
            ("numPartitions", topic.num_partitions),
        ):
            if value != -1:
                why = f"A manual partition assignment was specified, but {what} was not set to -1."
                raise CommandRefused(ErrorCode.invalid_request, why)
        partitions: dict[int, NewPartition] = {}
        factor: int | None = None
        for index, replicas in topic.assignments:
            if index in partitions:
                why = f"Found multiple manual partition assignments for partition {index}"
                raise CommandRefused(ErrorCode.invalid_replica_assignment, why)
            check_assignment(self.scene.image, replicas, factor)
            factor = len(replicas)
            partitions[index] = assigned_partition(index, replicas, self.active)
        if sorted(partitions) != list(range(len(partitions))):
            why = "partitions should be a consecutive 0-based integer sequence"
            raise CommandRefused(ErrorCode.invalid_replica_assignment, why)
        return [partitions[index] for index in range(len(partitions))]

    def _describe(self, configs: dict[str, str]) -> tuple[DescribedConfig, ...]:
        key = tuple(sorted(configs.items()))
        if key not in self.described:
            described = describe_topic(self.scene.settings, configs)
            self.described[key] = tuple(sorted(described, key=lambda each: each.name))
        return self.described[key]


# --- deleting -------------------------------------------------------------------------------------


def decide_delete_topics(scene: Scene, command: DeleteTopics) -> Decision[list[TopicResult]]:
    if not scene.settings.of("delete.topic.enable"):
        refused = CommandRefused(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")
        disabled = [failed(ref.name, refused, ref.topic_id) for ref in command.topics]
        return Decision(reply=lambda _version: disabled)
    results: list[TopicResult] = []
    records: list[TopicDeleted] = []
    doomed: set[UUID] = set()
    times = Counter(command.topics)
    for ref in dict.fromkeys(command.topics):
        try:
            topic_id = _doomed(scene, ref, times[ref])
            if topic_id in doomed:
                why = "The provided topic name maps to an ID that was already supplied."
                raise CommandRefused(ErrorCode.invalid_request, why)
        except CommandRefused as refused:
            results.append(failed(ref.name, refused, ref.topic_id))
            continue
        doomed.add(topic_id)
        records.append(TopicDeleted(topic_id=topic_id))
        name = scene.image.topics_by_id[topic_id].name
        results.append(TopicResult(name=name, topic_id=topic_id))
    return Decision(records=list(records), reply=lambda _version: results)


def _doomed(scene: Scene, ref: TopicRef, times: int) -> UUID:
    by_id = ref.topic_id is not None and ref.topic_id != NO_ID
    if ref.name is None and not by_id:
        why = "Neither topic name nor id were specified."
        raise CommandRefused(ErrorCode.invalid_request, why)
    if ref.name is not None and by_id:
        why = "You may not specify both topic name and topic id."
        raise CommandRefused(ErrorCode.invalid_request, why)
    if times > 1:
        why = DUPLICATE_NAME if ref.name is not None else "Duplicate topic id."
        raise CommandRefused(ErrorCode.invalid_request, why)
    if ref.name is not None:
        topic = scene.image.topics.get(ref.name)
        if topic is None:
            raise CommandRefused(ErrorCode.unknown_topic_or_partition, _UNKNOWN_TOPIC)
        return topic.topic_id
    assert ref.topic_id is not None
    if ref.topic_id not in scene.image.topics_by_id:
        raise CommandRefused(ErrorCode.unknown_topic_id, _UNKNOWN_ID)
    return ref.topic_id
