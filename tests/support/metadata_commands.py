"""Commands for tests, and Hypothesis strategies that make any of them."""

from uuid import UUID

from fencepost.cluster.metadata.image import ConfigType, Endpoint
from fencepost.cluster.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterFormed,
    ConfigsChanged,
    FeatureChanged,
    ImageExpected,
    NewPartition,
    PartitionChange,
    PartitionsChanged,
    PartitionsCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from hypothesis import strategies as st

ORDERS = UUID(int=1)
LEDGER = UUID(int=2)
ALONE = NewPartition((1,), (1,), 1)
CLIENT = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")


def registered(expects: int = -1, broker_id: int = 1, **other: object) -> BrokerRegistered:
    return BrokerRegistered(
        broker_id=broker_id,
        incarnation_id=UUID(int=99),
        endpoints=(CLIENT,),
        expects_broker_epoch=expects,
        **other,
    )


def created(name: str = "orders", topic_id: UUID = ORDERS, count: int = 2) -> TopicCreated:
    return TopicCreated(name=name, topic_id=topic_id, partitions=(ALONE,) * count)


def change(partition: int = 0, expects: int = 0, **other: object) -> PartitionChange:
    state = {"leader": 1, "leader_epoch": 1, "replicas": (1,), "isr": (1,)}
    return PartitionChange(
        partition=partition, expects_partition_epoch=expects, **{**state, **other}
    )


# Few of each, so that commands meet.
names = st.sampled_from(["orders", "ledger", "a.b", "ü"])
topic_ids = st.sampled_from([UUID(int=number) for number in range(4)])
broker_ids = st.integers(1, 3)
brokers = st.lists(broker_ids, max_size=3).map(tuple)
epochs = st.integers(-1, 12)
texts = st.text(max_size=5)
new_partitions = st.builds(NewPartition, brokers, brokers, st.integers(-1, 3))
changes = st.builds(
    PartitionChange,
    partition=st.integers(-1, 4),
    expects_partition_epoch=st.integers(0, 3),
    leader=st.integers(-1, 3),
    leader_epoch=st.integers(0, 4),
    replicas=brokers,
    isr=brokers,
    elr=brokers,
    adding=brokers,
    removing=brokers,
    offline=brokers,
)
commands = st.one_of(
    st.builds(ImageExpected, version=st.integers(0, 3)),
    st.builds(
        ClusterFormed,
        cluster_id=st.sampled_from(["", "c"]),
        features=st.dictionaries(texts, st.integers(0, 3), max_size=2),
    ),
    st.builds(
        BrokerRegistered,
        broker_id=broker_ids,
        incarnation_id=st.uuids(),
        endpoints=st.lists(st.just(CLIENT), max_size=2).map(tuple),
        rack=st.none() | texts,
        fenced=st.booleans(),
        features=st.dictionaries(texts, st.just((0, 1)), max_size=2),
        expects_broker_epoch=epochs,
    ),
    st.builds(
        BrokerChanged,
        broker_id=broker_ids,
        expects_broker_epoch=epochs,
        fenced=st.booleans(),
        in_controlled_shutdown=st.booleans(),
    ),
    st.builds(BrokerUnregistered, broker_id=broker_ids, expects_broker_epoch=epochs),
    st.builds(
        TopicCreated,
        name=names,
        topic_id=topic_ids,
        partitions=st.lists(new_partitions | st.just(ALONE), max_size=4).map(tuple),
        configs=st.dictionaries(texts, texts, max_size=2),
    ),
    st.builds(TopicDeleted, topic_id=topic_ids),
    st.builds(
        PartitionsCreated,
        topic_id=topic_ids,
        expects_count=st.integers(0, 4),
        partitions=st.lists(st.just(ALONE), max_size=2).map(tuple),
    ),
    st.builds(
        PartitionsChanged, topic_id=topic_ids, changes=st.lists(changes, max_size=2).map(tuple)
    ),
    st.builds(
        ConfigsChanged,
        resource_type=st.sampled_from(ConfigType),
        name=names,
        changes=st.dictionaries(texts, st.none() | texts, max_size=2),
        expects=st.none() | st.dictionaries(texts, texts, max_size=1),
        topic_id=st.none() | topic_ids,
    ),
    st.builds(
        FeatureChanged,
        name=texts,
        level=st.integers(0, 2),
        expects_level=st.integers(0, 2),
    ),
    st.builds(
        ProducerIdsAllocated,
        broker_id=broker_ids,
        expects_broker_epoch=epochs,
        first_producer_id=st.sampled_from([0, 1000, 2**63 - 5]),
        count=st.sampled_from([1000, 0, 6]),
    ),
)
