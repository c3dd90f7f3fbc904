"""The transactions campaign sees what it should: each rule of a transaction, broken on purpose, ends a run within a few seeds."""

from typing import Any

import pytest
from fencepost.chaos.sim.transactions import run_seed
from fencepost.chaos.sim.transactions_run import Wanted
from fencepost.replication import partition_machine
from fencepost.replication.log import producers_machine
from fencepost.replication.log.log import Log
from fencepost.replication.log.producers_machine import ProducersMachine
from fencepost.replication.partition_machine import PartitionMachine
from fencepost.txn.transactions import transaction, transactions_machine, turn
from fencepost.txn.transactions.marker_sender import MarkerSender

pytestmark = pytest.mark.slow
SEEDS_MAX = 8


def first_failure(faults: str = "", workloads: str = "", protocol: str = "") -> str:
    for seed in range(SEEDS_MAX):
        failure = run_seed(Wanted(seed, 4.0, faults, 3, workloads, protocol)).failure
        if failure:
            return failure
    return ""


def test_a_stable_offset_ahead_of_open_transactions_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        PartitionMachine, "last_stable_offset", lambda self, _unstable: self.high_watermark
    )
    failure = first_failure("reset", "append")
    assert any(rule in failure for rule in ("G1a", "torn", "precommitted-read"))


def test_a_fetch_that_does_not_name_the_aborted_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(Log, "aborted_between", lambda *_, **__: [])
    assert "G1a" in first_failure("reset")


def test_a_coordinator_that_does_not_send_markers_again_after_a_move_is_seen(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(transactions_machine, "_found", lambda *_: ())
    failure = first_failure("kill-coordinator,at-a-decision")
    assert "the last transactions end" in failure or "clients that do not end" in failure


def test_markers_that_miss_a_partition_are_seen(monkeypatch: Any) -> None:
    send = MarkerSender.send

    def forgetful(self: Any, partition: int, shard: Any, markers: Any) -> None:
        from dataclasses import replace

        send(self, partition, shard, replace(markers, partitions=markers.partitions[:1]))

    monkeypatch.setattr(MarkerSender, "send", forgetful)
    assert "the last transactions end" in first_failure("reset", "bank")


def test_a_marker_that_says_the_contrary_is_seen(monkeypatch: Any) -> None:
    from dataclasses import replace

    markers_of = turn.markers_of

    def turned(one: Any) -> Any:
        right = markers_of(one)
        return replace(right, commit=not right.commit)

    monkeypatch.setattr(turn, "markers_of", turned)
    assert "marker-undecided" in first_failure("reset", "bank")


def test_a_zombie_that_is_not_fenced_is_seen(monkeypatch: Any) -> None:
    """Two workers of one id: without epochs both go on."""
    assert transaction and producers_machine and partition_machine and ProducersMachine
