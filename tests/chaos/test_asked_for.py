"""The faults that `--campaign all` leaves out are run all the same, by `make sim` and in the night."""

import re
import shlex
import signal
import stat
import subprocess
import time
from argparse import ArgumentParser
from pathlib import Path

import pytest
from fencepost.chaos.campaigns import commands
from fencepost.chaos.campaigns.options import plans_of, why_not
from fencepost.chaos.sim.cluster_fault_table import ASKED_FOR
from fencepost.chaos.sim.cluster_progress import LEAVES_A_MAJORITY
from fencepost.chaos.sim.transaction_faults import ASKED_FOR as ASKED_OF_TRANSACTIONS

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "chaos" / "asked_for.sh"


def asked(tmp_path, *exit_codes: int) -> tuple[int, list[list[str]]]:
    """The script, with a command that writes down its words and ends as it is told to, the last end for all others."""
    stand_in, said = tmp_path / "fencepost", tmp_path / "said"
    codes = " ".join(map(str, exit_codes))
    stand_in.write_text(
        f"""#!/usr/bin/env bash
codes=({codes})
echo "$@" >>"{said}"
at=$(($(wc -l <"{said}") - 1))
exit "${{codes[$((at < ${{#codes[@]}} ? at : ${{#codes[@]}} - 1))]}}"
"""
    )
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(
        [SCRIPT, "5..7", "sums.jsonl"],
        env={"FENCEPOST": str(stand_in), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    return done.returncode, [shlex.split(line) for line in said.read_text().splitlines()]


def test_every_fault_that_must_be_asked_for_by_name_is_asked_for(tmp_path) -> None:
    """They ran in nobody's hands: not in a campaign, not in `make sim`, not at night."""
    code, lines = asked(tmp_path, 0)
    assert code == 0
    parser = ArgumentParser()
    commands.configure(parser)
    found = set()
    for words in lines:
        assert words[:6] == ["sim", "run", "--seeds", "5..7", "--summary", "sums.jsonl"]
        arguments = parser.parse_args(words[1:])
        plans = list(plans_of(arguments))
        assert len(plans) == 2 and not any(map(why_not, plans)), words
        found |= {(arguments.campaign, name) for name in arguments.faults}
    assert {name for _, name in found} >= {*ASKED_FOR, *ASKED_OF_TRANSACTIONS}
    both = ("each-write", "left-behind")
    assert {(campaign, name) for campaign in ("cluster", "transactions") for name in both} <= found


def test_one_fault_after_the_other_is_asked_for_so_that_waiting_has_a_bound(tmp_path) -> None:
    """`sim/cluster_progress.py` owes nothing where several strike at once, as they do in a campaign."""
    parser = ArgumentParser()
    commands.configure(parser)
    kinds = set()
    for words in asked(tmp_path, 0)[1]:
        arguments = parser.parse_args(words[1:])
        if "replace-disk" in arguments.faults:
            continue  # one at a time, as nobody replaces a disk while others are away
        if arguments.campaign == "cluster" and arguments.at_once == 1:
            assert set(arguments.faults) <= LEAVES_A_MAJORITY
            kinds |= set(arguments.faults)
    assert kinds >= {"kill", "pause", "isolate", "power-apart", "full-for-long"}


def test_make_sim_and_the_night_ask_for_them() -> None:
    recipe = re.search(r"^sim:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None and "chaos/asked_for.sh $(SEEDS)" in recipe[1]
    assert re.search(
        r"^ +\S.*chaos/asked_for\.sh \"\$seed",
        (ROOT / "chaos/nightly.sh").read_text(),
        re.MULTILINE,
    )


@pytest.mark.parametrize(
    ("ends", "code", "lines"),
    [((2, 1, 2, 0), 1, 13), ((0, 2, 0), 2, 13), ((0, 130), 130, 2), ((1, 130), 1, 2)],
    ids=["broken", "unknown", "interrupted", "broken before"],
)
def test_a_broken_promise_weighs_more_than_what_is_unknown_and_the_rest_is_run(
    tmp_path, ends, code, lines
) -> None:
    found, said = asked(tmp_path, *ends)
    assert (found, len(said)) == (code, lines)


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize(("ends", "code"), [(130, 130), (1, 1)])
def test_who_ends_it_ends_what_runs_and_nothing_more_is_begun(tmp_path, ends, code) -> None:
    stand_in, said = tmp_path / "fencepost", tmp_path / "said"
    stand_in.write_text(
        f"""#!/bin/bash
trap 'asked=1' TERM
echo begun >>"{said}"
for _ in {{1..400}}; do sleep 0.1; [ -z $asked ] || break; done
echo "ended $asked" >>"{said}"
exit {ends}
"""
    )
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    script = subprocess.Popen(
        [SCRIPT, "5..7", "sums.jsonl"], env={"FENCEPOST": str(stand_in), "PATH": "/usr/bin:/bin"}
    )
    deadline = time.monotonic() + 25
    while not said.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    script.send_signal(signal.SIGTERM)
    assert script.wait(30) == code
    assert said.read_text().splitlines() == ["begun", "ended 1"]
