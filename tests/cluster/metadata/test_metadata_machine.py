from typing import Any

from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType, ImageDelta, PartitionState
from fencepost.cluster.metadata.machine import RULES, Applied, MetadataMachine, Result
from fencepost.cluster.metadata.records import (
    BrokerChanged,
    BrokerUnregistered,
    ClusterFormed,
    ConfigsChanged,
    FeatureChanged,
    PartitionsChanged,
    PartitionsCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from fencepost.cluster.metadata.refusal import Reason, Refused
from fencepost.cluster.metadata.topic_names import why_topic_not_made
from hypothesis import given, settings
from hypothesis import strategies as st
from support.metadata_commands import ALONE, LEDGER, ORDERS, change, commands, created, registered


class Cluster:
    """A machine, and what it told its listener last."""

    def __init__(self, *batches: list) -> None:
        self.machine = MetadataMachine()
        self.machine.listeners.append(self)
        self.delta: ImageDelta | None = None
        for batch in batches:
            assert isinstance(self.when(*batch), Applied)

    def on_image(self, delta: ImageDelta) -> None:
        self.delta = delta

    def when(self, *batch: object) -> Result:
        return self.machine.apply(encode(batch))

    def then_refused(self, reason: Reason, *batch: object) -> None:
        before, version = self.machine.snapshot(), self.machine.image.version
        self.delta = None
        result = self.when(*batch)
        assert isinstance(result, Refused) and result.reason is reason
        assert (self.machine.snapshot(), self.machine.image.version) == (before, version)
        assert self.delta is None


def test_a_broker_that_registers_gets_the_version_as_its_epoch() -> None:
    cluster = Cluster([ClusterFormed(cluster_id="c")])
    assert cluster.when(registered()) == Applied(2)
    assert cluster.machine.image.brokers[1].broker_epoch == 2
    assert cluster.when(registered(expects=2)) == Applied(3)
    assert cluster.delta is not None and cluster.delta.brokers_changed == [1]


def test_the_epoch_of_an_earlier_registration_is_refused() -> None:
    cluster = Cluster([registered()], [registered(expects=1)])
    cluster.then_refused(Reason.STALE_BROKER_EPOCH, registered(expects=1))
    cluster.then_refused(Reason.STALE_BROKER_EPOCH, registered())
    for command in (
        BrokerChanged(broker_id=1, expects_broker_epoch=1, fenced=True),
        BrokerUnregistered(broker_id=1, expects_broker_epoch=1),
        ProducerIdsAllocated(broker_id=1, expects_broker_epoch=1, first_producer_id=0, count=1),
    ):
        cluster.then_refused(Reason.STALE_BROKER_EPOCH, command)
    cluster.then_refused(
        Reason.BROKER_UNKNOWN, BrokerChanged(broker_id=7, expects_broker_epoch=1, fenced=True)
    )


def test_a_fenced_broker_is_not_alive() -> None:
    cluster = Cluster([registered()], [registered(broker_id=2)])
    cluster.when(BrokerChanged(broker_id=1, expects_broker_epoch=1, fenced=True))
    assert [broker.broker_id for broker in cluster.machine.image.alive_brokers()] == [2]
    cluster.when(BrokerUnregistered(broker_id=2, expects_broker_epoch=2))
    assert cluster.machine.image.alive_brokers() == []


def test_a_created_topic_is_in_the_delta_with_its_partitions_and_configs() -> None:
    cluster = Cluster()
    with_configs = created()
    object.__setattr__(with_configs, "configs", {"retention.ms": "1"})
    cluster.when(with_configs)
    assert cluster.delta is not None
    (topic,) = cluster.delta.topics_created
    state = PartitionState(0, 1, 0, 0, (1,), (1,))
    assert cluster.delta.partitions_changed[0] == (topic, state)
    assert [partition.partition for partition in topic.partitions] == [0, 1]
    assert cluster.delta.configs_changed == [(ConfigType.TOPIC, "orders")]
    assert cluster.machine.image.topics_by_id[ORDERS] is topic


def test_a_topic_is_not_created_twice_by_name_or_by_id() -> None:
    cluster = Cluster([created()])
    cluster.then_refused(Reason.TOPIC_EXISTS, created(topic_id=LEDGER))
    cluster.then_refused(Reason.TOPIC_EXISTS, created(name="other"))


def test_a_deleted_topic_takes_its_configs_along() -> None:
    cluster = Cluster([created()])
    cluster.when(
        ConfigsChanged(resource_type=ConfigType.TOPIC, name="orders", changes={"flush.ms": "1"})
    )
    cluster.when(TopicDeleted(topic_id=ORDERS))
    image = cluster.machine.image
    assert (image.topics, image.topics_by_id, image.configs) == ({}, {}, {})
    assert [topic.name for topic in cluster.delta.topics_deleted] == ["orders"]
    cluster.then_refused(Reason.TOPIC_UNKNOWN, TopicDeleted(topic_id=ORDERS))


def test_partitions_are_added_only_to_the_count_that_was_seen() -> None:
    cluster = Cluster([created()])
    more = PartitionsCreated(topic_id=ORDERS, expects_count=2, partitions=(ALONE,))
    assert isinstance(cluster.when(more), Applied)
    cluster.then_refused(Reason.STALE_PARTITION_COUNT, more)
    assert [each.partition for each in cluster.machine.image.topics["orders"].partitions] == [
        0,
        1,
        2,
    ]


def test_a_partition_changes_only_at_the_partition_epoch_that_was_seen() -> None:
    """Two controllers, or a controller and a leader, decide on the same state: one of them loses."""
    cluster = Cluster([created()])
    lead_again = PartitionsChanged(topic_id=ORDERS, changes=(change(),))
    assert isinstance(cluster.when(lead_again), Applied)
    assert cluster.machine.image.partition("orders", 0) == PartitionState(0, 1, 1, 1, (1,), (1,))
    cluster.then_refused(Reason.STALE_PARTITION_EPOCH, lead_again)


def test_a_leader_never_leads_under_an_epoch_that_was_someone_elses() -> None:
    cluster = Cluster([created()])

    def of(**other: object) -> PartitionsChanged:
        return PartitionsChanged(topic_id=ORDERS, changes=(change(**other),))

    cluster.then_refused(Reason.IMPOSSIBLE, of(leader=-1, leader_epoch=0))
    cluster.then_refused(Reason.IMPOSSIBLE, of(leader=2, leader_epoch=1))  # not in the ISR
    cluster.then_refused(Reason.IMPOSSIBLE, of(isr=(1, 2)))  # not a replica
    cluster.then_refused(Reason.IMPOSSIBLE, of(replicas=(1, 1)))
    cluster.then_refused(Reason.PARTITION_UNKNOWN, of(partition=2))
    assert isinstance(cluster.when(of(leader_epoch=0)), Applied)


def test_a_setting_that_others_changed_meanwhile_is_not_overwritten() -> None:
    """Two appends to one list, decided on the same list: the second must be decided again."""
    cluster = Cluster([created()])

    def append(expects: dict[str, str], becomes: str) -> ConfigsChanged:
        return ConfigsChanged(
            resource_type=ConfigType.TOPIC,
            name="orders",
            changes={"list": becomes},
            expects=expects,
        )

    assert isinstance(cluster.when(append({}, "a")), Applied)
    cluster.then_refused(Reason.STALE_CONFIG, append({}, "b"))
    assert isinstance(cluster.when(append({"list": "a"}, "a,b")), Applied)


def test_settings_meant_for_a_topic_do_not_reach_its_namesake() -> None:
    cluster = Cluster([created(topic_id=LEDGER)])
    meant_for_the_old_one = ConfigsChanged(
        resource_type=ConfigType.TOPIC, name="orders", changes={"a": "1"}, topic_id=ORDERS
    )
    cluster.then_refused(Reason.TOPIC_UNKNOWN, meant_for_the_old_one)


def test_no_producer_id_is_given_out_twice() -> None:
    cluster = Cluster([registered()])
    block = ProducerIdsAllocated(
        broker_id=1, expects_broker_epoch=1, first_producer_id=0, count=1000
    )
    assert isinstance(cluster.when(block), Applied)
    cluster.then_refused(Reason.PRODUCER_IDS_TAKEN, block)
    assert cluster.machine.image.next_producer_id == 1000


def test_a_feature_changes_only_from_the_level_that_was_seen() -> None:
    cluster = Cluster([FeatureChanged(name="f", level=1, expects_level=0)])
    cluster.then_refused(Reason.STALE_FEATURE, FeatureChanged(name="f", level=2, expects_level=0))
    cluster.when(FeatureChanged(name="f", level=0, expects_level=1))
    assert cluster.machine.image.features == {}


def test_a_cluster_is_formed_once() -> None:
    cluster = Cluster([ClusterFormed(cluster_id="c", features={"f": 1})])
    assert cluster.machine.image.features == {"f": 1}
    cluster.then_refused(Reason.CLUSTER_EXISTS, ClusterFormed(cluster_id="d"))


def test_a_refused_batch_changes_nothing() -> None:
    """The first command alone would have been fine."""
    cluster = Cluster([created()])
    cluster.then_refused(Reason.TOPIC_EXISTS, created("ledger", LEDGER), created())
    assert "ledger" not in cluster.machine.image.topics


def test_two_commands_of_a_batch_never_touch_the_same_thing() -> None:
    """Both were checked against the image before the batch, so the second could undo what the first relied on."""
    cluster = Cluster()
    cluster.then_refused(Reason.TWICE_IN_BATCH, created(), created(topic_id=LEDGER))
    cluster.then_refused(Reason.TWICE_IN_BATCH, registered(), registered())


@given(commands)
def test_nothing_that_a_batch_touches_beside_topics_can_be_a_topics_name(command: Any) -> None:
    """A topic named `image` was taken for what each decision expects of the image, in the very batch that made it."""
    if isinstance(command, TopicCreated | ClusterFormed):
        return  # a cluster is formed before it has topics
    for key in RULES[type(command)].touched(command):
        assert not isinstance(key, str) or why_topic_not_made(key) is not None


def test_a_batch_may_register_a_broker_and_make_it_lead_again() -> None:
    cluster = Cluster([registered()], [created()])
    lead_again = PartitionsChanged(topic_id=ORDERS, changes=(change(), change(partition=1)))
    assert cluster.when(registered(expects=1), lead_again) == Applied(3)
    image = cluster.machine.image
    assert image.brokers[1].broker_epoch == 3
    assert [each.leader_epoch for each in image.topics["orders"].partitions] == [1, 1]


@settings(max_examples=60)
@given(st.lists(st.lists(commands, min_size=1, max_size=3), max_size=25))
def test_any_commands_make_equal_images_on_all_nodes_and_refusals_change_nothing(
    batches: list,
) -> None:
    one, other = MetadataMachine(), MetadataMachine()
    for batch in batches:
        before = one.snapshot()
        result = one.apply(encode(batch))
        assert other.apply(encode(batch)) == result
        if isinstance(result, Refused):
            assert one.snapshot() == before
        else:
            assert result.version == one.image.version
    assert one.snapshot() == other.snapshot()


@settings(max_examples=40)
@given(st.lists(commands, max_size=25), st.lists(commands, max_size=25))
def test_a_restored_image_is_the_one_that_was_written_and_goes_on_like_it(
    before: list, after: list
) -> None:
    """On a machine with another past: a follower that was given the leader's snapshot."""
    leader, follower = MetadataMachine(), MetadataMachine()
    for command in before:
        leader.apply(encode([command]))
    for command in after:
        follower.apply(encode([command]))
    image = follower.image
    follower.restore(leader.snapshot())
    assert follower.image is image
    assert follower.snapshot() == leader.snapshot()
    for command in after:
        assert follower.apply(encode([command])) == leader.apply(encode([command]))
    assert follower.snapshot() == leader.snapshot()
