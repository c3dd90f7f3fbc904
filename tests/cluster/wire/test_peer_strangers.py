"""Who is turned away at the peer door, and that everybody else is served on."""

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from fencepost.cluster.base.errors import ConfigRefused, Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.cluster.wire.peer_frames import pack_frame
from fencepost.cluster.wire.peer_guests import GUESTS_MAX
from peer_place import ONE, SECRET, THREE, TWO, Place, RealHost, SimHost, in_simulation, until


@pytest.fixture(params=["uvloop", "sim"])
def host(request: pytest.FixtureRequest) -> Any:
    return SimHost() if request.param == "sim" else RealHost(uvloop.run)


async def answer(peer: BrokerId, header: dict[str, Any], payload: memoryview) -> Any:
    return {"peer": peer}, b""


async def ended(stranger: Any, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        with contextlib.suppress(Trouble):
            while await stranger.read_frame(10_000) is not None:
                pass


async def cluster_of_two(place: Place) -> tuple[PeerDoor, PeerDoor]:
    one, two = await place.door(ONE), await place.door(TWO)
    one.watch([TWO])
    two.watch([ONE])
    await until(lambda: one.connected() == [TWO] and two.connected() == [ONE])
    for door in (one, two):
        door.on_request("who", answer)
    return one, two


async def still_serves(one: PeerDoor, two: PeerDoor) -> None:
    assert (await one.request(TWO, "who", {}, timeout_s=20))[0] == {"peer": ONE}
    assert (await two.request(ONE, "who", {}, timeout_s=20))[0] == {"peer": TWO}


@pytest.mark.parametrize("secret", [b"", b"another secret"])
def test_a_node_without_the_secret_is_refused_and_both_say_so(host: Any, secret: bytes) -> None:
    async def scenario(place: Place) -> None:
        one, two = await cluster_of_two(place)
        three = await place.door(THREE, secret=secret, listen=False)
        three.on_request("who", answer)
        for _ in range(3):
            with pytest.raises(Trouble, match=r"peer.secret is not the same") as trouble:
                await three.request(ONE, "who", {}, timeout_s=20)
            assert trouble.value.outcome is Outcome.REFUSED
        with pytest.raises(Trouble, match=r"peer.secret is not the same"):
            await three.open_stream(ONE, "any", {})
        assert "peer.secret" in str(three.refusal_of(ONE))
        assert one.connected() == [TWO]
        assert one.counters.handshakes_refused == 4
        refused = place.logged(ONE, "peer_refused")
        assert len(refused) == 1, "a stranger does not fill the log"
        assert "node 3 is not let in: its proof does not fit" in refused[0]["cause"]
        await still_serves(one, two)

    host.run(scenario)


def test_an_impostor_that_listens_is_not_spoken_to(host: Any) -> None:
    """Somebody took the address of node 2. It does not learn a proof that it could use, nor is it believed."""

    async def scenario(place: Place) -> None:
        one = await place.door(ONE)
        await place.door(TWO, secret=b"guessed")
        with pytest.raises(Trouble) as trouble:
            await one.request(TWO, "who", {}, timeout_s=20)
        assert trouble.value.outcome is Outcome.REFUSED
        assert one.connected() == []

    host.run(scenario)


def test_a_node_of_another_cluster_is_refused_with_a_sentence(host: Any) -> None:
    async def scenario(place: Place) -> None:
        one, two = await cluster_of_two(place)
        three = await place.door(THREE, cluster_id="elsewhere")
        with pytest.raises(Trouble, match="belongs to the cluster elsewhere, this node to c"):
            await three.request(ONE, "who", {}, timeout_s=20)
        with pytest.raises(Trouble, match="belongs to the cluster c, this node to elsewhere"):
            await one.request(THREE, "who", {}, timeout_s=20)
        assert one.connected() == [TWO]
        await still_serves(one, two)

    host.run(scenario)


def test_a_node_that_does_not_know_its_cluster_yet_is_let_in_until_it_turns_out_another(
    host: Any,
) -> None:
    async def scenario(place: Place) -> None:
        told = [""]
        one, two = await cluster_of_two(place)
        three = await place.door(THREE, cluster_id=lambda: told[0])
        await three.request(ONE, "who", {}, timeout_s=20)
        told[0] = "elsewhere"
        await until(lambda: one.connected() == [TWO])
        with pytest.raises(Trouble, match="elsewhere"):
            await three.request(ONE, "who", {}, timeout_s=20)
        await still_serves(one, two)

    host.run(scenario)


@pytest.mark.slow
def test_a_node_id_taken_twice_is_refused_with_a_sentence(host: Any) -> None:
    """With the pings of a real node: on a busy machine the one that lives says nothing for as long as quick ones listen."""

    async def scenario(place: Place) -> None:
        place.times = replace(place.times, ping_s=0.4, handshake_s=5.0)
        one, two = await cluster_of_two(place)
        address = place.addresses[TWO]
        twin = await place.door(TWO, listen=False, env=place.env(THREE))
        place.addresses[TWO] = address
        with pytest.raises(Trouble, match="the node id 2 is taken: another process"):
            await twin.request(ONE, "who", {}, timeout_s=5)
        assert one.incarnation_of(TWO) == two.me.incarnation
        twin.watch([ONE])
        await asyncio.sleep(3 * place.times.claim_s)
        assert twin.connected() == []
        await still_serves(one, two)

    host.run(scenario)


def test_a_node_is_told_when_it_reaches_itself_or_its_own_id(host: Any) -> None:
    async def scenario(place: Place) -> None:
        one = await place.door(ONE)
        place.addresses[TWO] = place.addresses[ONE]
        with pytest.raises(Trouble, match="it is this node itself"):
            await one.request(TWO, "who", {}, timeout_s=20)
        twin = await place.door(ONE, listen=False, env=place.env(TWO))
        with pytest.raises(Trouble, match="this node has the node id 1 too"):
            await twin.request(TWO, "who", {}, timeout_s=20)
        three = await place.door(THREE, listen=False)
        with pytest.raises(Trouble, match="it looks for node 2, and this is node 1"):
            await three.request(TWO, "who", {}, timeout_s=20)

    host.run(scenario)


@pytest.mark.slow
def test_silent_strangers_do_not_keep_a_peer_out(host: Any) -> None:
    async def scenario(place: Place) -> None:
        one = await place.door(ONE)
        one.on_request("who", answer)
        net = place.env(THREE).net
        strangers = [await net.connect(*place.addresses[ONE]) for _ in range(2 * GUESTS_MAX)]
        three = await place.door(THREE, listen=False)
        await three.request(ONE, "who", {}, timeout_s=20)
        for stranger in strangers:
            await ended(stranger, place.within_s(2 * place.times.handshake_s))
        assert one.counters.handshakes_late == len(strangers)
        assert one.counters.handshakes_refused == 0, "nobody has shown a wrong secret"
        assert len(place.logged(ONE, "peer_refused")) <= 3

    host.run(scenario)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\0\0", id="kafka"),
        pytest.param(b"\0\1\0\0" + bytes(70_000), id="large"),
        pytest.param(b"\0\0\0\2\0\0", id="ping"),
        pytest.param(b"\xff\xff\xff\xff", id="negative"),
        pytest.param(b"".join(pack_frame({"fencepost": "hello"})), id="half"),  # type: ignore[arg-type]
        pytest.param(b"".join(pack_frame({"type": "message"})), id="message"),  # type: ignore[arg-type]
    ],
)
def test_whatever_a_stranger_says_the_node_goes_on(host: Any, said: bytes) -> None:
    async def scenario(place: Place) -> None:
        one, two = await cluster_of_two(place)
        stranger = await place.env(THREE).net.connect(*place.addresses[ONE])
        stranger.write([said])
        await ended(stranger, place.within_s(2 * place.times.handshake_s))
        assert one.counters.handshakes_refused == 1
        await still_serves(one, two)

    host.run(scenario)


def test_a_door_that_others_can_reach_has_a_secret(host: Any) -> None:
    async def scenario(place: Place) -> None:
        with pytest.raises(ConfigRefused, match=r"peer.secret must be set"):
            door = PeerDoor(
                place.env(ONE),
                ONE,
                secret=b"",
                cluster_id=str,
                address_of=place.addresses.get,
            )
            await door.open("0.0.0.0", 0)

    host.run(scenario)


def test_a_machine_that_lost_its_power_comes_back_although_its_old_connection_still_stands() -> (
    None
):
    async def scenario(place: Place) -> None:
        world = place.world
        assert world is not None
        one, _ = await cluster_of_two(place)
        first = one.incarnation_of(TWO)
        world.crash("node-2", silent=True)
        world.restart("node-2")
        two = await place.door(TWO)
        two.watch([ONE])
        await until(lambda: one.incarnation_of(TWO) not in (first, None))
        await until(lambda: two.connected() == [ONE] and one.connected() == [TWO])
        assert place.logged(ONE, "peer_refused") == []

    in_simulation(scenario, seeds=5)


def test_the_secret_is_never_sent(host: Any) -> None:
    async def scenario(place: Place) -> None:
        heard = bytearray()

        async def listen(connection: Any) -> None:
            while (frame := await connection.read_frame(10_000)) is not None:
                heard.extend(frame)

        listener = await place.env(TWO).net.listen(
            "node-2" if place.world else "127.0.0.1", 0, listen
        )
        place.addresses[TWO] = listener.address
        one = await place.door(ONE)
        with pytest.raises(Trouble):  # when the handshake's time is over
            await one.request(TWO, "who", {}, timeout_s=20)
        assert b"nonce" in heard
        assert SECRET not in heard

    host.run(scenario)
