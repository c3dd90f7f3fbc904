"""What the active controller counts of what it decided."""

from uuid import UUID

from fencepost.cluster.base.ids import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
)
from fencepost.cluster.controller.metrics import ControllerCounters, count
from fencepost.cluster.metadata.image import (
    BrokerState,
    ClusterImage,
    PartitionState,
    TopicState,
)
from fencepost.cluster.metadata.records import BrokerChanged, PartitionChange, PartitionsChanged

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
TOPIC = UUID(int=1)


def image() -> ClusterImage:
    made = ClusterImage()
    state = PartitionState(
        partition=0, leader=ONE, leader_epoch=LeaderEpoch(1), partition_epoch=PartitionEpoch(1),
        replicas=(ONE, TWO, THREE), isr=(ONE,), elr=(TWO,),
    )  # fmt: skip
    topic = TopicState("t", TOPIC, [state])
    made.topics["t"] = made.topics_by_id[TOPIC] = topic
    made.brokers[ONE] = BrokerState(
        broker_id=ONE, broker_epoch=BrokerEpoch(1), incarnation_id=UUID(int=2), endpoints=()
    )
    return made


def becomes(leader: BrokerId, *, epoch: int = 2, partition: int = 0) -> PartitionsChanged:
    change = PartitionChange(
        partition=partition, expects_partition_epoch=PartitionEpoch(1), leader=leader,
        leader_epoch=LeaderEpoch(epoch), replicas=(ONE, TWO, THREE), isr=(ONE,),
    )  # fmt: skip
    return PartitionsChanged(topic_id=TOPIC, changes=(change,))


def counted(*records: object) -> tuple[int, int, int]:
    found = count(image(), records)
    return found.elections, found.unclean_elections, found.fencings


def test_one_that_has_everything_is_elected_cleanly() -> None:
    assert counted(becomes(TWO)) == (1, 0, 0)  # of the ELR (KIP-966)


def test_one_that_may_lack_something_is_elected_uncleanly() -> None:
    assert counted(becomes(THREE)) == (1, 1, 0)


def test_a_change_without_another_leader_is_no_election() -> None:
    assert counted(becomes(ONE), becomes(NO_LEADER), becomes(ONE, epoch=3)) == (0, 0, 0)


def test_a_partition_that_the_same_batch_makes_is_no_election() -> None:
    assert counted(becomes(TWO, partition=7)) == (0, 0, 0)


def test_a_fencing_is_counted_once() -> None:
    def fenced(*, fenced: bool) -> BrokerChanged:
        return BrokerChanged(
            broker_id=ONE, expects_broker_epoch=BrokerEpoch(1), fenced=fenced,
            in_controlled_shutdown=False,
        )  # fmt: skip

    assert counted(fenced(fenced=True)) == (0, 0, 1)
    assert counted(fenced(fenced=False)) == (0, 0, 0)


def test_what_was_counted_adds_up() -> None:
    total = ControllerCounters()
    for record in (becomes(TWO), becomes(THREE)):
        total.add(count(image(), [record]))
    assert (total.elections, total.unclean_elections, total.fencings) == (2, 1, 0)
