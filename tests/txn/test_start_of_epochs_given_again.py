"""InitProducerId that is asked again gives the epoch that the abort before was fenced with: its markers and those of the
next transaction have one epoch, and only their beginnings tell them apart."""

from fencepost.cluster.base.errors import ErrorCode
from transaction_scene import P0, Scene


def test_no_two_transactions_of_an_epoch_that_is_given_again_begin_at_one_time() -> None:
    scene = Scene(server_version=1)
    who = scene.init(timeout_ms=60_000)
    assert scene.add(who, P0) is ErrorCode.none
    scene.pass_time(60_001)  # its time is up
    (first,) = scene.sent
    scene.written()
    again = scene.init(timeout_ms=60_000, producer_id=who[0], producer_epoch=who[1])
    assert again[:2] == (first.producer_id, first.producer_epoch)
    scene.now_ms = first.started_ms  # a clock that is set back
    assert scene.add(again, P0) is ErrorCode.none
    assert scene.now().start_timestamp > first.started_ms
