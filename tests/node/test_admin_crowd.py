"""Checkers that wait at one node for what another one coordinates."""

import asyncio

import pytest
from fencepost.cluster.wire.peer_serving import SERVED_AT_ONCE_MAX
from sim_transactions import TransactionCluster

CHECKERS = SERVED_AT_ONCE_MAX + 100


@pytest.mark.slow
def test_a_crowd_of_checkers_keeps_no_node_from_being_heard() -> None:
    """Each waited at the coordinator in one of the places that it has for all that a node asks. It was the controller,
    too, and refused the heartbeats of the node that all of them had come to: that one was fenced."""
    assert any(is_heard_in_a_crowd(f"crowd {number}") for number in range(20))


def is_heard_in_a_crowd(seed: str) -> bool:
    """False: with these dice the controller coordinates nothing."""
    cluster = TransactionCluster(seed=seed)

    async def scenario() -> bool:
        await cluster.starts("job", "a")
        image = cluster.nodes.image
        assert image is not None and image.controller_id is not None
        controller = int(image.controller_id)
        asked = next(each for each in cluster.nodes.ids if each != controller)
        names = [f"g{number}" for number in range(200)]
        there = [each for each in names if cluster.coordinator(each) == controller]
        if len(there) <= 2:
            return False
        polls = [
            asyncio.ensure_future(
                cluster.admin(
                    asked,
                    "POST",
                    "/v1/checks/poll",
                    {
                        "group": there[number % len(there)],
                        "member": f"c{number}",
                        "wait_ms_max": 40_000,
                    },
                )
            )
            for number in range(CHECKERS)
        ]
        await asyncio.sleep(30)
        assert not cluster.events(controller, "broker_fenced")
        assert not cluster.events(asked, "heartbeat_failed")
        statuses = [status for status, _ in await asyncio.gather(*polls)]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= CHECKERS // 3
        return True

    return cluster.play_up(scenario)


@pytest.mark.slow
def test_a_checker_that_hangs_up_leaves_its_place_at_the_coordinator() -> None:
    """Its poll waited there on for a minute; whoever came and went took all places, and was offered checks, too."""
    cluster = TransactionCluster(seed="gone")

    async def scenario() -> None:
        await cluster.starts("job", "a")
        coordinator = cluster.coordinator("job")
        asked = next(each for each in cluster.nodes.ids if each != coordinator)
        poll = {"group": "job", "member": "gone", "wait_ms_max": 60_000}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await cluster.admin(asked, "POST", "/v1/checks/poll", poll)
        await asyncio.sleep(1.0)
        serving = cluster.nodes.brokers[coordinator].peers.door._serving._answering
        assert not [each.get_name() for each in serving if each.get_name().startswith("admin")]

    cluster.play_up(scenario)
