"""What keeps a run from saying more than it knows: brokers that never come back, final polls that hang; without any broker."""

import json
import time
from types import SimpleNamespace

import pytest
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.runs import final_polls as finals
from fencepost.chaos.runs import run as runs
from fencepost.chaos.runs.clients import Clients, Known
from fencepost.chaos.runs.folder import HISTORY, RunFolder
from fencepost.chaos.runs.judging import judge
from fencepost.chaos.runs.plan import Plan
from fencepost.chaos.runs.run import Run
from fencepost.chaos.workloads.queue_final import ALL_READ, UNTOLD


class Away:
    """A system of which one node stays down."""

    name, nodes, can, bootstrap = "processes", (1, 2, 3), frozenset({"kill"}), "127.0.0.1:1"

    def is_up(self, node: int) -> bool:
        return node != 2

    def said(self, node: int) -> str:
        return f"node {node}: the disk is full"


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    monkeypatch.setattr(runs, "system_of", lambda *_, **__: Away())
    made = Run(Plan(), RunFolder(tmp_path / "run"), lambda _: None)
    made.folder.create({})
    return made


def test_a_node_that_never_comes_back_makes_a_run_unknown_in_a_sentence(run, monkeypatch) -> None:
    polls = finals.Polls([], whole=False, why="the final polls ended with 3")
    asked = {}
    monkeypatch.setattr(runs, "final_polls", lambda *_, **more: asked.update(more) or polls)
    clients = Clients(run.folder, count=1, module="none", words=lambda *_: [], seed=1, life_s=0.0)
    run._final(run.system, clients)
    assert asked["all_up"] is False, "what is not found then is nobody's fault"
    assert run.unknown == [
        "nodes [2] never came back; node 2 said last: node 2: the disk is full",
        "the final polls ended with 3",
    ]


SEEN = Txn("read", "ok", FINAL, polls=[Polled("t0-0", 0, 8, 1)], began_s=101.0, ended_s=102.0)
STAND_IN = """
import sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
open(words["--notes"], "a").write({line!r} + "\\n")
print({says!r}, "t0-0 is missing", sep="\\n", flush=True)
time.sleep({seconds})
sys.exit({code})
"""


def polled(
    tmp_path, monkeypatch, *, code=0, seconds=0, says="", all_up=True, known=None
) -> finals.Polls:
    text = STAND_IN.format(line=to_line(SEEN), code=code, seconds=seconds, says=says)
    (tmp_path / "stand_in.py").write_text(text)
    (tmp_path / "clients").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(finals, "MODULE", "stand_in")
    monkeypatch.setattr(finals, "SLACK_S", 50.0)
    log = tmp_path / "clients" / "final.log"

    def late() -> float:
        """As soon as who hangs has said what it has to say."""
        has_said = log.exists() and "t0-0 is missing" in log.read_text()
        return time.monotonic() + (1_000 if seconds and has_said else 0)

    monkeypatch.setattr(finals, "time", SimpleNamespace(monotonic=late, sleep=time.sleep))
    return finals.final_polls(
        tmp_path,
        known or Known(),
        "127.0.0.1:1",
        began_s=100.0,
        seconds=1.0,
        all_up=all_up,
        stopping=lambda: False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "whole", "missed", "process"),
    [
        ({}, True, False, FINAL),
        ({"code": 3}, False, True, FINAL),
        ({"code": 3, "all_up": False}, False, False, finals.CUT),
        ({"code": 1}, False, False, finals.CUT),
        ({"seconds": 60}, False, False, finals.CUT),
        # What was read then was all, whatever became of the groups.
        ({"code": UNTOLD, "says": ALL_READ}, False, False, FINAL),
        ({"code": 1, "says": ALL_READ}, False, False, FINAL),
        ({"seconds": 60, "says": ALL_READ}, False, False, FINAL),
    ],
    ids=[
        "whole",
        "missed",
        "missed with a node away",
        "broken",
        "hangs",
        "all read and not all told",
        "all read and broken",
        "all read and hangs",
    ],
)
def test_final_polls_count_only_when_they_came_to_their_end(
    tmp_path, monkeypatch, how, whole, missed, process
) -> None:
    found = polled(tmp_path, monkeypatch, **how)
    assert (found.whole, found.missed, found.operations[0].process) == (whole, missed, process)
    assert found.operations[0].began_s == 1.0
    assert whole or "t0-0 is missing" in found.why


@pytest.mark.slow
def test_what_a_whole_pass_did_not_find_is_lost_though_no_group_was_told_of(
    tmp_path, monkeypatch
) -> None:
    """SEEN lacks 16, which was acknowledged. Without a loss such a run is unknown: positions are a part of the proof."""
    for name, values, verdict in (("lost", (8, 16), "invalid"), ("found", (8,), "unknown")):
        (tmp_path / name).mkdir()
        with monkeypatch.context() as here:
            found = polled(tmp_path / name, here, code=UNTOLD, says=ALL_READ)
        folder = RunFolder(tmp_path / name / "run")
        folder.create({"nodes": 3, "unknown": [found.why]})
        sent = [Txn("send", "ok", "a", each, [Sent("t0-0", each, each - 8)]) for each in values]
        folder.append_text(HISTORY, map(to_line, [*sent, *found.operations]))
        assert judge(folder, lambda _: None)["verdict"] == verdict


@pytest.mark.slow
def test_the_groups_that_all_share_are_asked_about_however_many_came_after_them(
    tmp_path, monkeypatch
) -> None:
    known = Known()
    lives = [f"queue-{life}" for life in range(finals.GROUPS_MAX)]
    for group in ("queue", *lives):
        known.see(Txn("txn", "ok", group, offsets={f"{group}|t0-0": 1}))
    asked = finals.asked_groups(known)
    assert asked == ["queue", *lives[1:]]
    assert len(asked) == finals.GROUPS_MAX
    polled(tmp_path, monkeypatch, known=known)
    assert list(json.loads((tmp_path / "wanted.json").read_text())["groups"]) == asked
