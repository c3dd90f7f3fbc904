"""Faults that last so long that all timers of a system run out, and what a line of faults.jsonl says of their form."""

import random
from types import SimpleNamespace

import pytest
from fencepost.chaos.checkers.promised import (
    PARTIAL,
    RING,
    SLIGHT,
    STALE,
    STUCK,
    Promise,
    promise_of,
)
from fencepost.chaos.faults import kinds
from fencepost.chaos.faults.disk_faults import DiskSlow
from fencepost.chaos.faults.fault import LONG_S, Clients, Stage
from fencepost.chaos.faults.network_faults import Cut, Slow
from fencepost.chaos.faults.plan import FEW, LONG_SHARE, Strike, plan

KNOWN = {name: kind.kind() for name, kind in kinds.FAULTS.items()}
LASTING = {"kill", "pause", "cut", "slow", "clock", "disk-full", "disk-slow"}


def held(seconds: float, names=tuple(KNOWN)) -> list[tuple[Strike, float]]:
    chosen = {name: KNOWN[name] for name in names}
    return [
        (each, each.until_s - each.at_s)
        for seed in range(100)
        for each in plan(chosen, seed, seconds)
    ]


def test_now_and_then_a_fault_that_leaves_a_majority_lasts_longer_than_any_system_promises() -> (
    None
):
    long = [(strike, lasts_s) for strike, lasts_s in held(300.0) if lasts_s >= LONG_S[0]]
    assert {strike.kind for strike, _ in long} == LASTING
    assert {strike.target for strike, _ in long} == FEW
    for fault in ({"fault": "kill"}, {"fault": "disk-slow", "form": STUCK}):
        assert Promise().within_s(fault) <= LONG_S[0]
        assert promise_of("kafka", ()).within_s(fault) < LONG_S[1]


def test_a_short_run_has_no_fault_that_is_all_of_it() -> None:
    for seconds in (60.0, 90.0, 120.0):
        assert max(lasts_s for _, lasts_s in held(seconds)) <= LONG_SHARE * seconds
    assert max(lasts_s for _, lasts_s in held(120.0)) > LONG_S[0]


def test_a_plan_without_a_long_fault_is_as_it_was() -> None:
    """The die of whether it is long is thrown last."""
    usual = {
        name: SimpleNamespace(targets=k.targets, hold_s=k.hold_s, long_s=None, first=k.first)
        for name, k in KNOWN.items()
    }
    for seed in range(30):
        new, old = plan(KNOWN, seed, 60.0), plan(usual, seed, 60.0)
        assert new == old


class Everything:
    """A system of three that can do all, and does nothing."""

    nodes = (1, 2, 3)
    can = frozenset({"cut", "one-way", "slow", "disk"})

    def is_up(self, _node: int) -> bool:
        return True

    def cut(self, _ways) -> None: ...

    def slow(self, _ways) -> None: ...

    def world(self, _node: int):
        return SimpleNamespace(set=lambda **_: None)


def begun(kind, count: int) -> dict[str, set[str]]:
    """By form: what such faults said that they did."""
    found: dict[str, set[str]] = {}
    asked = SimpleNamespace(choose=lambda _target, rng, free: [rng.choice(free)])
    for number in range(count):
        stage = Stage(Everything(), asked, Clients())
        fault = kind(stage, Strike(number, kind.name, "one", 1.0, 2.0, str(number)))
        fault.rng = random.Random(number)
        what = fault.begin()
        found.setdefault(fault.form, set()).add(what)
    return found


def test_a_cut_says_whether_somebody_still_hears_both() -> None:
    found = begun(Cut, 60)
    assert set(found) == {"", PARTIAL, RING, STALE}
    assert all("and from clients" in what for what in found[""])
    assert all("don't reach each other" in what for what in found[PARTIAL])
    assert all("each hears one of the two others only" in what for what in found[RING])
    assert len(found[STALE]) > 3


def test_a_slow_network_says_whether_transactions_still_end_in_time() -> None:
    found = begun(Slow, 40)
    assert {what.split(" ms")[0].split()[-1] for what in found[SLIGHT]} == {"5", "50"}
    assert {what.split(" ms")[0].split()[-1] for what in found[""]} == {"200", "800"}


@pytest.mark.parametrize("form", [STUCK, SLIGHT, ""])
def test_a_slow_disk_says_whether_syncs_come_back(form) -> None:
    found = begun(DiskSlow, 60)
    stuck = {what for what in found[form] if what.startswith("syncs are stuck")}
    assert stuck == (found[form] if form == STUCK else set())
