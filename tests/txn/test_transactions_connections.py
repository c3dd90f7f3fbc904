"""Late requests of old clients, whose epoch stays: told by the connection over which they come."""

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.commands import Ended
from transaction_scene import P0, P1, Scene

E = ErrorCode


def test_a_late_end_over_a_connection_that_was_given_up_ends_nothing() -> None:
    """KAFKA-17754, as far as it can be told for clients whose epoch stays."""
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, connection=5)
    # 1. EndTxn over connection 5 is delayed; the client gives up, connects anew and sends it again.
    assert scene.end(who, connection=6) == Ended(101, 0)
    scene.written()
    # 2. The next transaction begins; then the first EndTxn arrives.
    scene.add(who, P1, connection=6)
    assert scene.end(who, connection=5) is E.not_coordinator
    assert scene.phase == "Ongoing"
    assert scene.end(who, commit=False, connection=6) == Ended(101, 0)


def test_a_late_partition_opens_no_transaction() -> None:
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, connection=6)
    scene.end(who, connection=6)
    scene.written()
    assert scene.add(who, P0, connection=5) is E.not_coordinator
    assert scene.phase == "CompleteCommit"


def test_a_producer_that_comes_again_over_its_older_connection_is_heard() -> None:
    """It has two and uses both, as aiokafka does, whose InitProducerId goes over one of its own."""
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, connection=6)
    assert scene.end(who, connection=5) is E.not_coordinator
    assert scene.end(who, connection=5) == Ended(101, 0)


def test_a_fenced_producer_is_told_so_over_its_old_connection() -> None:
    scene = Scene()
    zombie = scene.init()
    scene.add(zombie, P0, connection=5)
    scene.init()
    scene.written()
    assert scene.add(zombie, P0, connection=5) is E.producer_fenced
    assert scene.end(zombie, connection=5) is E.producer_fenced


def test_a_zombie_that_begins_again_in_vain_hides_no_late_request() -> None:
    scene = Scene()
    zombie = scene.init()
    who = scene.init()
    scene.add(who, P0, connection=6)
    assert scene.init(producer_id=zombie[0], producer_epoch=zombie[1]) is E.producer_fenced
    assert scene.end(who, connection=5) is E.not_coordinator


def test_a_new_producer_may_come_over_an_older_connection() -> None:
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, connection=6)
    scene.end(who, connection=6)
    scene.written()
    who = scene.init()
    assert scene.add(who, P0, connection=5) is E.none
