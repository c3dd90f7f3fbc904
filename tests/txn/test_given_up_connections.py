"""Two connections were given up one after the other, each with a request of the last transaction that arrives in the next one."""

from fencepost.cluster.base.errors import ErrorCode
from fencepost.node.heard_over import HeardOver
from fencepost.txn.transactions.commands import Ended
from transaction_scene import P0, P1, Scene

E = ErrorCode


def test_late_ends_by_two_connections_that_were_given_up_end_nothing() -> None:
    """The first that was read was the newest that had been heard from then on, and the second counted."""
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, connection=5)
    # EndTxn by 5 is slow: it is sent again by 6, which is slow too, and answered by 7.
    assert scene.end(who, connection=7) == Ended(101, 0)
    scene.written()
    scene.add(who, P1, connection=7)
    for given_up in (5, 6):
        assert scene.end(who, connection=given_up) is E.not_coordinator
        assert scene.phase == "Ongoing", "a late request ended the next transaction"
    assert scene.end(who, connection=7) == Ended(101, 0)


def test_late_positions_by_two_connections_that_were_given_up_do_not_count() -> None:
    heard = HeardOver()
    assert not heard.is_late((7, 0), 3)
    assert heard.is_late((7, 0), 1)
    assert heard.is_late((7, 0), 2)
    assert heard.is_given_up((7, 0), 1)
    assert not heard.is_late((7, 0), 3)


def test_who_comes_again_by_an_older_connection_has_two() -> None:
    heard = HeardOver()
    assert not heard.is_late((7, 0), 3)
    assert heard.is_late((7, 0), 1)
    assert not heard.is_late((7, 0), 1)
    assert not heard.is_given_up((7, 0), 1)
