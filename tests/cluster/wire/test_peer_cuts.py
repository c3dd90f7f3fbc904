"""Peers whose link is cut, whose machine has no power, who are killed or reset: only the simulation can do that."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import ConnectionLost
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.peer_door import PeerStream
from peer_place import ONE, TWO, Place, connected, in_simulation, until


@pytest.mark.parametrize("one_way", [None, (ONE, TWO), (TWO, ONE)], ids=str)
def test_a_silent_cut_is_noticed_in_two_seconds_and_mended_soon_after_it_heals(
    one_way: Any,
) -> None:
    async def scenario(place: Place) -> None:
        world = place.world
        assert world is not None
        said: list[str] = []
        one, two = await connected(place)
        one.on_gone(lambda node_id: said.append(f"gone {node_id}"))
        two.on_gone(lambda node_id: said.append(f"gone {node_id}"))
        source, target = one_way or (ONE, TWO)
        world.net.cut(f"node-{source}", f"node-{target}", one_way=one_way is not None)
        cut_at = world.loop.time()
        await until(lambda: not one.connected() and not two.connected())
        # A tick late, and a check each tick: the silence and two pings.
        assert world.loop.time() - cut_at < place.times.silence_s + 2 * place.times.ping_s + 0.5
        await asyncio.sleep(5)
        world.net.heal("node-1", "node-2")
        healed_at = world.loop.time()
        await until(lambda: one.connected() and two.connected())
        assert world.loop.time() - healed_at < place.times.connect_s + place.times.retry_max_s + 0.5
        assert said == [], "nobody died"

    in_simulation(scenario, seeds=5)


def test_a_machine_without_power_is_not_called_a_dead_process() -> None:
    """It may be cut off: only a machine that answers and refuses proves that the process is gone."""

    async def scenario(place: Place) -> None:
        assert place.world is not None
        said: list[BrokerId] = []
        one, _ = await connected(place)
        one.on_gone(said.append)
        place.world.crash("node-2", silent=True)
        await until(lambda: not one.connected())
        await asyncio.sleep(10)
        assert said == []
        place.world.restart("node-2")
        await until(lambda: said == [TWO])  # nobody listens there yet
        await place.door(TWO)
        await until(lambda: one.connected() == [TWO])

    in_simulation(scenario, seeds=5)


def test_a_killed_process_is_known_in_milliseconds() -> None:
    async def scenario(place: Place) -> None:
        assert place.world is not None
        said: list[float] = []
        one, _ = await connected(place)
        world = place.world
        one.on_gone(lambda _: said.append(world.loop.time()))
        killed_at = world.loop.time()
        world.kill("node-2")
        await until(lambda: said)
        assert said[0] - killed_at < 0.5  # latency spikes reach 0.2 s each

    in_simulation(scenario, seeds=10)


def test_a_reset_connection_is_opened_again_at_once() -> None:
    async def scenario(place: Place) -> None:
        assert place.world is not None
        one, two = await connected(place)
        heard: list[int] = []
        two.on_message("n", lambda _, header, __: heard.append(header["n"]))
        for n in range(20):
            place.world.net.reset("node-1", "node-2")
            place.world.net.reset("node-2", "node-1")
            await asyncio.sleep(1)
            assert one.send(TWO, "n", {"n": n})
            await until(lambda count=n + 1: len(heard) == count)
        assert heard == list(range(20))

    in_simulation(scenario, seeds=3)


def test_a_stream_that_is_cut_silently_ends_for_both_who_read() -> None:
    async def scenario(place: Place) -> None:
        assert place.world is not None
        ended: list[str] = []

        async def listen(peer: BrokerId, hello: dict[str, Any], stream: PeerStream) -> None:
            try:
                await stream.read()
            except ConnectionLost as lost:
                ended.append(str(lost))
                raise

        one, _ = await connected(place, prepare=lambda door: door.on_stream("idle", listen))
        stream = await one.open_stream(TWO, "idle", {})
        reading = asyncio.ensure_future(stream.read())
        await asyncio.sleep(10)
        assert not reading.done(), "a stream that has nothing to say stays"
        place.world.net.cut("node-1", "node-2")
        with pytest.raises(ConnectionLost, match="said nothing"):
            await reading
        await until(lambda: ended)

    in_simulation(scenario, seeds=5)
