import pytest
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.quorum.voters import (
    VoterSets,
    change_by_one,
    is_elected,
    read_voters,
    write_voters,
)

ONE, TWO, THREE = ({each: (f"n{each}", 9192) for each in range(1, count)} for count in (2, 3, 4))


def test_the_last_set_in_the_log_counts_and_a_cut_brings_back_the_one_before() -> None:
    sets = VoterSets(0, ONE)
    sets.add(5, TWO)
    sets.add(9, THREE)
    assert (sets.current, sets.index) == (THREE, 9)
    assert [sets.at(index) for index in (0, 4, 5, 8, 9, 99)] == [ONE, ONE, TWO, TWO, THREE, THREE]
    sets.cut_from(9)
    assert (sets.current, sets.index) == (TWO, 5)
    sets.cut_from(2)
    assert (sets.current, sets.index) == (ONE, 0)


def test_a_set_is_read_as_it_was_written() -> None:
    assert read_voters(write_voters(THREE)) == THREE


def test_one_voter_at_a_time() -> None:
    assert change_by_one(TWO, add=(3, ("n3", 9192)), remove=None) == THREE
    assert change_by_one(THREE, add=None, remove=3) == TWO
    for impossible in (
        lambda: change_by_one(TWO, add=(2, ("n2", 1)), remove=None),
        lambda: change_by_one(TWO, add=None, remove=3),
        lambda: change_by_one(ONE, add=None, remove=1),
    ):
        with pytest.raises(Trouble):
            impossible()


def test_a_majority_elects_and_a_voter_that_lost_its_disk_is_none_of_it() -> None:
    """It may have acknowledged what the candidate lacks, and forgotten it: only all together are sure."""
    assert is_elected(THREE, {1: False, 2: False})
    assert not is_elected(THREE, {1: False})
    assert not is_elected(THREE, {1: False, 9: False})
    assert not is_elected(THREE, {1: False, 2: True})
    assert is_elected(THREE, {1: False, 2: True, 3: False})
    assert is_elected(THREE, {1: True, 2: True, 3: True})
    assert is_elected(ONE, {1: True})
