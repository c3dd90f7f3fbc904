from uuid import UUID

import pytest
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.metadata.image import (
    BrokerState,
    ClusterImage,
    PartitionState,
    TopicState,
)
from fencepost.cluster.metadata.offline import what_is_lost, why_offline

PLACE = TopicPartition("orders", 0)
RECOVER = "`fencepost partition recover orders 0 --accept-data-loss`"


def image(partition: PartitionState, *, alive: tuple[int, ...] = (), gone: tuple[int, ...] = ()):
    made = ClusterImage()
    for broker_id in set(partition.replicas) - set(gone):
        made.brokers[broker_id] = BrokerState(
            broker_id, 1, UUID(int=1), (), fenced=broker_id not in alive
        )
    made.topics["orders"] = TopicState("orders", UUID(int=1), [partition])
    return made


def partition(
    leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = (), **more: tuple[int, ...]
):
    return PartitionState(0, leader, 5, 7, (1, 2, 3), isr, elr, **more)


def test_a_partition_with_a_leader_is_not_offline() -> None:
    assert why_offline(image(partition(1, (1,)), alive=(1,)), PLACE) is None


@pytest.mark.parametrize(
    ("now", "alive", "gone", "sentence"),
    [
        (
            partition(-1, (1,)),
            (2, 3),
            (),
            (
                "Only node 1 has all that was acknowledged in orders-0: node 1 (in sync) is not running, or"
                " can't be reached. Start node 1. Nodes 2 and 3 are alive and may lack some of it. If the"
                f" others never return: {RECOVER}."
            ),
        ),
        (
            partition(-1, (1,), (3,)),
            (2,),
            (3,),
            (
                "Only one of nodes 1 or 3 need return: each has all that was acknowledged in orders-0: node 1"
                " (in sync) is not running, or can't be reached; node 3 (eligible) is not registered. Start"
                " nodes 1 or 3. Node 2 is alive and may lack some of it. If the others never return:"
                f" {RECOVER}."
            ),
        ),
        (
            partition(-1, (2,)),
            (),
            (),
            (
                "Only node 2 has all that was acknowledged in orders-0: node 2 (in sync) is not running, or"
                " can't be reached. Start node 2. No replica is alive. If node 2 is gone for good, start nodes 1 or 3,"
                f" which may have much of it, and recover then: {RECOVER}. If those are gone, too, start node 2"
                f" with an empty folder and recover then: {RECOVER[:-1]} --replica 2`, or `fencepost topic delete"
                " orders`."
            ),
        ),
        (
            partition(-1, (2,)),
            (2,),
            (),
            (
                "Only node 2 has all that was acknowledged in orders-0: node 2 (in sync) is alive. It is"
                " alive: the controller makes it the leader."
            ),
        ),
        (
            partition(-1, (1,), offline=(1,)),
            (1,),
            (),
            (
                "Only node 1 has all that was acknowledged in orders-0: node 1 (in sync) is alive, but its log"
                " of this partition failed. Mend the disk of node 1 and start it again. If that disk is lost"
                " for good, start nodes 2 or 3, which may have much of it, and recover then. If that is lost, too, and"
                f" node 1 has another disk: {RECOVER[:-1]} --replica 1`; all that was in the partition is gone then."
            ),
        ),
        (
            partition(-1, (1,), offline=(1,)),
            (1, 2),
            (),
            (
                "Only node 1 has all that was acknowledged in orders-0: node 1 (in sync) is alive, but its log"
                " of this partition failed. Mend the disk of node 1 and start it again. Node 2 is alive and"
                f" may lack some of it. If the others never return: {RECOVER}."
            ),
        ),
    ],
)
def test_an_offline_partition_says_who_must_return(now, alive, gone, sentence) -> None:
    assert why_offline(image(now, alive=alive, gone=gone), PLACE) == sentence


def test_the_only_copy_of_a_node_that_is_gone_for_good_can_be_begun_anew() -> None:
    only = PartitionState(0, -1, 5, 7, (3,), (3,), ())
    assert why_offline(image(only, alive=(1, 2)), PLACE) == (
        "Only node 3 has all that was acknowledged in orders-0: node 3 (in sync) is not running, or can't be"
        " reached. Start node 3. No replica is alive. If node 3 is gone for good, start node 3 with an empty folder"
        f" and recover then: {RECOVER[:-1]} --replica 3`, or `fencepost topic delete orders`."
    )


def test_an_heir_that_begins_anew_has_nothing() -> None:
    told = what_is_lost(image(partition(-1, (1,), offline=(1,)), alive=(1,)), PLACE, 1)
    assert told == (
        "All that was acknowledged in orders-0 would be gone for good: node 1 begins it anew on the disk that"
        " it has now."
    )


def test_what_an_heir_may_lack_is_said_before_it_leads() -> None:
    told = what_is_lost(image(partition(-1, (1,), adding=(3,)), alive=(3,)), PLACE, 3)
    assert told == (
        "What was acknowledged in orders-0 after node 3 was last in sync would be gone for good, and"
        " node 1 would drop it too when back. Node 3 was only being added: it may have nothing at all."
    )
