"""A peer that knows the secret and talks nonsense: an older build, a newer one, a broken one. The cluster goes on."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from fencepost.chaos.sim.cluster_nodes import PEER_PORT, node_name
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import FrameRefused, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.quorum.transport import read_message
from fencepost.cluster.wire.peer_door import PeerDoor, PeerStream
from fencepost.cluster.wire.peer_link import PeerWire
from test_reads_from_followers import TOPIC, Scene

LIAR = BrokerId(9)
LIES = 400
Said = tuple[str, str, dict[str, Any], bytes]  # form, kind, header, payload


class Tap:
    """All that the nodes say to each other, to be said again by a liar."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.heard: list[Said] = []
        send, request, write = PeerDoor.send, PeerDoor.request, PeerStream.write

        def tapped_send(door: PeerDoor, to: Any, kind: str, header: Any, payload: Any = b"") -> Any:
            self.heard.append(("message", kind, dict(header), bytes(payload)))
            return send(door, to, kind, header, payload)

        def tapped_request(
            door: PeerDoor, to: Any, kind: str, header: Any, payload: Any = b"", **more: Any
        ) -> Any:
            self.heard.append(("request", kind, dict(header), bytes(payload)))
            return request(door, to, kind, header, payload, **more)

        def tapped_write(stream: PeerStream, header: Any, chunks: Any = ()) -> None:
            plain = b"".join(bytes(each) for each in chunks if not hasattr(each, "file"))
            if "open" not in header and "opened" not in header:
                self.heard.append(("stream", "replicate", dict(header), plain))
            write(stream, header, chunks)

        patch.setattr(PeerDoor, "send", tapped_send)
        patch.setattr(PeerDoor, "request", tapped_request)
        patch.setattr(PeerStream, "write", tapped_write)


def garbled(rng: random.Random, value: Any) -> Any:
    """The same with something changed, of the same or of another type."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value, key=repr))
        if rng.random() < 0.2:
            return {each: value[each] for each in value if each != key}
        return {**value, key: garbled(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], garbled(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, bytes) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return value[:at] + bytes([rng.randrange(256)]) + value[at + rng.randrange(3) :]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.7:
        return value + rng.choice((-1, 1, 1000, -(2**40), 2**40))
    odd = (None, True, -1, 0, 2**63, 1.5, "", "x", b"", b"\xff" * 20, [], [1], {}, {"a": 1}, {1: 2})
    return rng.choice(odd)


def lies(rng: random.Random, heard: list[Said]) -> Iterator[Said]:
    by_kind: dict[tuple[str, str], list[Said]] = {}
    for said in heard:
        by_kind.setdefault(said[:2], []).append(said)
    while True:
        form, kind, header, payload = rng.choice(by_kind[rng.choice(sorted(by_kind))])
        match rng.randrange(4):
            case 0:
                payload = garbled(rng, payload)
            case 1:
                header = garbled(rng, header)
            case 2:
                header, payload = garbled(rng, header), garbled(rng, payload)
        if not isinstance(header, dict):
            header = {"k": header}
        if not isinstance(payload, bytes):
            payload = b""
        if kind != "quorum" or not is_of_raft(payload):
            yield form, kind, header, payload


def is_of_raft(payload: bytes) -> bool:
    """Raft believes its voters: a message that another of them might have sent is no nonsense but treason."""
    try:
        read_message(payload)
    except FrameRefused:
        return False
    return True


async def tell_lies(scene: Scene, tap: Tap, rng: random.Random, count: int) -> None:
    env = scene.world.node("liar")
    door = PeerDoor(
        env,
        LIAR,
        secret=b"of-this-cluster",
        cluster_id=lambda: "",
        address_of=lambda node_id: (node_name(node_id), PEER_PORT),
    )
    heard = list(tap.heard)
    assert {said[:2] for said in heard} >= {
        ("message", "quorum"),
        ("request", "controller"),
        ("stream", "replicate"),
    }
    streams: dict[BrokerId, PeerStream] = {}

    async def stream_to(node: BrokerId) -> PeerStream:
        stream = streams.get(node)
        if stream is None or stream.ended:
            hello: dict[str, Any] = rng.choice(({}, {"e": 1}, {"e": "x"}, {"broker_epoch": -1}))
            stream = streams[node] = await door.open_stream(node, "replicate", hello)
        return stream

    async def lie(said: Said) -> None:
        form, kind, header, payload = said
        node = rng.choice(scene.nodes.ids)
        if form == "stream":
            (await stream_to(node)).write(header, [payload])
        elif form == "message" and isinstance(door._wire(node), PeerWire):
            door.send(node, kind, header, payload)
        else:
            await door.request(node, kind, header, payload, timeout_s=0.2)

    for said in itertools.islice(lies(rng, heard), count):
        with contextlib.suppress(Trouble):  # it was refused, as it should be
            await lie(said)
        await asyncio.sleep(0.001)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_peer_says_no_node_dies_and_the_cluster_goes_on(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = Tap(monkeypatch)

    async def scenario(scene: Scene) -> None:
        await scene.start()
        for number in range(20):
            await scene.produce(b"%d" % number)
        await tell_lies(scene, tap, scene.world.stream("lies"), LIES)
        await scene.nodes.until_whole()
        assert await scene.produce(b"after") == 20

    with World(seed) as world:
        world.run(scenario(Scene(world)))


def test_a_build_that_knows_less_or_more_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.start()
        env = scene.world.node("liar")
        door = PeerDoor(
            env,
            LIAR,
            secret=b"of-this-cluster",
            cluster_id=lambda: "",
            address_of=lambda node_id: (node_name(node_id), PEER_PORT),
        )
        with pytest.raises(Trouble, match="knows no request 'teleport'; it may be of an older"):
            await door.request(BrokerId(1), "teleport", {}, timeout_s=5)
        with pytest.raises(Trouble, match="knows no stream 'teleport'; it may be of an older"):
            await door.open_stream(BrokerId(1), "teleport", {})
        answer, _ = await door.request(
            BrokerId(1), "controller", {}, b"\x92\xa8Teleport\x80", timeout_s=5
        )
        assert answer["refused"] == "unreadable"
        assert scene.nodes.leader(TOPIC, 0) is not None

    with World(1) as world:
        world.run(scenario(Scene(world)))


def in_rafts_name(rng: random.Random, scene: Scene) -> Iterator[bytes]:
    """What only a leader of the quorum says, of the term that all are in; its entries are another one's."""
    while True:
        controller = scene.nodes.controller()
        term = 0 if controller is None else scene.nodes.broker(controller).quorum.term
        index = rng.choice((1, 2, 5, 40, 2**40))
        lie: dict[str, Any] = {
            "type": "append_entries",
            "commit_index": rng.choice((0, 1, 3, 2**50)),
            "entries": [[rng.choice((b"\x00", b"\x00x", b"\x02x", b"\x09")), index + 1, term]],
            "previous_index": index,
            "previous_term": rng.choice((0, 1, term)),
            "stamp": rng.choice((0.0, 1e9, float("nan"))),
        }
        if rng.random() < 0.3:
            lie = {"type": "snapshot", "last_index": index, "last_term": term, "position": 0,
                   "size": rng.choice((1, 9, 2**50)), "data": b"x", "stamp": 0.0}  # fmt: skip
        yield msgpack.packb([term, lie], use_bin_type=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_peer_that_lies_in_rafts_name_ends_nobody(seed: int) -> None:
    """A second leader of a term was a broken invariant: any node with the secret could end all the others."""

    async def scenario(scene: Scene) -> None:
        await scene.start()
        env = scene.world.node("liar")
        door = PeerDoor(
            env,
            LIAR,
            secret=b"of-this-cluster",
            cluster_id=lambda: "",
            address_of=lambda node_id: (node_name(node_id), PEER_PORT),
        )
        rng = scene.world.stream("lies")
        for lie in itertools.islice(in_rafts_name(rng, scene), LIES):
            node = rng.choice(scene.nodes.ids)
            with contextlib.suppress(Trouble):
                if isinstance(door._wire(node), PeerWire):
                    door.send(node, "quorum", {}, lie)
                else:
                    await door.request(node, "quorum", {}, b"", timeout_s=0.2)
            await asyncio.sleep(0.001)
        assert scene.world.deaths == []
        refused = [
            fields
            for node in scene.nodes.names
            for _, event, fields in scene.world.machine(node).events
            if "says that it leads term" in str(fields)
        ]
        assert refused, "nobody was lied to"
        await scene.nodes.until_whole()
        assert await scene.produce(b"after") == 0

    with World(seed) as world:
        world.run(scenario(Scene(world)))
