"""The transactions campaign sees what it should: each rule of a transaction, broken on purpose, ends a run within a few seeds."""

from dataclasses import replace
from typing import Any

import pytest
from fencepost.chaos.sim.transactions import run_seed
from fencepost.chaos.sim.transactions_run import Wanted
from fencepost.replication.log.log import Log
from fencepost.replication.partition_machine import PartitionMachine
from fencepost.txn.groups.service import GroupService
from fencepost.txn.transactions import policy, transactions_machine, turn
from fencepost.txn.transactions.marker_sender import MarkerSender

pytestmark = pytest.mark.slow
SEEDS_MAX = 6


def first_failure(faults: str, workloads: str, protocol: str = "") -> str:
    for seed in range(SEEDS_MAX):
        failure = run_seed(Wanted(seed, 3.0, faults, 3, workloads, protocol)).failure
        if failure:
            return failure
    return ""


def test_a_stable_offset_ahead_of_open_transactions_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        PartitionMachine, "last_stable_offset", lambda self, _unstable: self.high_watermark
    )
    failure = first_failure("reset", "append")
    assert "G1a" in failure or "precommitted-read" in failure


def test_a_fetch_that_does_not_name_the_aborted_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(Log, "aborted_between", lambda *_, **__: [])
    assert "G1a" in first_failure("reset", "bank")


def test_a_coordinator_that_sends_no_markers_again_after_a_move_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(transactions_machine, "_found", lambda *_: ())
    failure = first_failure("kill-coordinator,at-a-decision", "bank", "old")
    assert "the last transactions end" in failure or "clients that do not end" in failure


def test_markers_that_miss_a_partition_are_seen(monkeypatch: Any) -> None:
    send = MarkerSender.send

    def forgetful(self: Any, partition: int, shard: Any, markers: Any) -> None:
        send(self, partition, shard, replace(markers, partitions=markers.partitions[:1]))

    monkeypatch.setattr(MarkerSender, "send", forgetful)
    assert "the last transactions end" in first_failure("reset", "bank")


def test_a_marker_that_says_the_contrary_is_seen(monkeypatch: Any) -> None:
    markers_of = turn.markers_of

    def turned(one: Any) -> Any:
        right = markers_of(one)
        return replace(right, commit=not right.commit)

    monkeypatch.setattr(turn, "markers_of", turned)
    assert "marker-undecided" in first_failure("reset", "bank")


def test_offsets_that_count_though_their_transaction_was_aborted_are_seen(
    monkeypatch: Any,
) -> None:
    end_transaction = GroupService.end_transaction

    async def committing(self: Any, *place: Any, commit: bool, **others: Any) -> Any:
        del commit
        return await end_transaction(self, *place, commit=True, **others)

    monkeypatch.setattr(GroupService, "end_transaction", committing)
    failure = first_failure("reset", "append")
    assert "marker-undecided" in failure or "marker-late" in failure or "torn-offset" in failure


def test_an_id_that_is_given_to_two_producers_with_one_epoch_is_seen(monkeypatch: Any) -> None:
    """The old protocol's twin would be kept out by its older connection; the new one's has only its epoch."""
    monkeypatch.setattr(policy, "_next", lambda had, _fresh: had)
    failure = first_failure("reset", "bank", "new")
    assert any(rule in failure for rule in ("torn", "unseen", "out_of_order", "epochs only rise"))
