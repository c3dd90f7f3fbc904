"""Voters come and go, whichever node is asked, and what is refused."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import PEER_PORT, node_name
from fencepost.cluster.base.errors import ConnectionLost, ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.api import ApiKey
from sim_cluster import Cluster

E = ErrorCode
NO_ID = None


async def add(cluster: Cluster, asked: int, voter: int, **other: Any) -> tuple[E, str | None]:
    fields = {"cluster_id": None, "timeout": 15_000, "voter_directory_id": NO_ID, "listeners": []}
    reply = await cluster.ask(asked, ApiKey.add_raft_voter, voter_id=voter, **{**fields, **other})
    return reply.error_code, reply.error_message


async def remove(cluster: Cluster, asked: int, voter: int, **other: Any) -> tuple[E, str | None]:
    fields = {"cluster_id": None, "voter_directory_id": NO_ID}
    reply = await cluster.ask(
        asked, ApiKey.remove_raft_voter, voter_id=voter, **{**fields, **other}
    )
    return reply.error_code, reply.error_message


def voters(cluster: Cluster, node_id: int) -> list[int]:
    return sorted(cluster.nodes.broker(node_id).quorum.voters)


def test_any_node_may_be_asked_to_add_and_to_remove_a_voter() -> None:
    cluster = Cluster(5)

    async def scenario() -> None:
        assert voters(cluster, 5) == [1, 2, 3]
        assert await add(cluster, 5, 4) == (E.none, None)
        assert await add(cluster, 2, 5) == (E.none, None)
        await cluster.until(lambda: all(voters(cluster, n) == [1, 2, 3, 4, 5] for n in range(1, 6)))
        assert await remove(cluster, 4, 1) == (E.none, None)
        assert await remove(cluster, 1, 2) == (E.none, None), "a node that votes no more is asked"
        await cluster.until(lambda: all(voters(cluster, n) == [3, 4, 5] for n in range(1, 6)))
        assert (await cluster.create("t")).error_code is E.none

    cluster.play(scenario)


def test_what_can_not_be_is_refused_in_kafkas_codes() -> None:
    cluster = Cluster(4)

    async def scenario() -> None:
        mine = cluster.nodes.broker(1).image.cluster_id
        assert await add(cluster, 4, 1) == (E.duplicate_voter, "Node 1 is a voter already.")
        assert await remove(cluster, 4, 4) == (E.voter_not_found, "Node 4 is no voter.")
        code, why = await add(cluster, 1, 9)
        assert code is E.invalid_request and "node 9 has registered none" in str(why)
        for host, port, says in (
            ("node-9..local", 9192, "'node-9..local' is no host name"),
            ("x" * 64, 9192, "is no host name"),
            ("a b", 9192, "'a b' is no host name"),
            ("0.0.0.0", 9192, "nobody can connect to 0.0.0.0:9192"),
            ("node-9", 0, "nobody can connect to node-9:0"),
        ):
            there = [{"name": "PEER", "host": host, "port": port}]
            code, why = await add(cluster, 4, 9, listeners=there)
            assert (code, says in str(why)) == (E.invalid_request, True), why
        elsewhere = [{"name": "PEER", "host": "nowhere", "port": 9192}]
        assert await add(cluster, 1, 9, listeners=elsewhere) == (
            E.invalid_request,
            "Node 9 is not registered, and nobody knows what it can read: start it, then add it.",
        )
        assert await add(cluster, 1, -1) == (
            E.invalid_request,
            "Add voter request didn't include a valid voter",
        )
        assert await remove(cluster, 1, -1) == (
            E.invalid_request,
            "Remove voter request didn't include a valid voter",
        )
        other = {"cluster_id": "another"}
        sentence = f'The given id "another" doesn\'t match the cluster id "{mine}"'
        assert await add(cluster, 1, 4, **other) == (E.inconsistent_cluster_id, sentence)
        assert await remove(cluster, 1, 1, **other) == (E.inconsistent_cluster_id, sentence)
        assert await add(cluster, 1, 4, cluster_id=mine) == (E.none, None)

    cluster.play(scenario)


def test_a_node_that_does_not_follow_the_log_is_not_made_a_voter() -> None:
    cluster = Cluster(4)

    async def scenario() -> None:
        cluster.kill(4)
        assert (await cluster.create("t")).error_code is E.none
        elsewhere = [{"name": "PEER", "host": "nowhere", "port": 9192}]
        for there in ([], elsewhere):
            code, why = await add(cluster, 1, 4, listeners=there)
            assert code is E.request_timed_out
            assert why == "Node 4 does not follow the metadata log: start it, then add it."

    cluster.play(scenario)


def test_who_was_taken_off_the_list_is_made_a_voter_when_it_has_registered_again() -> None:
    """What a voter can read must be known, or the first command that it can't read ends it (`metadata/levels.py`)."""
    cluster = Cluster(4)

    async def scenario() -> None:
        image = cluster.nodes.broker(1).image
        there = [{"name": "PEER", "host": node_name(4), "port": PEER_PORT}]
        cluster.world.pause(node_name(4))
        await cluster.until(lambda: image.brokers[BrokerId(4)].fenced)
        reply = await cluster.ask(1, ApiKey.unregister_broker, broker_id=4)
        assert reply.error_code is E.none
        adding = asyncio.ensure_future(add(cluster, 2, 4, listeners=there))
        await asyncio.sleep(0.1)
        # It follows the log at once, and registers a moment later.
        cluster.world.resume(node_name(4))
        code, why = await adding
        assert code is E.invalid_request and "is not registered" in str(why)
        assert voters(cluster, 1) == [1, 2, 3]
        await cluster.nodes.until_whole()
        assert await add(cluster, 2, 4, listeners=there) == (E.none, None)

    cluster.play(scenario)


def test_the_only_voter_is_not_removed() -> None:
    cluster = Cluster(1)

    async def scenario() -> None:
        assert await remove(cluster, 1, 1) == (E.invalid_request, "Node 1 is the only voter.")
        code, why = await add(cluster, 1, 2)
        assert code is E.invalid_request and "needs a peer.listener" in str(why)

    cluster.play(scenario)


def test_two_changes_at_once_are_made_one_after_the_other_or_refused() -> None:
    cluster = Cluster(5)

    async def scenario() -> None:
        answers = await asyncio.gather(add(cluster, 1, 4), add(cluster, 2, 5))
        codes = [code for code, _ in answers]
        assert set(codes) <= {E.none, E.request_timed_out} and E.none in codes
        done = [node for node, code in zip((4, 5), codes, strict=True) if code is E.none]
        await cluster.until(lambda: voters(cluster, 3) == [1, 2, 3, *done])

    cluster.play(scenario)


def test_while_nobody_leads_the_change_waits_and_is_then_said_to_have_failed() -> None:
    cluster = Cluster(4)

    async def scenario() -> None:
        cluster.kill(1)
        cluster.kill(2)
        code, _ = await add(cluster, 3, 4, timeout=2_000)
        assert code is E.request_timed_out
        assert voters(cluster, 3) == [1, 2, 3]

    cluster.play(scenario)


def test_a_change_is_made_once_though_the_controller_dies_under_it() -> None:
    cluster = Cluster(4)

    async def scenario() -> None:
        leader = cluster.nodes.controller()
        assert leader is not None
        asked = next(each for each in (1, 2, 3) if each != leader)
        adding = asyncio.ensure_future(add(cluster, asked, 4))
        await asyncio.sleep(0.003)
        cluster.kill(leader)
        assert await adding == (E.none, None)
        cluster.nodes.start(leader)
        await cluster.until(lambda: all(voters(cluster, n) == [1, 2, 3, 4] for n in (1, 2, 3, 4)))

    cluster.play(scenario)


def test_no_address_ends_the_node_that_is_asked_to_hand_it_on() -> None:
    """Each byte that is no UTF-8 has three once it is read: with 98 KB of a host, a header fits no frame between nodes."""
    cluster = Cluster()

    async def scenario() -> None:
        there = [{"name": "PEER", "host": b"\xff" * 32767, "port": 9192}]
        for asked in (1, 2, 3):
            with pytest.raises(ConnectionLost):
                await add(cluster, asked, 9, listeners=there)
            assert (await cluster.ask(asked, ApiKey.describe_cluster)).error_code is E.none

    cluster.play(scenario)
