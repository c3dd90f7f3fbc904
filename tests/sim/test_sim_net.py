"""The simulated network: order, cuts, resets, silence."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.file_node import LENT_PAGE
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ConnectionLost
from fencepost.cluster.base.ports import FileSlice
from hypothesis import given, settings
from hypothesis import strategies as st


def in_world(test: Any) -> Any:
    def run() -> None:
        with World(11) as world:
            world.node("a"), world.node("b")
            world.run(test(world))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def framed(data: bytes) -> list[Any]:
    return [len(data).to_bytes(4, "big"), data]


async def pair(world: World) -> tuple[Any, Any]:
    """A connection from a to b: a's end, b's end."""
    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def serve(connection: Any) -> None:
        accepted.set_result(connection)
        await connection.wait_closed()

    listener = await world.node("b").net.listen("b", 0, serve)
    return await world.node("a").net.connect(*listener.address), await accepted


async def says(connection: Any, other: Any, word: bytes, within: float = 5.0) -> bool:
    connection.write(framed(word))
    try:
        async with asyncio.timeout(within):
            return await other.read_frame(100) == word
    except TimeoutError:
        return False


@settings(max_examples=30)
@given(
    frames=st.lists(st.one_of(st.binary(max_size=50), st.integers(1, 300_000)), max_size=12),
    seed=st.integers(0, 10_000),
)
def test_bytes_arrive_in_order_in_pieces_of_any_size(frames: list[Any], seed: int) -> None:
    contents = [frame if isinstance(frame, bytes) else bytes([7]) * frame for frame in frames]

    async def main(world: World) -> None:
        a, b = await pair(world)
        for content in contents:
            a.write(framed(content))
        for content in contents:
            assert await b.read_frame(1 << 20) == content

    with World(seed) as world:
        world.node("a"), world.node("b")
        world.net.link_default.split_odds = 0.9
        world.run(main(world))


def test_a_frame_is_seen_in_pieces() -> None:
    """Else nothing tests that code waits for the rest."""

    async def main(world: World) -> list[str]:
        a, b = await pair(world)
        for _ in range(50):
            a.write(framed(b"x" * 100))
            await b.read_frame(100)
        return [line for line in world.trace.lines if "net.arrived" in line and " b " in line]

    with World(1) as world:
        world.node("a"), world.node("b")
        assert len(world.run(main(world))) > 55


@in_world
async def test_a_cut_holds_everything_back_until_it_is_healed(world: World) -> None:
    a, b = await pair(world)
    world.net.cut("a", "b")
    assert not await says(a, b, b"one")
    assert not await says(b, a, b"eins")
    world.net.heal("a", "b")
    assert await b.read_frame(100) == b"one"
    assert await a.read_frame(100) == b"eins"
    assert await says(a, b, b"two")


@in_world
async def test_a_one_way_cut_lets_the_other_direction_through(world: World) -> None:
    a, b = await pair(world)
    world.net.cut("a", "b", one_way=True)
    assert not await says(a, b, b"one")
    assert await says(b, a, b"eins")
    with pytest.raises(ConnectionLost, match="no answer in 3"):
        await world.node("b").net.connect("a", 1, timeout_s=3.0)
    world.net.heal("a", "b")
    assert await b.read_frame(100) == b"one"


@pytest.mark.parametrize("split_odds", [0.0, 1.0])
@pytest.mark.parametrize(
    ("size", "more", "wanted"),
    [
        (LENT_PAGE + 100, b"", b"a" * (LENT_PAGE + 100) + bytes(LENT_PAGE - 100) + b"a" * LENT_PAGE),
        (LENT_PAGE, b"", b"a" * 3 * LENT_PAGE),  # whole pages are out of the file, and are what they were
        (2 * LENT_PAGE, b"b" * 10, b"a" * 2 * LENT_PAGE + b"b" * 10 + b"a" * (LENT_PAGE - 10)),
        (3 * LENT_PAGE, b"b" * 10, b"a" * 3 * LENT_PAGE),
    ],
    ids=["cut inside of a page", "cut between pages", "cut, and written again", "written on"],
)  # fmt: skip
def test_what_was_sent_of_a_file_is_what_becomes_of_its_pages_on_the_way(
    size: int, more: bytes, wanted: bytes, split_odds: float
) -> None:
    async def main(world: World) -> bytes | memoryview | None:
        a, b = await pair(world)
        file = world.node("a").disk.open("/data/file", create=True)
        file.append([b"a" * 3 * LENT_PAGE])
        world.net.cut("a", "b")
        head = (10 + 3 * LENT_PAGE).to_bytes(4, "big") + b"0123456789"
        a.write([head, FileSlice(file, 0, 3 * LENT_PAGE)])
        file.truncate(size)
        file.append([more])
        world.net.heal("a", "b")
        return await b.read_frame(10 * LENT_PAGE)

    with World(3) as world:
        world.node("a"), world.node("b")
        world.net.link_default.split_odds = split_odds
        assert bytes(world.run(main(world)))[10:] == wanted


@in_world
async def test_a_cut_that_lasts_ends_the_connection_of_who_has_something_to_say(
    world: World,
) -> None:
    a, b = await pair(world)
    world.net.cut("a", "b")
    a.write(framed(b"one"))
    start = asyncio.get_running_loop().time()
    with pytest.raises(ConnectionLost, match="too long"):
        await a.read_frame(100)
    waited = asyncio.get_running_loop().time() - start
    assert waited == pytest.approx(world.net.stall_timeout_s, abs=1)
    with pytest.raises(ConnectionLost):
        await a.drain()
    world.net.heal("a", "b")
    # The other end has heard nothing of it; it does when it speaks.
    b.write(framed(b"eins"))
    with pytest.raises(ConnectionLost, match="reset"):
        await b.read_frame(100)


@in_world
async def test_a_connection_can_not_be_made_through_a_cut_but_is_when_it_heals_in_time(
    world: World,
) -> None:
    a, b = world.node("a"), world.node("b")

    async def serve(connection: Any) -> None:
        await connection.wait_closed()

    listener = await b.net.listen("b", 9092, serve)
    world.net.isolate("b")
    with pytest.raises(ConnectionLost, match="no answer"):
        await a.net.connect(*listener.address, timeout_s=2.0)
    connecting = asyncio.ensure_future(a.net.connect(*listener.address))
    await asyncio.sleep(2)
    world.net.heal_all()
    await connecting


@in_world
async def test_a_reset_loses_what_is_under_way_and_both_ends_know(world: World) -> None:
    a, b = await pair(world)
    a.write(framed(b"lost"))
    world.net.reset("a", "b")
    for end in (a, b):
        with pytest.raises(ConnectionLost, match="reset"):
            await end.read_frame(100)
        with pytest.raises(ConnectionLost):
            await end.drain()
        await end.wait_closed()


@in_world
async def test_random_resets_break_connections_in_the_middle_of_frames(world: World) -> None:
    world.net.link_default.reset_odds = 0.05
    inside = 0
    for _ in range(60):
        a, b = await pair(world)
        try:
            for _ in range(20):
                a.write(framed(b"x" * 1000))
                assert await b.read_frame(1000) == b"x" * 1000
        except ConnectionLost:
            inside += b._framer.inside_frame
    assert inside > 3


@in_world
async def test_a_killed_process_ends_its_connections_and_refuses_new_ones(world: World) -> None:
    a, b = await pair(world)
    port = b.local_port
    world.kill("b")
    try:
        assert await a.read_frame(100) is None
    except ConnectionLost:
        pass
    a.write(framed(b"anybody?"))
    await asyncio.sleep(1)
    with pytest.raises(ConnectionLost):
        await a.drain()
    with pytest.raises(ConnectionLost, match="refused"):
        await world.node("a").net.connect("b", port)


@in_world
async def test_a_machine_that_is_off_says_nothing_and_resets_when_it_is_back(world: World) -> None:
    a, b = await pair(world)
    port = b.local_port
    world.crash("b", silent=True)
    assert not await says(a, a, b"hello?", within=10)
    with pytest.raises(ConnectionLost, match="no answer in 5"):
        await world.node("a").net.connect("b", port, timeout_s=5.0)
    world.restart("b")
    with pytest.raises(ConnectionLost, match="reset"):
        await a.read_frame(100)


@in_world
async def test_who_waits_for_a_reader_that_is_no_more_learns_of_it(world: World) -> None:
    """Its window was closed: nothing would be sent again, and its successor was never dialed."""
    a, _ = await pair(world)
    a.write(framed(b"more than nobody has asked for"))
    await asyncio.sleep(1)
    a.write(framed(b"waits"))
    await asyncio.sleep(1)
    world.crash("b", silent=True)
    world.restart("b")
    with pytest.raises(ConnectionLost, match="reset"):
        async with asyncio.timeout(30):
            await a.read_frame(100)


@in_world
async def test_a_machine_whose_power_goes_loudly_resets_its_connections(world: World) -> None:
    a, _ = await pair(world)
    world.crash("b")
    with pytest.raises(ConnectionLost, match="reset"):
        await a.read_frame(100)


@in_world
async def test_bandwidth_is_shared_by_all_connections_of_a_link(world: World) -> None:
    world.net.link("a", "b").bytes_per_s = 1_000_000
    pairs = [await pair(world) for _ in range(2)]
    start = asyncio.get_running_loop().time()
    for a, _ in pairs:
        a.write(framed(bytes(2_000_000)))
    for _, b in pairs:
        await b.read_frame(1 << 22)
    assert asyncio.get_running_loop().time() - start == pytest.approx(4.0, abs=0.5)


@in_world
async def test_loopback_is_a_machines_own(world: World) -> None:
    async def serve(connection: Any) -> None:
        await connection.wait_closed()

    listener = await world.node("b").net.listen("127.0.0.1", 9092, serve)
    assert listener.address == ("127.0.0.1", 9092)
    await world.node("b").net.connect("localhost", 9092)
    with pytest.raises(ConnectionLost, match="refused"):
        await world.node("a").net.connect("b", 9092)
    with pytest.raises(ConnectionLost, match="no such host"):
        await world.node("a").net.connect("c", 9092)
    with pytest.raises(OSError, match="not an address"):
        await world.node("a").net.listen("b", 9092, serve)


@in_world
async def test_a_paused_node_answers_nothing_and_then_everything(world: World) -> None:
    async def serve(connection: Any) -> None:
        while (frame := await connection.read_frame(100)) is not None:
            connection.write(framed(bytes(frame)))

    listener = await world.node("b").net.listen("b", 0, serve)
    a = await world.node("a").net.connect(*listener.address)
    assert await says(a, a, b"one")
    world.pause("b")
    assert not await says(a, a, b"two", within=30)
    late = await world.node("a").net.connect(*listener.address)  # its kernel accepts
    world.resume("b")
    assert await a.read_frame(100) == b"two"
    assert await says(late, late, b"three")
