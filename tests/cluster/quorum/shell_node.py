"""A voter that is alone, started anew as often as one likes."""

from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.quorum.raft_shell import Quorum
from support.quorum_nodes import FOLDER

JOURNAL = f"{FOLDER}/{1:020d}.journal"


class Node:
    """One voter, started anew as often as one likes."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def start(self) -> None:
        self.machine = MetadataMachine()
        self.quorum = Quorum(self.env, FOLDER, self.machine, 1, {1: ("a", 9192)})
        await self.quorum.start()
        await self.quorum.wait_ready()

    @property
    def env(self) -> SimEnv:
        return self.world.node("a")

    def run(self, work) -> object:
        return self.world.run(self.world.on(self.env, work))

    def settings(self) -> dict[str, str]:
        return dict(self.machine.image.config(ConfigType.BROKER, ""))


def syncs(world: World) -> int:
    return sum(line.count("disk.sync ") for line in world.trace.tail(10_000).splitlines())
