"""A quorum of several nodes in the simulator, started, stopped and asked by tests."""

import asyncio

from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.quorum_links import PORT, QuorumLinks, host_of
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.metadata.records import ConfigsChanged
from fencepost.cluster.quorum.raft_shell import Quorum

FOLDER = "/data/quorum"


def setting(name: str, value: str = "1") -> bytes:
    return encode([ConfigsChanged(resource_type=ConfigType.BROKER, name="", changes={name: value})])


class Nodes:
    """`voters` vote at first; node ids above them only read."""

    def __init__(self, world: World, voters: int, observers: int = 0) -> None:
        self.world = world
        self.ids = list(range(1, voters + observers + 1))
        self.peers = {each: (host_of(each), PORT) for each in self.ids}
        self.first_voters = {each: self.peers[each] for each in range(1, voters + 1)}
        self.quorums: dict[int, Quorum] = {}

    def env(self, node_id: int) -> SimEnv:
        return self.world.node(host_of(node_id))

    async def start(self, *node_ids: int) -> None:
        for each in node_ids or self.ids:
            await self.world.on(self.env(each), self._start(each))

    async def _start(self, node_id: int) -> None:
        env = self.env(node_id)
        links = QuorumLinks(env, node_id, self.peers)
        machine = MetadataMachine()
        quorum = Quorum(env, FOLDER, machine, node_id, self.first_voters, links)
        self.quorums[node_id] = quorum
        await quorum.start()
        await links.open(quorum)

    def restart(self, node_id: int) -> None:
        self.quorums.pop(node_id, None)
        self.world.restart(host_of(node_id))

    def kill(self, node_id: int) -> None:
        self.world.kill(host_of(node_id))

    def crash(self, node_id: int, **how: bool) -> None:
        self.world.crash(host_of(node_id), **how)

    def is_up(self, node_id: int) -> bool:
        return self.world.is_up(host_of(node_id)) and node_id in self.quorums

    def up(self) -> list[int]:
        return [each for each in self.ids if self.is_up(each)]

    def leaders(self) -> list[int]:
        return [each for each in self.up() if self.quorums[each].is_leader]

    async def leader(self, *, among: list[int] | None = None, timeout_s: float = 10) -> int:
        """Until one leads that all who are up agree on."""
        async with asyncio.timeout(timeout_s):
            while True:
                wanted = self.up() if among is None else among
                known = {self.quorums[each].leader_id for each in wanted}
                one = known.pop() if len(known) == 1 else None
                if one in wanted and self.quorums[one].is_leader:
                    return one
                await asyncio.sleep(0.001)

    async def propose(self, node_id: int, name: str, value: str = "1") -> object:
        work = self.quorums[node_id].propose(setting(name, value))
        return await self.world.on(self.env(node_id), work)

    async def agree(self, name: str, value: str = "1", *, timeout_s: float = 20) -> None:
        """Ask whoever leads, until it is done."""
        async with asyncio.timeout(timeout_s):
            while True:
                for each in self.leaders():
                    try:
                        await self.propose(each, name, value)
                    except Trouble:
                        continue
                    return
                await asyncio.sleep(0.01)

    def settings(self, node_id: int) -> dict[str, str]:
        return dict(self.quorums[node_id].image.config(ConfigType.BROKER, ""))

    async def alike(self, *, timeout_s: float = 10) -> None:
        """Until all who are up have applied the same."""
        async with asyncio.timeout(timeout_s):
            while len({self.quorums[each].image.version for each in self.up()}) != 1:
                await asyncio.sleep(0.005)
        assert len({str(sorted(self.settings(each).items())) for each in self.up()}) == 1
