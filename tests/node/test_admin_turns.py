"""Those who show the admin door no token, and are many."""

import asyncio
import json

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ports import HttpReply, HttpRequest
from fencepost.node.admin.door import AdminDoor
from fencepost.node.admin.turns import (
    ADDRESSES_MAX,
    TURN_WAIT_S,
    TURNS_AT_ONCE,
    TURNS_PER_S,
    Turns,
)

TOKEN = "of-the-night-shift"
CROWD = 3_000


class Door:
    """One that other machines reach; when it answered whom with what."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.env = world.node("n")
        self.door = AdminDoor(
            self.env, None, is_ready=lambda: True, token=TOKEN, told={"/health/live": self.told}
        )
        self.answers: list[tuple[float, int]] = []

    async def told(self, _request: HttpRequest) -> HttpReply:
        return HttpReply(200, b"{}")

    async def ask(self, remote: str, path: str = "/health/live", shown: str = "") -> HttpReply:
        request = HttpRequest("GET", path, {}, b"", remote=remote, authorization=shown)
        reply = await self.door.handle(request)
        self.answers.append((self.world.loop.time(), reply.status))
        return reply


@pytest.mark.parametrize(("path", "usual"), [("/health/live", 200), ("/v1/checks", 401)])
def test_a_crowd_of_one_address_is_answered_at_its_rate_and_no_other_waits_for_it(
    path: str, usual: int
) -> None:
    with World(seed=1) as world:
        door = Door(world)

        async def scenario() -> None:
            await door.door.open("0.0.0.0", 9644)
            began_s = world.loop.time()
            crowd = [asyncio.ensure_future(door.ask("10.0.0.1", path)) for _ in range(CROWD)]
            await asyncio.sleep(0.1)
            for remote, shown in (("10.0.0.2", ""), ("10.0.0.1", f"Bearer {TOKEN}")):
                asked_s = world.loop.time()
                assert (await door.ask(remote, shown=shown)).status == 200
                assert world.loop.time() == asked_s
            replies = await asyncio.gather(*crowd)
            took_s = world.loop.time() - began_s
            served = sum(reply.status == usual for reply in replies)
            assert served == pytest.approx(TURNS_AT_ONCE + TURNS_PER_S * TURN_WAIT_S, abs=2)
            refused = {reply.body for reply in replies if reply.status != usual}
            (said,) = refused
            assert json.loads(said)["error"] == "THROTTLING_QUOTA_EXCEEDED"
            assert took_s == pytest.approx(TURN_WAIT_S, abs=0.1)
            at_once = sum(at_s == began_s for at_s, _ in door.answers)
            assert at_once == pytest.approx(TURNS_AT_ONCE, abs=2)

        world.run(world.on(door.env, scenario()))


def test_who_asks_now_and_then_never_waits() -> None:
    with World(seed=1) as world:
        door = Door(world)

        async def scenario() -> None:
            for _ in range(200):
                asked_s = world.loop.time()
                await door.ask("10.0.0.1")
                assert world.loop.time() == asked_s
                await asyncio.sleep(1.1 / TURNS_PER_S)

        world.run(world.on(door.env, scenario()))


def test_addresses_that_ask_no_more_are_forgotten() -> None:
    with World(seed=1) as world:
        env = world.node("n")
        turns = Turns(env.clock)

        async def scenario() -> None:
            for number in range(3 * ADDRESSES_MAX):
                assert await turns.take(str(number))
                if number % 100 == 0:
                    await asyncio.sleep(0.1)
            assert len(turns._next_s) <= ADDRESSES_MAX

        world.run(world.on(env, scenario()))
