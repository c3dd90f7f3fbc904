"""The same seed in two processes: equal, or the first event that differs is named."""

import pytest
from fencepost.chaos.campaigns import again
from fencepost.chaos.campaigns.again import differs
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.sim.plan import Plan

PLAN = Plan(campaign="one-node", seed=2, seconds=0.5)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_process_of_its_own_tells_the_same() -> None:
    assert differs(PLAN, run_plan(PLAN).digest) == ""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_what_is_not_the_same_here_and_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said = differs(PLAN, "0" * 32)
    assert "the same seed is not the same run" in said
    assert "0" * 32 in said


def test_the_first_event_that_differs_is_named(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{at}.0 node-1 happened number={at}" for at in range(6)]
    other = [*lines[:4], "4.0 node-1 happened number=17", lines[5]]
    written = iter([None, lines, other])

    def in_another_process(plan: Plan, hash_seed: str, file=None) -> str:
        some = next(written)
        if some is not None:
            file.write_text("\n".join(some) + "\n")
        return f"digest of {hash_seed} {some is None}"

    monkeypatch.setattr(again, "_in_another_process", in_another_process)
    said = differs(PLAN, "mine")
    assert "event 5 is" in said
    assert "4.0 node-1 happened number=4\n" in said
    assert "number=17" in said
    assert "3.0 node-1 happened number=3" in said
