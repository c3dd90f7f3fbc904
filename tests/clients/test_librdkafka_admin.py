"""librdkafka's admin client (confluent-kafka): topics, settings, offsets and groups, and every refusal's code."""

import pytest
from brokers import COPIES, NODES, calm
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from librdkafka import (
    WAIT_S,
    admin_of,
    consumer_of,
    create,
    error_code,
    producer_of,
    receive,
    send,
    until,
)

SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT


def result_of(futures):
    [future] = futures.values()
    return future.result(WAIT_S)


def refusal(futures) -> int:
    with pytest.raises(KafkaException) as caught:
        result_of(futures)
    return error_code(caught)


@calm
def test_a_topic_is_created_listed_described_and_deleted(bootstrap, topic) -> None:
    admin = admin_of(bootstrap)
    create(bootstrap, topic, partitions=3)
    until(lambda: topic in admin.list_topics(timeout=WAIT_S).topics, what="it is listed")
    assert sorted(admin.list_topics(topic, WAIT_S).topics[topic].partitions) == [0, 1, 2]
    described = result_of(admin.describe_topics(TopicCollection([topic])))
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert not described.is_internal
    nodes = {node.id for node in admin.describe_cluster().result(WAIT_S).nodes}
    for partition in described.partitions:
        replicas = [replica.id for replica in partition.replicas]
        assert len(set(replicas)) == len(replicas) == COPIES and set(replicas) <= nodes
        assert partition.leader.id == replicas[0]
        assert {replica.id for replica in partition.isr} == set(replicas)
    result_of(admin.delete_topics([topic]))
    until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, what="it is gone")
    assert refusal(admin.describe_topics(TopicCollection([topic]))) == (
        KafkaError.UNKNOWN_TOPIC_OR_PART
    )


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("bad/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("n" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("too-many-copies", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("no-such-setting", 1, 1, config={"a.b": "c"}), KafkaError.INVALID_CONFIG),
        (
            NewTopic("bad-setting", 1, 1, config={"retention.ms": "soon"}),
            KafkaError.INVALID_CONFIG,
        ),
        (
            NewTopic("strange-broker", 1, replica_assignment=[[77]]),
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else None,
)
def test_an_impossible_topic_is_refused_with_its_reason(bootstrap, new, code) -> None:
    admin = admin_of(bootstrap)
    assert refusal(admin.create_topics([new])) == code
    assert new.topic not in admin.list_topics(timeout=WAIT_S).topics


def test_a_second_topic_of_one_name_is_refused(bootstrap, topic) -> None:
    create(bootstrap, topic)
    again = admin_of(bootstrap).create_topics([NewTopic(topic, 1, 1)])
    assert refusal(again) == KafkaError.TOPIC_ALREADY_EXISTS


def test_names_that_metrics_could_not_tell_apart_collide(bootstrap, fresh) -> None:
    name = fresh("dots")
    create(bootstrap, name)
    twin = name.replace(".", "_")
    again = admin_of(bootstrap).create_topics([NewTopic(twin, 1, 1)])
    assert refusal(again) == KafkaError.TOPIC_EXCEPTION


def test_validating_creates_nothing(bootstrap, topic) -> None:
    admin = admin_of(bootstrap)
    result_of(admin.create_topics([NewTopic(topic, 2, 1)], validate_only=True))
    assert topic not in admin.list_topics(timeout=WAIT_S).topics


def test_a_topic_that_is_not_there_can_not_be_deleted(bootstrap, topic) -> None:
    code = refusal(admin_of(bootstrap).delete_topics([topic]))
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_can_be_added_and_never_taken(bootstrap, topic) -> None:
    create(bootstrap, topic, partitions=2)
    admin = admin_of(bootstrap)
    result_of(admin.create_partitions([NewPartitions(topic, 5)]))
    until(
        lambda: len(admin.list_topics(topic, WAIT_S).topics[topic].partitions) == 5,
        what="five partitions",
    )
    code = refusal(admin.create_partitions([NewPartitions(topic, 3)]))
    assert code == KafkaError.INVALID_PARTITIONS
    assert len(send(producer_of(bootstrap), topic, [b"x"], partition=4)) == 1


def config_of(bootstrap, resource: ConfigResource):
    return result_of(admin_of(bootstrap).describe_configs([resource]))


def alter(bootstrap, kind: ResourceType, name: str, *changes):
    entries = [ConfigEntry(key, value, incremental_operation=how) for key, how, value in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    return admin_of(bootstrap).incremental_alter_configs([resource])


def test_settings_of_a_topic_are_shown_set_and_reset(bootstrap, topic) -> None:
    create(bootstrap, topic, retention_ms=60_000)
    of_topic = ConfigResource(ResourceType.TOPIC, topic)
    before = config_of(bootstrap, of_topic)
    assert before["retention.ms"].value == "60000"
    assert before["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert before["segment.bytes"].value == str(2**30)
    assert before["segment.bytes"].is_default
    assert before["cleanup.policy"].value == "delete"
    changes = [
        ("retention.ms", DELETE, None),
        ("segment.bytes", SET, "1048576"),
        ("cleanup.policy", APPEND, "compact"),
    ]
    result_of(alter(bootstrap, ResourceType.TOPIC, topic, *changes))
    until(
        lambda: config_of(bootstrap, of_topic)["segment.bytes"].value == "1048576",
        what="the setting is in force",
    )
    after = config_of(bootstrap, of_topic)
    assert after["retention.ms"].value == "604800000"
    assert after["cleanup.policy"].value == "delete,compact"
    result_of(alter(bootstrap, ResourceType.TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")))
    until(
        lambda: config_of(bootstrap, of_topic)["cleanup.policy"].value == "compact",
        what="one of the policies is taken away",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("retention.ms", "-5"), ("cleanup.policy", "shred"), ("no.such.setting", "1")],
)
def test_an_impossible_setting_is_refused_and_changes_nothing(
    bootstrap, topic, name, value
) -> None:
    create(bootstrap, topic)
    changed = alter(
        bootstrap, ResourceType.TOPIC, topic, ("segment.ms", SET, "1000"), (name, SET, value)
    )
    assert refusal(changed) == KafkaError.INVALID_CONFIG
    shown = config_of(bootstrap, ConfigResource(ResourceType.TOPIC, topic))
    assert shown["segment.ms"].value == "604800000"


def test_settings_of_a_topic_that_is_not_there_are_refused(bootstrap, topic) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    code = refusal(admin_of(bootstrap).describe_configs([resource]))
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART
    changed = alter(bootstrap, ResourceType.TOPIC, topic, ("retention.ms", SET, "1000"))
    assert refusal(changed) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_settings_of_a_broker_are_shown_and_set(bootstrap) -> None:
    admin = admin_of(bootstrap)
    node = str(next(iter(admin.list_topics(timeout=WAIT_S).brokers)))
    of_node = ConfigResource(ResourceType.BROKER, node)
    shown = config_of(bootstrap, of_node)
    assert shown["node.id"].value == node
    assert shown["node.id"].is_read_only
    assert shown["num.partitions"].value == "1"
    change = ("message.max.bytes", SET, "2000000")
    result_of(alter(bootstrap, ResourceType.BROKER, node, change))
    until(
        lambda: config_of(bootstrap, of_node)["message.max.bytes"].value == "2000000",
        what="the broker's setting is in force",
    )
    result_of(alter(bootstrap, ResourceType.BROKER, node, ("message.max.bytes", DELETE, None)))


def test_offsets_are_listed_by_every_spec(bootstrap, topic) -> None:
    create(bootstrap, topic)
    producer = producer_of(bootstrap)
    for second in (3, 9, 6):
        when = 1_700_000_000_000 + second * 1000
        send(producer, topic, [b"x"], timestamp=when)
    admin = admin_of(bootstrap)
    asked = {
        OffsetSpec.earliest(): 0,
        OffsetSpec.latest(): 3,
        OffsetSpec.max_timestamp(): 1,
        OffsetSpec.for_timestamp(1_700_000_000_000 + 4000): 1,
    }
    for spec, offset in asked.items():
        found = result_of(admin.list_offsets({TopicPartition(topic, 0): spec}))
        assert found.offset == offset, spec


def test_records_can_be_deleted_up_to_an_offset_and_not_past_the_end(bootstrap, topic) -> None:
    create(bootstrap, topic)
    send(producer_of(bootstrap), topic, [b"x"] * 10)
    admin = admin_of(bootstrap)
    assert result_of(admin.delete_records([TopicPartition(topic, 0, 4)])).low_watermark == 4
    assert result_of(admin.delete_records([TopicPartition(topic, 0, 2)])).low_watermark == 4
    past = admin.delete_records([TopicPartition(topic, 0, 11)])
    assert refusal(past) == KafkaError.OFFSET_OUT_OF_RANGE
    everything = TopicPartition(topic, 0, -1)
    assert result_of(admin.delete_records([everything])).low_watermark == 10


@calm
def test_the_cluster_is_described(bootstrap) -> None:
    described = admin_of(bootstrap).describe_cluster().result(WAIT_S)
    there = {f"{node.host}:{node.port}" for node in described.nodes}
    assert len(described.nodes) == NODES and there == set(bootstrap.split(","))
    assert described.controller.id in {node.id for node in described.nodes}
    assert len(described.cluster_id) == 22


def test_a_group_is_listed_moved_and_deleted(bootstrap, topic, group) -> None:
    create(bootstrap, topic)
    send(producer_of(bootstrap), topic, [b"x"] * 5)
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        consumer.commit(receive(consumer, 5)[-1], asynchronous=False)
    admin = admin_of(bootstrap)
    listed = admin.list_consumer_groups().result(WAIT_S).valid
    [ours] = [listing for listing in listed if listing.group_id == group]
    assert ours.state.name == "EMPTY"
    assert ours.type.name == "CLASSIC"

    all_of_it = ConsumerGroupTopicPartitions(group)
    committed = result_of(admin.list_consumer_group_offsets([all_of_it])).topic_partitions
    assert [(part.topic, part.offset) for part in committed] == [(topic, 5)]
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    result_of(admin.alter_consumer_group_offsets([moved]))
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        assert receive(consumer, 3)[0].offset() == 2

    result_of(admin.delete_consumer_groups([group]))
    listed = admin.list_consumer_groups().result(WAIT_S).valid
    assert group not in {listing.group_id for listing in listed}


def test_a_group_that_never_was_is_empty_or_not_found(bootstrap, group) -> None:
    admin = admin_of(bootstrap)
    assert refusal(admin.delete_consumer_groups([group])) == KafkaError.GROUP_ID_NOT_FOUND
    nothing = result_of(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert nothing.topic_partitions == []


def test_offsets_of_a_group_with_members_can_not_be_moved(bootstrap, topic, group) -> None:
    create(bootstrap, topic)
    send(producer_of(bootstrap), topic, [b"x"])
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        receive(consumer, 1)
        moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
        answer = result_of(admin_of(bootstrap).alter_consumer_group_offsets([moved]))
        assert answer.topic_partitions[0].error.code() == KafkaError.UNKNOWN_MEMBER_ID
