"""Three doors under random faults: what each request's outcome says is true, and the door mends itself."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.peer_door import PeerDoor, PeerStream
from peer_place import ONE, SECRET, THREE, TWO, until

NODES = (ONE, TWO, THREE)


class Cluster:
    """Each node asks the others without end; a request is a number that its handler writes down."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.stream("faults")
        self.doors: dict[BrokerId, PeerDoor] = {}
        self.last = 0
        self.done: dict[int, int] = {}
        self.outcomes: dict[int, Outcome | None] = {}
        self.in_order: dict[tuple[object, ...], int] = {}
        self.streamed = 0

    async def start(self, node_id: BrokerId) -> None:
        env = self.world.node(f"node-{node_id}")
        door = PeerDoor(
            env,
            node_id,
            secret=SECRET,
            cluster_id=lambda: "c",
            address_of=lambda node_id: (f"node-{node_id}", 9192),
        )
        self.doors[node_id] = door
        door.on_request("do", self._do)
        door.on_message("note", self._note(door))
        door.on_stream("count", self._count)
        await door.open(f"node-{node_id}", 9192)
        door.watch(NODES)
        for other in NODES:
            if other != node_id:
                env.tasks.spawn(self._ask(door, other), name="asks")
                env.tasks.spawn(self._stream(door, other), name="streams")

    async def _do(self, peer: BrokerId, header: dict[str, Any], payload: memoryview) -> Any:
        number = header["number"]
        self.done[number] = self.done.get(number, 0) + 1
        await asyncio.sleep(self.rng.choice((0, 0.01, 0.5)))
        if number % 10 == 0:
            raise Trouble("it was done, and I say so", Outcome.UNKNOWN)
        return {"number": number}, payload

    def _note(self, door: PeerDoor) -> Any:
        def note(peer: BrokerId, header: dict[str, Any], payload: memoryview) -> None:
            assert len(payload) == header["size"]
            # Never twice, and in order on whichever connection: the sender names it.
            key = (door, peer, *header["path"])
            assert self.in_order.get(key, -1) < header["number"], "a message came late or twice"
            self.in_order[key] = header["number"]

        return note

    async def _ask(self, door: PeerDoor, other: BrokerId) -> None:
        while True:
            self.last += 1
            number = self.last
            size = self.rng.choice((0, 10, 70_000))
            wire = door._wire(other)
            path = [door.me.incarnation, id(wire)]
            header = {"number": number, "size": size, "path": path}
            door.send(other, "note", header, bytes(size))
            self.outcomes[number] = Outcome.UNKNOWN
            try:
                timeout_s = self.rng.choice((0.01, 0.1, 2.0))
                answer, payload = await door.request(
                    other, "do", {"number": number}, bytes(size), timeout_s=timeout_s
                )
            except Trouble as trouble:
                self.outcomes[number] = trouble.outcome
            else:
                assert (answer, len(payload)) == ({"number": number}, size)
                self.outcomes[number] = None
            await asyncio.sleep(0.02)

    async def _count(self, peer: BrokerId, hello: dict[str, Any], stream: PeerStream) -> None:
        expected = 0
        while (frame := await stream.read()) is not None:
            assert frame[0] == {"n": expected}
            assert bytes(frame[1]) == bytes(expected * 100)
            expected += 1
            self.streamed += 1
            stream.write({"ack": expected})

    async def _stream(self, door: PeerDoor, other: BrokerId) -> None:
        while True:
            try:
                stream = await door.open_stream(other, "count", {})
            except Trouble:
                await asyncio.sleep(0.1)
                continue
            try:
                for n in range(50):
                    stream.write({"n": n}, [bytes(n * 100)])
                    await stream.drain()
                    answer = await stream.read()
                    if answer is None:  # a process that is killed may look like one that closed
                        break
                    assert answer[0] == {"ack": n + 1}
                    await asyncio.sleep(0.02)
            except Trouble:
                continue
            finally:
                stream.close()

    async def fault(self) -> None:
        world, rng = self.world, self.rng
        one, other = rng.sample(NODES, 2)
        a, b = f"node-{one}", f"node-{other}"
        match rng.choice(("cut", "one way", "reset", "kill", "crash", "pause", "flaky", "slow")):
            case "cut":
                world.net.cut(a, b)
            case "one way":
                world.net.cut(a, b, one_way=True)
            case "reset":
                world.net.reset(a, b)
            case "kill" if world.is_up(a):
                world.kill(a)
            case "crash" if world.is_up(a):
                world.crash(a, silent=True)
            case "pause" if world.is_up(a):
                world.pause(a)
            case "flaky":
                world.net.link(a, b).reset_odds = 0.05
            case "slow":
                world.net.link(a, b).bytes_per_s = 100_000
        await asyncio.sleep(rng.uniform(0.0, 4.0))
        world.heal()
        for node_id in NODES:
            if not world.is_up(f"node-{node_id}"):
                world.restart(f"node-{node_id}")
                await self.start(node_id)

    async def run(self) -> None:
        for node_id in NODES:
            await self.start(node_id)
        for _ in range(12):
            await asyncio.sleep(self.rng.uniform(0.0, 1.0))
            try:
                await self.fault()
            except NodeLost:
                continue
        await until(self.is_whole, 5.0)
        await asyncio.sleep(3)
        assert self.is_whole(), "nothing goes wrong any more"

    def is_whole(self) -> bool:
        return all(
            door.connected() == [other for other in NODES if other != node_id]
            for node_id, door in self.doors.items()
        )


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(6))
def test_a_refused_request_was_never_done_and_no_request_is_done_twice(seed: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world)
        world.run(cluster.run())
    told = list(cluster.outcomes.values())
    assert told.count(None) > 50 and told.count(Outcome.REFUSED) > 5, "the run was worth it"
    assert cluster.streamed > 50
    for number, outcome in cluster.outcomes.items():
        times = cluster.done.get(number, 0)
        assert times <= 1
        if outcome is None:
            assert times == 1
        if outcome is Outcome.REFUSED:
            assert times == 0, f"request {number} was called refused, and was done"
