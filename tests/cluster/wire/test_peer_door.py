"""Messages, requests and streams between nodes, over real sockets and in the simulation."""

import asyncio
from typing import Any

import pytest
import uvloop
from fencepost.cluster.base.errors import ConnectionLost, FrameRefused, Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.peer_door import PeerStream
from fencepost.cluster.wire.peer_handshake import CONTROL, Identity, greet
from fencepost.cluster.wire.peer_serving import SERVED_AT_ONCE_MAX
from peer_place import (
    ONE,
    SECRET,
    THREE,
    TWO,
    Place,
    RealHost,
    SimHost,
    connected,
    in_simulation,
    reverse,
    until,
)


@pytest.fixture(params=["uvloop", "asyncio", "sim"])
def host(request: pytest.FixtureRequest) -> Any:
    if request.param == "sim":
        return SimHost()
    return RealHost(asyncio.run if request.param == "asyncio" else uvloop.run)


def test_a_message_arrives_with_its_sender_its_header_and_its_bytes(host: Any) -> None:
    async def scenario(place: Place) -> None:
        heard: list[Any] = []
        one, two = await connected(place)
        two.on_message(
            "quorum", lambda peer, header, data: heard.append((peer, header, bytes(data)))
        )
        sent = [({"term": n, "name": "ä"}, bytes([n]) * (n * n)) for n in range(200)]
        for header, payload in sent:
            assert one.send(TWO, "quorum", header, payload)
        await until(lambda: len(heard) == len(sent))
        assert heard == [(ONE, header, payload) for header, payload in sent]

    host.run(scenario)


def test_a_request_is_answered_whatever_the_others_take(host: Any) -> None:
    async def scenario(place: Place) -> None:
        one, two = await connected(place)
        slow = asyncio.Event()

        async def wait(peer: BrokerId, header: dict[str, Any], payload: memoryview) -> Any:
            await slow.wait()
            return {"was": "slow"}, b""

        two.on_request("slow", wait)
        two.on_request("reverse", reverse)
        late = asyncio.ensure_future(one.request(TWO, "slow", {}, timeout_s=20))
        header, payload = await one.request(TWO, "reverse", {"n": 3}, b"abc", timeout_s=20)
        assert (header, bytes(payload)) == ({"peer": ONE, "n": 3}, b"cba")
        assert not late.done()
        slow.set()
        assert (await late)[0] == {"was": "slow"}

    host.run(scenario)


def test_no_more_are_served_at_a_time_however_many_come_at_once(host: Any) -> None:
    """Counted when its work began, a burst that was read in one turn of the loop had no bound."""

    async def scenario(place: Place) -> None:
        one, two = await connected(place)
        ended = asyncio.Event()
        most = begun = 0

        async def wait(peer: BrokerId, header: dict[str, Any], payload: memoryview) -> Any:
            nonlocal begun, most
            begun += 1
            most = max(most, begun)
            await ended.wait()
            begun -= 1
            return {}, b""

        two.on_request("slow", wait)
        two.on_request("reverse", reverse)
        asking = [
            asyncio.ensure_future(one.request(TWO, "slow", {}, timeout_s=20))
            for _ in range(SERVED_AT_ONCE_MAX + 100)
        ]
        await until(lambda: sum(each.done() for each in asking) == 100)
        refused = [each.exception() for each in asking if each.done()]
        assert all("serves 1024 requests of this node already" in str(each) for each in refused)
        ended.set()
        await asyncio.wait(asking)
        assert most == SERVED_AT_ONCE_MAX
        assert (await one.request(TWO, "reverse", {}, b"ab", timeout_s=20))[1] == b"ba"

    host.run(scenario)


def test_a_stream_carries_frames_both_ways_until_one_end_closes_it(host: Any) -> None:
    async def scenario(place: Place) -> None:
        ended: list[Any] = []

        async def copy(peer: BrokerId, hello: dict[str, Any], stream: PeerStream) -> None:
            assert (peer, stream.peer_id) == (ONE, ONE)
            try:
                while (frame := await stream.read()) is not None:
                    header, payload = frame
                    stream.write({**hello, **header}, [bytes(payload), b"!"])
                    await stream.drain()
            except ConnectionLost:  # a ping that crosses its end: kernels answer with a reset
                assert place.world is None
            ended.append(peer)

        one, _ = await connected(place, prepare=lambda door: door.on_stream("copy", copy))
        stream = await one.open_stream(TWO, "copy", {"hello": 1})
        assert stream.peer_id == TWO
        for size in (0, 1, 70_000, 3_000_000):
            stream.write({"size": size}, [bytes(size)])
            answer = await stream.read()
            assert answer is not None
            assert answer[0] == {"hello": 1, "size": size}
            assert bytes(answer[1]) == bytes(size) + b"!"
        stream.close()
        await until(lambda: ended)

    host.run(scenario)


def test_a_handlers_trouble_reaches_whoever_asked_with_its_outcome(host: Any) -> None:
    async def scenario(place: Place) -> None:
        one, two = await connected(place)

        async def fail(peer: BrokerId, header: dict[str, Any], payload: memoryview) -> Any:
            raise Trouble("the disk is slow today", Outcome(header["outcome"]))

        two.on_request("fail", fail)
        for outcome in Outcome:
            with pytest.raises(Trouble, match="the disk is slow today") as trouble:
                await one.request(TWO, "fail", {"outcome": outcome.value}, timeout_s=20)
            assert trouble.value.outcome is outcome

    host.run(scenario)


def test_a_request_that_the_peer_does_not_know_is_refused_with_a_sentence(host: Any) -> None:
    """A peer of an older build; the connection and everything else on it goes on."""

    async def scenario(place: Place) -> None:
        one, two = await connected(place)
        two.on_request("reverse", reverse)
        with pytest.raises(Trouble, match=r"node 2 knows no request 'new'.*older build") as trouble:
            await one.request(TWO, "new", {}, timeout_s=20)
        assert trouble.value.outcome is Outcome.REFUSED
        with pytest.raises(Trouble, match="node 2 knows no stream 'new'") as trouble:
            await one.open_stream(TWO, "new", {})
        assert trouble.value.outcome is Outcome.REFUSED
        assert one.send(TWO, "new", {})
        await one.request(TWO, "reverse", {}, timeout_s=20)
        assert two.counters.messages_unknown == 1
        assert place.logged(TWO, "peer_message_unknown") == [{"node": ONE, "kind": "new"}]

    host.run(scenario)


def test_a_request_whose_name_is_long_is_refused_in_a_sentence_that_fits(host: Any) -> None:
    """The whole name, written out, made the answer's header too large, and its door fail."""

    async def scenario(place: Place) -> None:
        one, two = await connected(place)
        two.on_request("reverse", reverse)
        with pytest.raises(Trouble, match="node 2 knows no request"):
            await one.request(TWO, "\0" * 20_000, {}, timeout_s=20)
        with pytest.raises(Trouble, match="node 2 knows no stream"):
            await one.open_stream(TWO, "\0" * 20_000, {})

        async def fail(peer: BrokerId, header: dict[str, Any], payload: memoryview) -> Any:
            raise Trouble("\N{SNOWMAN}" * 50_000, Outcome.REFUSED)

        two.on_request("fail", fail)
        with pytest.raises(Trouble, match="\N{SNOWMAN}"):
            await one.request(TWO, "fail", {}, timeout_s=20)
        await one.request(TWO, "reverse", {}, timeout_s=20)

    host.run(scenario)


def test_a_request_whose_answer_is_lost_may_have_been_done(host: Any) -> None:
    async def scenario(place: Place) -> None:
        done: list[int] = []
        one, two = await connected(place)

        async def silent(peer: BrokerId, header: dict[str, Any], payload: memoryview) -> Any:
            done.append(header["n"])
            await asyncio.Event().wait()

        async def refuse_frame(peer: BrokerId, header: dict[str, Any], payload: memoryview) -> Any:
            done.append(header["n"])
            raise FrameRefused("that makes no sense")

        two.on_request("silent", silent)
        two.on_request("refuse", refuse_frame)
        with pytest.raises(Trouble, match=r"no answer in 0.1 s") as trouble:
            await one.request(TWO, "silent", {"n": 1}, timeout_s=0.1)
        assert trouble.value.outcome is Outcome.UNKNOWN
        with pytest.raises(ConnectionLost) as lost:
            await one.request(TWO, "refuse", {"n": 2}, timeout_s=20)
        assert lost.value.outcome is Outcome.UNKNOWN
        waiting = asyncio.ensure_future(one.request(TWO, "silent", {"n": 3}, timeout_s=20))
        await until(lambda: 3 in done)
        await two.close()
        with pytest.raises(ConnectionLost) as lost:
            await waiting
        assert lost.value.outcome is Outcome.UNKNOWN
        assert done == [1, 2, 3]

    host.run(scenario)


def test_what_can_not_have_been_sent_is_refused(host: Any) -> None:
    async def scenario(place: Place) -> None:
        one = await place.door(ONE)
        assert not one.send(TWO, "quorum", {})
        with pytest.raises(Trouble, match="no address of node 2") as trouble:
            await one.request(TWO, "any", {}, timeout_s=20)
        assert trouble.value.outcome is Outcome.REFUSED
        two = await place.door(TWO)
        await two.close()
        with pytest.raises(Trouble, match="can't connect to") as trouble:
            await one.request(TWO, "any", {}, timeout_s=20)
        assert trouble.value.outcome is Outcome.REFUSED
        with pytest.raises(Trouble) as trouble:
            await one.open_stream(TWO, "any", {})
        assert trouble.value.outcome is Outcome.REFUSED
        await one.close()
        with pytest.raises(Trouble) as trouble:
            await one.request(TWO, "any", {}, timeout_s=20)
        assert trouble.value.outcome is Outcome.REFUSED
        assert one.counters.messages_dropped == 1

    host.run(scenario)


def test_a_request_opens_a_connection_where_none_is_kept(host: Any) -> None:
    async def scenario(place: Place) -> None:
        one, two = await place.door(ONE), await place.door(TWO)
        two.on_request("reverse", reverse)
        three = await place.door(THREE, listen=False)
        three.on_request("reverse", reverse)
        await one.request(TWO, "reverse", {}, timeout_s=20)
        header, _ = await three.request(TWO, "reverse", {}, timeout_s=20)
        assert header == {"peer": THREE}
        # A node that listens nowhere, as one that has not registered yet, is spoken to over its own connection.
        await until(lambda: two.connected() == [ONE, THREE])
        header, _ = await two.request(THREE, "reverse", {}, timeout_s=20)
        assert header == {"peer": TWO}

    host.run(scenario)


@pytest.mark.slow
def test_a_dead_process_is_told_once_and_its_successor_is_up(host: Any) -> None:
    async def scenario(place: Place) -> None:
        said: list[tuple[str, BrokerId]] = []
        one = await place.door(ONE)
        one.on_up(lambda node_id: said.append(("up", node_id)))
        one.on_gone(lambda node_id: said.append(("gone", node_id)))
        one.watch([TWO])
        two = await place.door(TWO)
        await until(lambda: said == [("up", TWO)])
        at_once_s = place.within_s(1.0, place.times.silence_s / 2)  # it was not missed, but told
        first = one.incarnation_of(TWO)
        await two.close()
        await until(lambda: said == [("up", TWO), ("gone", TWO)], at_once_s)
        await asyncio.sleep(0.2)
        await place.door(TWO, port=place.addresses[TWO][1])
        await until(lambda: len(said) == 3, 2 * at_once_s)
        assert said == [("up", TWO), ("gone", TWO), ("up", TWO)]
        assert one.incarnation_of(TWO) not in (first, None)

    host.run(scenario)


def test_a_node_that_is_no_longer_watched_is_let_go(host: Any) -> None:
    async def scenario(place: Place) -> None:
        gone: list[BrokerId] = []
        one, two = await connected(place)
        one.on_gone(gone.append)
        two.watch([])
        one.watch([])
        await until(lambda: one.connected() == [] == two.connected())
        await asyncio.sleep(0.2)
        assert one.connected() == []
        assert gone == []
        one.watch([TWO])
        await until(lambda: one.connected() == [TWO])

    host.run(scenario)


def test_a_peer_that_never_reads_gets_what_fits_and_the_rest_is_dropped_and_counted(
    host: Any,
) -> None:
    async def scenario(place: Place) -> None:
        one = await place.door(ONE)
        env = place.env(TWO)
        connection = await env.net.connect(*place.addresses[ONE])
        me = Identity(env=env, node_id=TWO, incarnation=1, secret=SECRET)
        await greet(connection, me, "c", ONE, CONTROL)  # and from here on it reads nothing
        await until(lambda: one.connected() == [TWO])
        payload = bytes(256 * 1024)
        sent = 0
        for number in range(400):
            sent += one.send(TWO, "n", {"n": number}, payload)
            await asyncio.sleep(0)
        assert one.counters.messages_sent == sent
        assert one.counters.messages_dropped == 400 - sent
        # 16 MiB here, and what the connection and, in reality, two kernels take.
        assert sent * len(payload) < 40 << 20
        with pytest.raises(Trouble, match="too much waits") as trouble:
            await one.request(TWO, "n", {}, payload, timeout_s=20)
        assert trouble.value.outcome is Outcome.REFUSED
        connection.abort()
        await until(lambda: one.connected() == [])

    host.run(scenario)


def test_a_node_that_is_let_go_while_it_is_dialed_is_not_kept(host: Any) -> None:
    async def scenario(place: Place) -> None:
        one, two = await place.door(ONE), await place.door(TWO)
        one.watch([TWO])
        link = one._link(TWO)
        await asyncio.sleep(0)
        assert link.task is not None and link.wire is None
        one.watch([])
        await until(lambda: link.task is None)
        await until(lambda: two.connected() == [])
        assert one.connected() == []

    host.run(scenario)


def test_a_stopped_peer_is_let_go_and_one_that_was_stopped_itself_blames_nobody() -> None:
    async def scenario(place: Place) -> None:
        assert place.world is not None
        one, two = await connected(place)
        place.world.pause("node-2")
        await until(lambda: not one.connected())
        assert one.counters.silent_peers > 0
        await asyncio.sleep(3)
        place.world.resume("node-2")
        await until(lambda: one.connected() and two.connected())
        assert two.counters.silent_peers == 0

    in_simulation(scenario, seeds=5)


def test_a_peer_that_reads_nothing_costs_a_bounded_memory() -> None:
    """Its kernel takes what it can; then messages are dropped and counted, not kept."""

    async def scenario(place: Place) -> None:
        assert place.world is not None
        one, two = await connected(place)
        heard: list[int] = []
        two.on_message("n", lambda _, header, __: heard.append(header["n"]))
        place.world.pause("node-2")
        payload = bytes(64 * 1024)
        sent = 0
        for n in range(2000):
            sent += one.send(TWO, "n", {"n": n}, payload)
            await asyncio.sleep(0)
        wire = one._wire(TWO)
        assert wire is not None
        assert 8 << 20 < sent * len(payload) < 20 << 20
        assert wire.queued_bytes <= 16 << 20
        assert one.counters.messages_dropped == 2000 - sent
        place.world.resume("node-2")
        await until(lambda: len(heard) == sent)
        assert heard == sorted(heard)
        assert one.send(TWO, "n", {"n": 2000})

    in_simulation(scenario, seeds=2)
