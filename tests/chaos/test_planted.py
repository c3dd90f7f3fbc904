"""Planted bugs are seen, each by a checker that is there for it. All of them: `fencepost sim planted`."""

import pathlib
from dataclasses import replace

import pytest
from fencepost.chaos.campaigns.campaign import CAMPAIGNS, RULES, run_plan
from fencepost.chaos.campaigns.planted_table import (
    BEGIN,
    END,
    Sighting,
    hunt,
    hunted,
    merged,
    plan_for,
    show_and_write,
)
from fencepost.chaos.planted.bugs import Patch, all_bugs, planted
from fencepost.chaos.sim.plan import Plan
from fencepost.replication.partition_machine import PartitionMachine

BUGS = all_bugs()
OPEN = [each.name for each in BUGS.values() if each.is_open]
# The quick ones, one of each kind of checker; the rest takes minutes.
IN_EVERY_TEST_RUN = (
    "commit-alone",
    "no-truncation",
    "retry-applied-twice",
    "apply-before-committed",
    "marker-says-the-contrary",
    "last-stable-offset-ignored",
    "fence-skipped",
    "offsets-outside-the-transaction",
    "uncommitted-positions-are-told",
    "images-are-taken-for-now-s",
    "deposed-coordinators-end-producers",
    "open-transactions-are-called-none",
    "settings-that-were-taken-back-stay",
    "new-copies-lack-the-beginning",
)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", IN_EVERY_TEST_RUN)
def test_a_planted_bug_is_seen_by_a_checker_that_is_there_for_it(name: str) -> None:
    sighting = hunt(name)
    assert sighting.was_seen, sighting


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", IN_EVERY_TEST_RUN[::3])
def test_without_the_bug_its_seeds_are_well(name: str) -> None:
    plan = plan_for(BUGS[name], 0)
    well = Plan(**{f: getattr(plan, f) for f in plan.__slots__ if f != "planted"})
    assert run_plan(well).failure == ""


def test_there_are_at_least_twenty() -> None:
    assert len(BUGS) >= 20


@pytest.mark.parametrize("bug", BUGS.values(), ids=lambda bug: bug.name)
def test_a_planted_bug_names_a_campaign_faults_and_checkers_that_there_are(bug) -> None:
    campaign = CAMPAIGNS[bug.campaign]
    assert set(bug.faults) <= set(campaign.faults)
    assert set(bug.workloads) <= set(campaign.workloads)
    assert bug.breaks.endswith((".", ")"))
    assert "\n" not in bug.breaks
    for rule in bug.seen_by:
        assert RULES.search(f"{rule}: there: it is"), f"{rule} is no checker's rule"


def test_a_bug_that_is_called_in_another_way_than_what_it_replaces_is_refused() -> None:
    """It would break every run where it is called, and look as if it had been seen, or as if nobody saw it."""
    patch = Patch()
    was = vars(PartitionMachine)["joiner"]
    for bad in (lambda _self: None, lambda _self, _at: None, lambda _self, _at, _who, _more: 0):
        with pytest.raises(TypeError, match=r"PartitionMachine\.joiner is called with other"):
            patch.put(PartitionMachine, "joiner", bad)
        assert vars(PartitionMachine)["joiner"] is was
    patch.put(PartitionMachine, "joiner", lambda *_, **__: None)
    patch.take_out()


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_bug_is_gone_when_its_run_is_over(name: str) -> None:
    patch = Patch()
    BUGS[name].plant(patch)
    places = [(owner, attribute, before) for owner, attribute, before in patch._before]
    assert places, "it changes nothing"
    assert all(vars(owner)[attribute] is not before for owner, attribute, before in places)
    patch.take_out()
    assert all(vars(owner)[attribute] is before for owner, attribute, before in reversed(places))


def test_a_bug_that_nobody_knows_is_refused() -> None:
    right = PartitionMachine._lowest_end
    with pytest.raises(KeyError, match="no bug is called"), planted("no-such-bug"):
        pass
    with planted("commit-alone"):
        assert PartitionMachine._lowest_end is not right
    assert PartitionMachine._lowest_end is right


def sighting(name: str, rule: str, seeds: int) -> Sighting:
    return Sighting(name, rule, seeds, rule, 1.0)


def test_a_row_is_written_anew_and_the_others_stay() -> None:
    first = merged("", [sighting("no-truncation", "diverged", 2), sighting("commit-alone", "", 10)])
    assert "| *diverged* | 2 |" in first
    assert "**not seen**" in first
    second = merged(first, [sighting("commit-alone", "commit-missing", 1)])
    assert "| *diverged* | 2 |" in second
    assert "| *commit-missing* | 1 |" in second
    assert "**not seen**" not in second
    gone = second.replace("`commit-alone`", "`no-bug-any-more`")
    assert "no-bug-any-more" not in merged(gone, [])


def test_another_failure_than_a_bug_s_own_is_no_sighting() -> None:
    assert sighting("no-truncation", "diverged", 1).was_seen
    assert not sighting("no-truncation", "no-progress", 1).was_seen


def test_the_readme_has_a_row_for_every_bug_and_none_was_missed() -> None:
    readme = pathlib.Path(__file__).parents[2] / "chaos" / "README.md"
    rows = readme.read_text().partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    named = [row.split("`")[1] for row in rows]
    assert named == list(BUGS)
    missed = [row.split("`")[1] for row in rows if "**not seen**" in row]
    assert missed == OPEN, "a row says of each what is so: seen, or open"


@pytest.fixture
def one_that_is_open(monkeypatch) -> str:
    name = "unclean-election"
    monkeypatch.setitem(BUGS, name, replace(BUGS[name], is_open=True))
    return name


def test_a_bug_of_which_it_is_known_that_nothing_sees_it_is_hunted_by_its_name_alone(
    one_that_is_open,
) -> None:
    assert one_that_is_open not in {each.name for each in hunted(())}
    assert len(hunted(())) + len(OPEN) + 1 == len(BUGS)
    assert [each.name for each in hunted([one_that_is_open])] == [one_that_is_open]


def test_an_open_bug_that_is_seen_is_amiss_as_one_that_is_missed_and_not_open(
    capsys, one_that_is_open
) -> None:
    one = one_that_is_open
    assert show_and_write([sighting(one, "", 20)], None) == 0
    assert f"of which that was known: {one}" in capsys.readouterr().err
    assert show_and_write([sighting(one, BUGS[one].seen_by[0], 3)], None) == 1
    assert show_and_write([sighting("no-truncation", "", 10)], None) == 1
    assert show_and_write([sighting("no-truncation", "diverged", 2)], None) == 0
