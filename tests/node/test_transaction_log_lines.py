"""What the log says of transactions that end otherwise than their producers wanted, and whose request it was."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from sim_transactions import TransactionCluster

pytestmark = pytest.mark.slow


class Told(TransactionCluster):
    def told(self, event: str) -> list[tuple[int, dict[str, Any]]]:
        return [(each, fields) for each in self.nodes.ids for fields in self.events(each, event)]

    async def begun(self, **other: int) -> dict[str, int]:
        """A transaction of `pay::m` that is open."""
        who = await self.starts("pay", "m")
        await self.writes("pay", "m", who, "t")
        return who


def test_a_transaction_whose_time_is_up_is_told_with_its_time_though_clocks_were_set_back() -> None:
    cluster = Told(seed="time is up")

    async def scenario() -> None:
        who = await cluster.begun()
        coordinator = cluster.coordinator("pay")
        for each in cluster.nodes.ids:
            cluster.world.machine(node_name(each)).wall.jump(-5 * 3_600_000)
        await asyncio.sleep(65.0)
        ((node, fields),) = cluster.told("transaction_timed_out")
        assert node == coordinator
        assert fields == {"transactional_id": "pay::m", "timeout_ms": 60_000, **who}
        await cluster.until_phases("pay", "CompleteAbort", "m")

    cluster.play_up(scenario)


def test_a_transaction_times_out_at_a_coordinator_that_found_it_in_its_log_by_a_clock_set_back() -> (
    None
):
    """The record says that it began hours from now."""
    cluster = Told(seed="found")

    async def scenario() -> None:
        await cluster.begun()
        for each in cluster.nodes.ids:
            cluster.world.machine(node_name(each)).wall.jump(-5 * 3_600_000)
        cluster.kill(cluster.coordinator("pay"))
        await asyncio.sleep(75.0)
        assert len(cluster.told("transaction_timed_out")) == 1
        await cluster.until_phases("pay", "CompleteAbort", "m")

    cluster.play_up(scenario)


def test_a_producer_that_is_fenced_by_its_next_instance_is_told_with_whose_request_did_it() -> None:
    cluster = Told(seed="fenced")

    async def scenario() -> None:
        who = await cluster.begun()
        coordinator = cluster.coordinator("pay")
        await cluster.starts("pay", "m")
        ((node, fields),) = cluster.told("transaction_fenced")
        assert (node, fields["producer_id"], fields["producer_epoch"]) == (
            coordinator,
            *who.values(),
        )
        assert fields["cause"].startswith("another instance of its producer")
        env: Any = cluster.world.machine(node_name(coordinator)).env
        (asked,) = [
            request_id for request_id, event in env.log.of_requests if event == "transaction_fenced"
        ]
        assert asked.startswith(f"{coordinator}-")

    cluster.play_up(scenario)


def test_an_end_that_is_refused_is_told_with_what_it_found() -> None:
    """A client's message names neither the phase nor the epochs."""
    cluster = Told(seed="refused")

    async def scenario() -> None:
        who = await cluster.starts("pay", "m")
        coordinator = cluster.coordinator("pay")
        reply = await cluster._until(
            "pay",
            ApiKey.end_txn,
            lambda reply: reply.error_code,
            5,
            transactional_id="pay::m",
            committed=True,
            **who,
        )
        assert reply.error_code is ErrorCode.invalid_txn_state
        ((node, fields),) = cluster.told("transaction_end_refused")
        assert node == coordinator
        named = who["producer_epoch"]
        assert fields == {
            **who, "transactional_id": "pay::m", "phase": "Empty", "wanted": "commit", "named_epoch": named
        }  # fmt: skip

    cluster.play_up(scenario)


def test_the_end_of_a_transaction_has_one_id_at_its_coordinator_and_where_its_markers_are_written() -> (
    None
):
    cluster = Told(seed="ended", **{"request.log": "api=EndTxn"})

    async def scenario() -> None:
        for number in range(8):  # until coordinator and leader are two nodes
            group = f"pay{number}"
            who = await cluster.starts(group, "m")
            leader = cluster.partition().leader
            if cluster.coordinator(group) != leader:
                break
        coordinator = cluster.coordinator(group)
        assert coordinator != leader
        await cluster.writes(group, "m", who, "t")
        await cluster._until(
            group,
            ApiKey.end_txn,
            lambda reply: reply.error_code,
            3,
            transactional_id=f"{group}::m",
            committed=True,
            **who,
        )
        await cluster.until_phases(group, "CompleteCommit", "m")
        (told,) = cluster.events(coordinator, "request")
        (served,) = cluster.events(leader, "peer_request")
        assert served["kind"] == "write_txn_markers"
        assert served["request_id"] == told["request_id"]
        assert told["request_id"].startswith(f"{coordinator}-")

    cluster.play_up(scenario)


def test_a_coordinator_that_moves_is_told_where_it_leaves_and_where_it_comes_with_why() -> None:
    cluster = Told(seed="moves")

    async def scenario() -> None:
        await cluster.begun()
        before = cluster.coordinator("pay")
        await cluster.nodes.stop(before)
        await cluster.until(lambda: cluster.coordinator("pay") not in (before, -1))
        after = cluster.coordinator("pay")
        await asyncio.sleep(5.0)
        left = [fields for node, fields in cluster.told("coordinator_unloaded") if node == before]
        assert any(each["cause"].startswith(f"node {after} leads it in epoch") for each in left)
        (came, *_) = [
            fields for node, fields in cluster.told("coordinator_loaded") if node == after
        ]
        assert came["cause"].startswith(f"node {after} leads it in epoch") and came["records"] > 0

    cluster.play_up(scenario)
