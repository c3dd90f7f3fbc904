"""A node is taken off the list while it is waited for to be made a voter (node/voters.py: _check_registered)."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.controller.brokers_policy import decide_unregister_broker
from fencepost.cluster.controller.commands import UnregisterBroker
from fencepost.cluster.wire.api import ApiKey
from sim_cluster import Cluster
from test_voter_changes import add

E = ErrorCode
B4 = BrokerId(4)


def test_who_is_taken_off_the_list_while_it_is_waited_for_is_not_made_a_voter() -> None:
    cluster = Cluster(4)

    async def scenario() -> None:
        leader = cluster.nodes.controller()
        assert leader is not None
        quorum, image = cluster.nodes.broker(leader).quorum, cluster.nodes.broker(leader).image
        cluster.world.pause(node_name(4))
        await cluster.until(lambda: image.brokers[BrokerId(4)].fenced)
        adding = asyncio.ensure_future(add(cluster, leader, 4))
        await asyncio.sleep(0.5)
        assert not adding.done(), "it is waited for until it holds the log"
        reply = await cluster.ask(leader, ApiKey.unregister_broker, broker_id=4)
        assert reply.error_code is E.none
        # It is of an older build, and is refused when it comes back; or its controller is slow.
        session = cluster.nodes.broker(4).session
        before = session._register

        async def later() -> None:
            await asyncio.sleep(2)
            await before()

        session._register = later
        cluster.world.resume(node_name(4))
        was_unknown = False

        def is_voter() -> bool:
            nonlocal was_unknown
            if 4 in quorum.voters:
                was_unknown = was_unknown or BrokerId(4) not in image.brokers
                return True
            return adding.done()

        await cluster.until(is_voter)
        assert not was_unknown, "it votes, and nobody knows what it can read"
        assert (await adding)[0] is not E.none

    cluster.play(scenario)


def test_who_is_on_the_way_to_be_a_voter_is_not_taken_off_the_list() -> None:
    """Its set was submitted, and waits for the journal's sync: it is in no log yet."""
    cluster = Cluster(4)

    async def scenario() -> None:
        leader = cluster.nodes.controller()
        assert leader is not None
        broker = cluster.nodes.broker(leader)
        raft, image = broker.quorum._raft, broker.image
        assert raft is not None
        submit, said = raft.submit_voters, []
        asked: list[asyncio.Future[None]] = []

        async def unregister() -> None:
            decide = partial(decide_unregister_broker, command=UnregisterBroker(broker_id=B4))
            said.append(await broker.active_controller.run("unregister", decide))

        def and_unregister(packed: bytes, decided: Callable[[object, int], None]) -> None:
            submit(packed, decided)
            asked.append(asyncio.ensure_future(unregister()))

        cluster.world.pause(node_name(4))
        await cluster.until(lambda: image.brokers[B4].fenced)
        # It follows the log again, and is fenced for a while yet.
        session = cluster.nodes.broker(4).session
        register, beat = session._register, session._heartbeat

        async def slowly(call: Callable[..., Awaitable[Any]], **fields: Any) -> Any:
            await asyncio.sleep(20)
            return await call(**fields)

        session._register, session._heartbeat = partial(slowly, register), partial(slowly, beat)
        raft.submit_voters = and_unregister
        adding = asyncio.ensure_future(add(cluster, leader, 4))
        await asyncio.sleep(0.2)
        cluster.world.resume(node_name(4))
        assert await adding == (E.none, None)
        await cluster.until(lambda: bool(said))
        assert said[0].error_code is E.invalid_request
        assert 4 in broker.quorum.voters and B4 in image.brokers

    cluster.play(scenario)
