"""KIP-392, the choice: Kafka's RackAwareReplicaSelector, its rows and its ties."""

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.base.ids import BrokerEpoch, BrokerId
from fencepost.cluster.metadata.image import BrokerState, Endpoint
from fencepost.node.config import NodeConfig
from fencepost.node.read_replica_policy import RACK_AWARE, preferred_read_replica
from fencepost.replication.partition_machine import PartitionMachine, Role

LISTENER = "PLAINTEXT"


def broker(broker_id: int, rack: str | None, **more: Any) -> BrokerState:
    fields: dict[str, Any] = {
        "endpoints": (Endpoint(LISTENER, f"host-{broker_id}", 9092, LISTENER),),
        "fenced": False,
    }
    return BrokerState(
        broker_id=BrokerId(broker_id),
        broker_epoch=BrokerEpoch(1),
        incarnation_id=uuid.UUID(int=broker_id),
        rack=rack,
        **{**fields, **more},
    )


def choose(
    rack: str,
    *,
    racks: dict[int, str | None],
    ends: dict[int, int] | None = None,
    caught_up: dict[int, int] | None = None,
    readable: tuple[int, ...] | None = None,
    role: Role = Role.LEADER,
    **broken: BrokerState,
) -> int | None:
    """Broker 1 is asked; the others follow it."""
    machine = PartitionMachine(1, log_end=100, durable_end=100, high_watermark=100)
    followers = [broker_id for broker_id in racks if broker_id != 1]
    machine.replicas = {
        broker_id: SimpleNamespace(
            log_end=(ends or {}).get(broker_id, 100),
            caught_up_ms=(caught_up or {}).get(broker_id, 0),
        )
        for broker_id in followers
    }  # type: ignore[assignment]
    partition: Any = SimpleNamespace(
        is_leader=role is Role.LEADER,
        machine=machine,
        replicas_to_read=lambda _: [1, *(followers if readable is None else readable)],
    )
    brokers = {BrokerId(each): broker(each, of) for each, of in racks.items()}
    brokers.update({each.broker_id: each for each in broken.values()})
    return preferred_read_replica(partition, 50, rack, brokers, LISTENER)


RACKS: dict[int, str | None] = {1: "a", 2: "b", 3: "b", 4: None}


@pytest.mark.parametrize(
    ("rack", "chosen"),
    [
        pytest.param("", None, id="says no rack"),
        pytest.param("a", None, id="the leader's rack"),
        pytest.param("c", None, id="nobody's rack"),
        pytest.param("b", 3, id="another rack"),
    ],
)
def test_a_consumer_reads_in_its_own_rack_if_anybody_is_there(
    rack: str, chosen: int | None
) -> None:
    assert choose(rack, racks=RACKS) == chosen


def test_who_has_most_of_the_log_comes_first_then_who_was_there_last_then_the_higher_id() -> None:
    assert choose("b", racks=RACKS, ends={2: 100, 3: 99}) == 2
    assert choose("b", racks=RACKS, caught_up={2: 7, 3: 6}) == 2
    assert choose("b", racks=RACKS, ends={2: 100, 3: 99}, caught_up={2: 6, 3: 7}) == 2
    assert choose("b", racks=RACKS) == 3


def test_a_consumer_is_sent_only_where_its_offset_is() -> None:
    assert choose("b", racks=RACKS, readable=(2,)) == 2
    assert choose("b", racks=RACKS, readable=()) is None


def test_a_replica_that_can_not_be_reached_is_not_named() -> None:
    assert choose("b", racks=RACKS, fenced=broker(3, "b", fenced=True)) == 2
    assert choose("b", racks=RACKS, elsewhere=broker(3, "b", endpoints=())) == 2


def test_who_does_not_lead_sends_nobody_away() -> None:
    assert choose("b", racks=RACKS, role=Role.FOLLOWER) is None


def test_a_selector_that_there_is_not_stops_the_start() -> None:
    def told(value: str) -> NodeConfig:
        return NodeConfig.load(flags=[f"replica.selector.class={value}"], environment={}, file=None)

    assert told(RACK_AWARE).string("replica.selector.class") == RACK_AWARE
    with pytest.raises(ConfigRefused, match=r"replica\.selector\.class: Class org\.mine could not"):
        told("org.mine")
