"""Planted bugs are seen, each by a checker that is there for it. All of them: `fencepost sim planted`."""

import pathlib
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from fencepost.chaos.campaigns.campaign import CAMPAIGNS, RULES, run_plan
from fencepost.chaos.campaigns.options import HAVE_NODES
from fencepost.chaos.campaigns.planted_table import (
    BEGIN,
    END,
    NOBODY,
    Sighting,
    hunt,
    hunted,
    merged,
    plan_for,
    show_and_write,
)
from fencepost.chaos.planted.bugs import Patch, all_bugs, planted
from fencepost.chaos.sim.plan import CLIENTS, Plan
from fencepost.node.main import main
from fencepost.replication.partition_machine import PartitionMachine

BUGS = all_bugs()
OPEN = [each.name for each in BUGS.values() if each.is_open]
HAVE_CLIENTS = re.compile(r"(\d+) of the (\d+) that have clients")
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


def test_what_clients_alone_saw_is_a_cell_of_its_own() -> None:
    first = merged("", [sighting("no-truncation", "diverged", 2)])
    assert first.endswith(f"| *diverged* | 2 | 10 | {NOBODY} |")
    alone = replace(sighting("no-truncation", "dead-client", 9), watch=CLIENTS)
    second = merged(first, [alone, replace(alone, bug="commit-alone")])
    assert second.endswith("| *diverged* | 2 | 10 | *dead-client*, 9 |")
    assert "commit-alone" not in second, "it has no row yet"
    third = merged(second, [sighting("no-truncation", "diverged", 3)])
    assert third.endswith("| *diverged* | 3 | 10 | *dead-client*, 9 |")
    assert merged(third, [replace(alone, rule="")]).endswith(f"| *diverged* | 3 | 10 | {NOBODY} |")
    without = "\n".join(row.rpartition(" | ")[0] + " |" for row in first.splitlines())
    assert merged(without, []) == first, "as tables were before there was such a cell"


def test_what_only_looks_into_nodes_is_not_seen_by_clients_alone(capsys) -> None:
    nobody = [replace(sighting("snapshot-forgotten", "", 20), watch=CLIENTS)]
    assert show_and_write(nobody, None) == 0
    assert "nothing was seen by clients alone: snapshot-forgotten" in capsys.readouterr().out
    assert all(each.campaign in HAVE_NODES for each in hunted([], CLIENTS))
    assert main(["sim", "planted", "--watch", CLIENTS, "vote-not-kept"]) == 2


@pytest.mark.slow
def test_a_retry_that_is_applied_twice_is_seen_by_who_looks_into_no_node() -> None:
    assert hunt("retry-applied-twice", CLIENTS).rule == "duplicate"


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
    seen, of = (int(each) for each in HAVE_CLIENTS.search(readme.read_text()).groups())
    alone = [row for row in rows if not row.endswith(f"| {NOBODY} |")]
    assert (seen, of) == (len(alone), len(hunted([], CLIENTS)))


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


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_hunt_that_is_ended_tells_what_it_has_seen(tmp_path, number) -> None:
    """It takes long, and said nothing: SIGTERM left a warning of Python's own. Rows of what was not hunted stay."""
    readme = tmp_path / "README.md"
    rows = merged("", [sighting("no-truncation", "diverged", 2), sighting("commit-alone", "", 10)])
    readme.write_text(f"{BEGIN}\n{rows}\n{END}\n")
    bugs = ["commit-alone", *(name for name in BUGS if name != "commit-alone")]
    words = ["sim", "planted", "--jobs", "1", "--write", str(readme), *bugs]
    hunt = subprocess.Popen(
        [sys.executable, "-m", "fencepost.node.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert hunt.stdout is not None
        assert hunt.stdout.readline().startswith("commit-alone ")
        hunt.send_signal(number)
        said, complaints = hunt.communicate(timeout=90)
    finally:
        hunt.kill()
        hunt.communicate()
    *_, last = said.splitlines()
    assert last.endswith(f"planted bugs were seen; interrupted, {len(BUGS)} were to be hunted")
    assert (hunt.returncode, complaints) == (130, "")
    assert "| *commit-missing* | 1 |" in readme.read_text()
    assert "| *diverged* | 2 |" in readme.read_text()


def test_a_file_that_the_table_can_not_be_put_into_is_refused_before_the_first_bug(
    tmp_path, capsys
) -> None:
    (tmp_path / "other.md").write_text("nothing")
    for name, said in (("nothing.md", "No such file"), ("other.md", "has no place for the table")):
        assert main(["sim", "planted", "commit-alone", "--write", str(tmp_path / name)]) == 2
        told = capsys.readouterr()
        assert told.out == "" and f"--write {tmp_path / name} " in told.err and said in told.err
