"""One partition that follows, step by step."""

from uuid import UUID

import pytest
from fencepost.replication.follower_machine import MAY_BECOME, FollowerMachine, Phase
from fencepost.replication.stream_frames import Follow

TOPIC = UUID(int=3)


def asked(slot: int = 1) -> FollowerMachine:
    machine = FollowerMachine(TOPIC, 0, leader_epoch=4)
    machine.ask(slot, last_epoch=3, log_end=10, counted_end=8)
    return machine


def test_it_tells_what_it_has() -> None:
    machine = FollowerMachine(TOPIC, 5, leader_epoch=4)
    found = machine.ask(1, last_epoch=3, log_end=10, counted_end=8, log_start=2)
    assert found == Follow(1, TOPIC, 5, 4, 3, 10, 8, 2, -1)
    assert machine.phase is Phase.ASKING


def test_what_is_late_finds_nobody() -> None:
    """An answer to an earlier asking may come after the log was cut for a later one."""
    machine = asked(1)
    machine.ask(2, last_epoch=2, log_end=6, counted_end=6)
    assert not machine.expects(1)
    assert machine.expects(2)
    machine.followed()
    machine.rest(0)
    assert not machine.expects(2)
    machine.lose_stream()
    assert not machine.expects(2)


def test_it_rests_longer_each_time_until_something_is_appended() -> None:
    machine = asked(1)
    for slot, rest in ((2, 250), (3, 500), (4, 1_000), (5, 2_000), (6, 2_000)):
        machine.rest(0)
        assert not machine.has_rested(rest - 1)
        assert machine.has_rested(rest)
        machine.ask(slot, last_epoch=3, log_end=10, counted_end=8)
    machine.followed()
    machine.progressed()
    machine.rest(0)
    assert machine.has_rested(250)


def test_a_slot_is_given_once() -> None:
    with pytest.raises(AssertionError):
        asked(3).ask(3, last_epoch=3, log_end=10, counted_end=8)


def test_every_phase_has_its_row_and_a_way_out() -> None:
    assert set(MAY_BECOME) == set(Phase)
    for phase, may in MAY_BECOME.items():
        assert Phase.WAITING in may, phase  # a stream may end at any time
