"""Long work in pieces, and who runs in between."""

import asyncio

from fencepost.chaos.sim.world import World
from fencepost.txn.runtime.pace import Pace


def test_others_run_between_any_two_pieces() -> None:
    ran: list[str] = []

    async def go(world: World) -> None:
        pace = Pace(world.node("n").clock)

        async def work(name: str) -> None:
            for _ in range(3):
                ran.append(name)
                await pace.breathe()

        async def others() -> None:
            while len(ran) < 100 and not all(task.done() for task in workers):
                ran.append(".")
                await asyncio.sleep(0)

        loop = asyncio.get_running_loop()
        workers = [loop.create_task(work(name)) for name in "abcd"]
        await others()

    with World(seed=1) as world:
        world.run(world.on(world.node("n"), go(world)))
    pieces = "".join(ran)
    begun = pieces.index("abcd") + 4  # nobody has had a piece yet: each may begin
    assert sorted(pieces.replace(".", "")) == sorted("abcd" * 3)
    for one, two in zip(pieces[begun:], pieces[begun + 1 :], strict=False):
        assert "." in (one, two), pieces


def test_a_rest_leaves_the_loop_alone() -> None:
    async def go(world: World) -> float:
        clock = world.node("n").clock
        pace = Pace(clock)
        began = clock.steady()
        await asyncio.gather(*(pace.breathe(0.01) for _ in range(5)))
        return clock.steady() - began

    with World(seed=1) as world:
        took_s = world.run(world.on(world.node("n"), go(world)))
    assert took_s >= 0.05
