"""A voter that is killed, loses power and fills its disk, again and again, while clients propose."""

import asyncio
import contextlib

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.metadata.records import ConfigsChanged
from fencepost.cluster.quorum import store
from fencepost.cluster.quorum.raft_shell import Quorum

LIVES = 12


class Voter:
    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.stream("faults")
        self.asked: list[str] = []
        self.acknowledged: set[str] = set()

    async def start(self) -> None:
        self.machine = MetadataMachine()
        self.quorum = Quorum(self.world.node("a"), "/data/q", self.machine, 1, {1: ("a", 1)})
        await self.quorum.start()
        await self.quorum.wait_ready()

    async def live(self, clients: int) -> None:
        await self.start()
        await asyncio.gather(*(self.client() for _ in range(clients)))

    async def client(self) -> None:
        while True:
            name = f"s{len(self.asked)}"
            self.asked.append(name)
            change = ConfigsChanged(resource_type=ConfigType.BROKER, name="", changes={name: "1"})
            try:
                await self.quorum.propose(encode([change]))
                self.acknowledged.add(name)
            except Trouble:
                await self.world.node("a").clock.sleep(0.01)

    async def one_life(self) -> None:
        world, rng, disk = self.world, self.rng, self.world.disk("a")
        if rng.random() < 0.7:
            world.crash_at_disk_op("a", rng.randint(1, 90), kill=rng.random() < 0.5)
        if rng.random() < 0.3:
            disk.files.capacity = disk.files.used + rng.randint(0, 3000)
        life = asyncio.ensure_future(world.on(world.node("a"), self.live(rng.choice((1, 3, 20)))))
        await asyncio.wait([life], timeout=rng.uniform(0.01, 0.4))
        match rng.choice(("power", "kill", "stop")):
            case "power":
                world.crash("a", torn=rng.random() < 0.8)
            case "stop" if world.is_up("a"):
                with contextlib.suppress(Trouble, TimeoutError):
                    await asyncio.wait_for(world.on(world.node("a"), self.quorum.stop()), 1)
        world.kill("a")
        life.cancel()
        await asyncio.wait([life])
        disk.files.capacity = None
        world.heal()

    async def run(self) -> None:
        self.world.node("a")
        for _ in range(LIVES):
            await self.one_life()
            env = self.world.restart("a")
            await self.world.on(env, self.start())
            found = set(self.machine.image.config(ConfigType.BROKER, ""))
            assert self.acknowledged <= found <= set(self.asked)
            self.world.restart("a")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_nothing_acknowledged_is_lost_through_any_faults(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 25)
    monkeypatch.setattr("fencepost.cluster.quorum.journal.SEGMENT_BYTES_MAX", 900)
    with World(seed=seed) as world:
        voter = Voter(world)
        world.run(voter.run())
        assert len(voter.acknowledged) > 30
