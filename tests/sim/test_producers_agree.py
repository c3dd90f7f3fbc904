"""Whether replicas know the same producers, where no replay says who wrote what was deleted."""

from dataclasses import dataclass
from typing import Any

import pytest
from fencepost.chaos.sim.producers_agree import compare_producers
from fencepost.replication.log.producer_snapshot import Batch, ProducerState


def wrote(producer_id: int, offset: int) -> ProducerState:
    return ProducerState(producer_id, 0, -1, 5, 0, -1, (Batch(3, 3, offset, offset, 5),))


@dataclass
class Replica:
    """As much of a partition as is looked at."""

    states_: list[ProducerState]
    log_start_offset: int = 4
    log_end_offset: int = 10

    @property
    def log(self) -> Any:
        return self

    @property
    def producers(self) -> Any:
        return self

    def states(self) -> list[ProducerState]:
        return self.states_


def compared(*replicas: Any) -> list[str]:
    return [each.what for each in compare_producers("orders-0", enumerate(replicas, 1))]  # type: ignore[arg-type]


def test_a_replica_that_knows_less_than_its_leader_is_an_anomaly() -> None:
    leader = Replica([wrote(7, 1), wrote(8, 5)])
    (what,) = compared(leader, Replica([wrote(7, 1), wrote(8, 5)]), Replica([wrote(8, 5)]))
    assert "both end at 10; of producer 7 node 2 has" in what
    assert what.endswith("node 3 has None")


def test_another_batch_of_the_same_producer_is_one_too() -> None:
    assert len(compared(Replica([wrote(7, 1)]), Replica([wrote(7, 2)]))) == 1


@pytest.mark.parametrize(
    "other",
    [
        Replica([wrote(7, 1)]),
        Replica([wrote(7, 1)], log_start_offset=6),
        Replica([], log_end_offset=9),
        Replica([], log_start_offset=0),
    ],
    ids=["the same", "begins elsewhere", "ends elsewhere", "begins at 0"],
)
def test_what_may_differ_is_none(other: Replica) -> None:
    assert compared(Replica([wrote(7, 1)]), other) == []
