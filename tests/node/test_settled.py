"""How long an answer waits for the cluster to say what became of a broker that was just lost sight of."""

import asyncio
from types import SimpleNamespace

import pytest
from fencepost.node.peers import Peers


@pytest.mark.parametrize("left_s", [0.0, 1e-12, -1.0])
def test_a_wait_that_is_over_but_for_a_rounding_is_over(left_s: float) -> None:
    peers = Peers.__new__(Peers)
    peers.door = SimpleNamespace()  # type: ignore[assignment]
    peers._env = SimpleNamespace(clock=SimpleNamespace(sleep=asyncio.sleep))  # type: ignore[assignment]
    peers._settling = []
    peers._wait_s = lambda: left_s  # type: ignore[method-assign]

    async def scenario() -> None:
        async with asyncio.timeout(30.0):
            await peers.settled()

    asyncio.run(scenario())
