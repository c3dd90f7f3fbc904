"""A producer that was fenced asks for its transaction while its successor's first write waits for the coordinator's word."""

from fencepost.node.transaction_doors import FirstWrite, _forget
from fencepost.replication.log.producer_verdicts import ACCEPT
from fencepost.replication.log.producers_machine import ProducersMachine
from fencepost.replication.partition import Partition
from producer_helpers import OUT_OF_ORDER, PID, Given, Produced, begin


class _Place:
    """As much of a partition as `_forget` looks at."""

    closed = None

    def __init__(self, producers: ProducersMachine) -> None:
        self.producers = producers


def test_what_a_zombie_is_refused_leaves_the_place_of_its_successors_first_batch() -> None:
    """1. two batches of the next epoch are on their way, the lower asks first   2. the zombie asks, and is fenced
    3. the second one asks, and has its word: the first has not, and would be out of order for ever behind it.
    """
    log = Given(ProducersMachine(verify_transactions=True))
    first = begin(log, 100, epoch=6)
    zombies = begin(log, 40, epoch=5)
    place: Partition = _Place(log.machine)  # type: ignore[assignment]
    _forget(FirstWrite(place, PID, 5, 40, zombies))
    second = begin(log, 110, epoch=6)
    assert log.machine.verifications.confirm(PID, 6, second)
    behind = Produced(110, producer_epoch=6, is_transactional=True)
    assert log.answer(behind) == OUT_OF_ORDER
    assert first == second
    assert log.answer(Produced(100, producer_epoch=6, is_transactional=True)) is ACCEPT


def test_what_its_own_producer_is_refused_is_forgotten() -> None:
    log = Given(ProducersMachine(verify_transactions=True))
    place: Partition = _Place(log.machine)  # type: ignore[assignment]
    _forget(FirstWrite(place, PID, 6, 100, begin(log, 100, epoch=6)))
    assert log.machine.verifications.of(PID) is None
