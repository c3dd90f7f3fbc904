"""Three voters on the kernel's own sockets and files, through the peer door: a simulation says nothing about those."""

import asyncio
import pathlib
import socket
import time

import pytest
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.real_env import RealEnv
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.metadata.records import ConfigsChanged
from fencepost.cluster.quorum.raft_shell import Quorum
from fencepost.cluster.wire.peer_door import PeerDoor
from support.alone import held_to


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def setting(name: str) -> bytes:
    return encode([ConfigsChanged(resource_type=ConfigType.BROKER, name="", changes={name: "1"})])


class Node:
    def __init__(self, folder: str, node_id: int, peers: dict[int, tuple[str, int]]) -> None:
        self.env, self.machine = RealEnv(), MetadataMachine()
        self.node_id, self.peers = node_id, peers
        self.door = PeerDoor(
            self.env, node_id, secret=b"", cluster_id=lambda: "", address_of=peers.get
        )
        self.quorum = Quorum(self.env, folder, self.machine, node_id, peers, self)

    def send(self, node_id: int, frame: bytes) -> None:
        self.door.send(node_id, "quorum", {}, frame)

    async def start(self) -> None:
        await self.quorum.start()
        self.door.on_message("quorum", lambda peer, _, frame: self.quorum.on_frame(peer, frame))
        self.door.on_up(self.quorum.on_peer_up)
        self.door.on_gone(self.quorum.on_peer_gone)
        await self.door.open(*self.peers[self.node_id])
        self.door.watch([each for each in self.peers if each != self.node_id])

    async def stop(self) -> None:
        await self.quorum.stop()
        await self.door.close()
        await self.env.tasks.cancel_all()


async def agree(nodes: list[Node], name: str) -> Node:
    """Whoever leads then: on a busy machine a lead may lapse."""
    while True:
        for node in nodes:
            if node.quorum.is_leader:
                try:
                    await node.quorum.propose(setting(name))
                    return node
                except Trouble:
                    continue
        await asyncio.sleep(0.005)


@pytest.mark.slow
@pytest.mark.timed
def test_three_voters_agree_and_go_on_when_the_leader_stops(tmp_path: pathlib.Path) -> None:
    async def life() -> None:
        ports = free_ports(3)
        peers = {each: ("127.0.0.1", ports[each - 1]) for each in (1, 2, 3)}
        nodes = [Node(str(tmp_path / str(each)), each, peers) for each in peers]
        for node in nodes:
            await node.start()
        async with asyncio.timeout(60):
            await asyncio.gather(*(node.quorum.wait_ready() for node in nodes))
            await asyncio.gather(*(agree(nodes, f"s{number}") for number in range(200)))
            leader = await agree(nodes, "s0")
            nodes.remove(leader)
            await leader.stop()
            stopped = time.monotonic()
            while not any(node.quorum.is_leader for node in nodes):
                await asyncio.sleep(0.005)
            assert time.monotonic() - stopped < held_to(3.0)
            second = await agree(nodes, "after")
            assert len(second.machine.image.config(ConfigType.BROKER, "")) == 201
            for node in nodes:
                await node.stop()

    asyncio.run(life())
