"""The cluster campaign sees what it should: each rule of a cluster, broken on purpose, ends a run within a few seeds."""

from dataclasses import replace
from typing import Any

import pytest
from fencepost.chaos.sim.cluster import Wanted, run_seed
from fencepost.chaos.sim.disk import SimFile
from fencepost.cluster.controller import brokers_policy, election_policy
from fencepost.replication import streams_leader
from fencepost.replication.divergence_machine import GoOn
from fencepost.replication.partition_machine import PartitionMachine

pytestmark = pytest.mark.slow
SEEDS_MAX = 10


def first_failure(faults: str = "") -> str:
    for seed in range(SEEDS_MAX):
        failure = run_seed(Wanted(seed, 5.0, faults, 3)).failure
        if failure:
            return failure
    return ""


def test_a_leader_that_commits_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def own_end(_machine: PartitionMachine, end: int, _now_ms: int) -> int:
        return end

    monkeypatch.setattr(PartitionMachine, "_lowest_end", own_end)
    # Missing where it should be, or lost with a leader: whichever comes first.
    failure = first_failure("kill,power-one")
    assert "commit-missing" in failure or "commit-lost" in failure


def test_followers_that_never_cut_what_their_leader_lacks_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams_leader, "answer", lambda *_, **__: GoOn())
    assert "diverged" in first_failure()


def test_an_election_of_whoever_is_alive_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = election_policy.changed

    def unclean(now: Any, wish: Any, **others: Any) -> Any:
        return changed(now, replace(wish, unclean=True), **others)

    monkeypatch.setattr(brokers_policy, "changed", unclean, raising=False)
    monkeypatch.setattr(election_policy, "changed", unclean)
    failure = first_failure("kill,kill-two,kill-all,power-one,isolate")
    assert "unclean" in failure or "commit-lost" in failure


def test_replicas_that_are_eligible_though_they_lag_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def everybody(now: Any, replicas: Any, isr: Any, _min_isr: int, _lost: Any) -> Any:
        return tuple(each for each in replicas if each not in isr)

    monkeypatch.setattr(election_policy, "_eligible", everybody)
    assert "commit-missing" in first_failure()


def test_a_disk_that_says_that_it_synced_and_did_not_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SimFile, "sync_to", lambda *_: None)
    assert first_failure("power-one,power-all")
