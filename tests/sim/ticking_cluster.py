"""A small cluster under faults, run by the determinism tests in processes of their own: prints its digest.

Each node appends what it is sent, syncs, passes it on to the next node and answers; a driver sends,
kills, crashes and cuts. Sets, task groups and timeouts are used on purpose.
"""

import asyncio
import sys
from typing import Any

from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import Trouble

NAMES = ("ash", "birch", "cedar")


def framed(data: bytes) -> list[Any]:
    return [len(data).to_bytes(4, "big"), data]


async def program(env: Any) -> None:
    file = env.disk.open("/data/log", create=True)
    env.disk.sync_folder("/data")
    following = NAMES[(NAMES.index(env.name) + 1) % 3]

    async def pass_on(frame: bytes) -> None:
        connection = await env.net.connect(following, 9092, timeout_s=1.0)
        connection.write(framed(b"passed on " + frame))
        await connection.read_frame(1000)
        connection.close()

    async def serve(connection: Any) -> None:
        while (frame := await connection.read_frame(1 << 20)) is not None:
            data = bytes(frame)
            file.append([data])
            await env.disk.sync([file])
            if not data.startswith(b"passed on"):
                try:
                    async with asyncio.timeout(2), asyncio.TaskGroup() as group:
                        for _ in range(env.rng.randint(1, 3)):
                            group.create_task(pass_on(data))
                except* (Trouble, TimeoutError) as error:
                    env.log.warn("not_passed_on", error=[str(each) for each in error.exceptions])
            connection.write(framed(data))
            await connection.drain()

    await env.net.listen(env.name, 9092, serve)
    env.log.info("serves", names=NAMES)
    await asyncio.Event().wait()


async def client(env: Any, name: str) -> None:
    connection = await env.net.connect(name, 9092, timeout_s=2.0)
    for _ in range(5):
        connection.write(framed(env.rng.randbytes(env.rng.choice((10, 1000, 100_000)))))
        if await connection.read_frame(1 << 20) is None:
            break
    connection.close()


async def drive(world: World) -> None:
    for name in NAMES:
        world.start(world.node(name), program)
    clients = world.node("client")
    for _ in range(40):
        name = world.rng.choice(NAMES)
        what = world.rng.choice(("nothing", "nothing", "kill", "crash", "cut", "at"))
        if what == "kill":
            world.kill(name)
        elif what == "crash":
            world.crash(name, silent=world.rng.random() < 0.5)
        elif what == "cut":
            world.net.isolate(name)
        elif what == "at":
            world.crash_at_disk_op(name, world.rng.randint(1, 10))
        for target in NAMES:
            try:
                async with asyncio.timeout(20):
                    await world.on(clients, client(clients, target))
            except (Trouble, TimeoutError, NodeLost) as error:
                world.trace.event("test", "client", error=error)
        world.heal()
        for each in NAMES:
            if not world.is_up(each):
                world.start(world.restart(each), program)
        await asyncio.sleep(world.rng.random())


def main(seed: str, extra_draws: int = 0) -> World:
    with World(seed) as world:
        world.node("ash")
        for _ in range(extra_draws):
            world.disk("ash").rng.random()
        world.run(drive(world))
    return world


if __name__ == "__main__":
    done = main(sys.argv[1])
    print(done.trace.digest(), sum(done.trace.counts.values()), sorted(done.trace.counts.items()))
