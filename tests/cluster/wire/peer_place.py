"""Doors of several nodes, in one process: over real sockets, and in the simulation with its faults."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fencepost.chaos.sim.loop import SimLoop
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.wire.peer_door import PeerDoor, PeerTimes

SECRET = b"a secret of the cluster"
# In reality: quick where a test waits for it, and patient where a busy machine would be taken for a silent peer.
QUICK = PeerTimes(ping_s=0.05, silence_s=10.0, connect_s=10.0, handshake_s=1.0)
SOON_S = 30.0
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
PEER_PORT = 9192


class Lines:
    """A log that a test can read."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    warn = error = info


class Place:
    """Where a scenario runs. `world` is None in reality."""

    def __init__(self, env: Env | None, world: World | None, lines: Lines) -> None:
        self.world = world
        self.times = PeerTimes() if world else QUICK
        self._env = env
        self._lines = lines
        self.addresses: dict[BrokerId, tuple[str, int]] = {}
        self.doors: list[PeerDoor] = []

    def within_s(self, seconds: float, in_reality_s: float = SOON_S) -> float:
        """A bound that virtual time is held to, and how far off it is where the machine may be busy."""
        return seconds if self.world else in_reality_s

    def env(self, node_id: BrokerId) -> Env:
        if self.world is not None:
            return self.world.node(f"node-{node_id}")
        assert self._env is not None
        return self._env

    async def door(
        self,
        node_id: BrokerId,
        *,
        secret: bytes = SECRET,
        cluster_id: str | Callable[[], str] = "c",
        prepare: Callable[[PeerDoor], None] | None = None,
        listen: bool = True,
        env: Env | None = None,
        port: int | None = None,
    ) -> PeerDoor:
        told = cluster_id if callable(cluster_id) else lambda: cluster_id
        door = PeerDoor(
            env or self.env(node_id),
            node_id,
            secret=secret,
            cluster_id=told,
            address_of=self.addresses.get,
            times=self.times,
        )
        self.doors.append(door)
        if prepare is not None:
            prepare(door)
        if listen:
            host = f"node-{node_id}" if self.world else "127.0.0.1"
            at = PEER_PORT if self.world else 0
            self.addresses[node_id] = await door.open(host, at if port is None else port)
        return door

    def logged(self, node_id: BrokerId, event: str) -> list[dict[str, Any]]:
        """What the node logged of that sort (in reality: any of the nodes)."""
        if self.world is None:
            return [fields for name, fields in self._lines.lines if name == event]
        events = self.world.machine(f"node-{node_id}").events
        return [fields for _, name, fields in events if name == event]


async def until(condition: Callable[[], object], limit_s: float | None = None) -> None:
    if limit_s is None:
        limit_s = 10.0 if isinstance(asyncio.get_running_loop(), SimLoop) else SOON_S
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


Scenario = Callable[[Place], Coroutine[Any, Any, None]]


class RealHost:
    def __init__(self, runner: Callable[[Any], Any]) -> None:
        self._runner = runner

    def run(self, scenario: Scenario) -> None:
        async def main() -> None:
            lines = Lines()
            async with open_env(log=lines) as env:
                place = Place(env, None, lines)
                async with asyncio.timeout(1.5 * SOON_S):
                    await scenario(place)
                for door in place.doors:
                    await door.close()

        self._runner(main())


class SimHost:
    def __init__(self, seed: int = 1) -> None:
        self._seed = seed

    def run(self, scenario: Scenario) -> None:
        with World(self._seed) as world:
            place = Place(None, world, Lines())
            world.run(scenario(place))


def in_simulation(scenario: Scenario, seeds: int = 1) -> None:
    for seed in range(seeds):
        SimHost(seed).run(scenario)


Handler = Callable[[BrokerId, dict[str, Any], memoryview], Awaitable[tuple[dict[str, Any], bytes]]]


async def reverse(
    peer: BrokerId, header: dict[str, Any], payload: memoryview
) -> tuple[dict[str, Any], bytes]:
    return {"peer": peer, **header}, bytes(payload)[::-1]


async def connected(place: Place, **more: Any) -> tuple[PeerDoor, PeerDoor]:
    one, two = await place.door(ONE), await place.door(TWO, **more)
    one.watch([ONE, TWO])
    two.watch([ONE, TWO])
    await until(lambda: one.connected() == [TWO] and two.connected() == [ONE])
    return one, two
