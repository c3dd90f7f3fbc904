"""The greetings: what a proof is good for, and what is made of any other bytes."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import FrameRefused, Outcome, Trouble
from fencepost.cluster.base.ids import NODE_ID_END, BrokerId
from fencepost.cluster.wire import peer_handshake
from fencepost.cluster.wire.peer_frames import pack_frame, unpack_frame
from fencepost.cluster.wire.peer_handshake import (
    CONTROL,
    GREETING_MAX,
    Challenge,
    FolderOfBefore,
    Hello,
    Identity,
    PeerName,
    PeerRefused,
    challenge_guest,
    greet,
    read_challenge,
    read_hello,
    read_proof,
)
from fencepost.cluster.wire.peer_lives import Life
from hypothesis import given, settings
from hypothesis import strategies as st

SECRET = b"the secret"
DIALER, ACCEPTOR = BrokerId(1), BrokerId(2)
LIFE = Life(b"L" * 16, 1, (7,))
values = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.binary(max_size=40)
numbers = st.integers(0, 2**63 - 1)
nonces = st.binary(min_size=32, max_size=32)


def hello(**more: Any) -> Hello:
    fields: dict[str, Any] = {
        "version": 1,
        "cluster_id": "c",
        "from_id": 1,
        "to_id": 2,
        "incarnation": 11,
        "nonce": b"d" * 32,
        "channel": "control",
    }
    return Hello(**{**fields, **more})


def challenge(**more: Any) -> Challenge:
    fields: dict[str, Any] = {
        "version": 1,
        "cluster_id": "c",
        "node_id": 2,
        "incarnation": 22,
        "nonce": b"a" * 32,
    }
    return Challenge(**{**fields, **more})


def proof(role: bytes, first: Hello, second: Challenge, secret: bytes = SECRET) -> bytes:
    return peer_handshake.proof_of(secret, role, first, second)


def test_a_proof_is_of_no_use_anywhere_else() -> None:
    """Not with another nonce, between other nodes, for another channel, in the other role, or shifted."""
    roles = (peer_handshake._DIALER, peer_handshake._ACCEPTOR)
    meetings = [
        (hello(), challenge()),
        (hello(nonce=b"e" * 32), challenge()),
        (hello(from_id=3), challenge()),
        (hello(to_id=3), challenge()),
        (hello(incarnation=12), challenge()),
        (hello(channel="stream"), challenge()),
        (hello(cluster_id=""), challenge()),
        (hello(version=2), challenge()),
        (hello(), challenge(nonce=b"b" * 32)),
        (hello(), challenge(node_id=3)),
        (hello(), challenge(incarnation=23)),
        (hello(), challenge(cluster_id="")),
        (hello(), challenge(version=2)),
        (hello(nonce=b"a" * 32), challenge(nonce=b"d" * 32)),
    ]
    made = [proof(role, *meeting) for role in roles for meeting in meetings]
    made += [proof(role, *meetings[0], secret=b"another") for role in roles]
    assert len({*made}) == len(made)


def test_nonces_do_not_come_twice_even_when_the_dice_do() -> None:
    """A node whose generator was seeded as it was at its last start still challenges anew: it is another process."""
    with World(1) as world:
        env = world.node("n")

        def drawn(incarnation: int) -> list[bytes]:
            env.rng = random.Random(7)
            me = Identity(env=env, node_id=DIALER, incarnation=incarnation, secret=SECRET)
            return [me.nonce() for _ in range(100)]

        nonces = [*drawn(1), *drawn(2)]
        assert len({*nonces}) == 200


@given(
    version=st.integers(-(2**63), 2**63),
    cluster=st.text(max_size=64),
    a=st.integers(0, NODE_ID_END - 1),
    b=numbers,
    nonce=nonces,
)
def test_greetings_come_back_as_they_were_made(
    version: int, cluster: str, a: int, b: int, nonce: bytes
) -> None:
    first = hello(version=version, cluster_id=cluster, from_id=a, incarnation=b, nonce=nonce)
    assert read_hello(first.header()) == first
    second = challenge(version=version, cluster_id=cluster, node_id=a, incarnation=b, nonce=nonce)
    assert read_challenge(second.header()) == second


@pytest.mark.parametrize("id_", [-1, NODE_ID_END])
def test_a_node_id_that_kafka_could_not_write_is_refused(id_: int) -> None:
    """Raft's vote for it has room for 32 bits, too."""
    for read, greeting in (
        (read_hello, hello(from_id=id_)),
        (read_hello, hello(to_id=id_)),
        (read_challenge, challenge(node_id=id_)),
    ):
        with pytest.raises(FrameRefused, match="impossible number"):
            read(greeting.header())


@given(
    kind=st.sampled_from(["hello", "challenge", "proof"]),
    changed=st.dictionaries(
        st.sampled_from(
            [
                *("fencepost", "version", "cluster_id", "from", "to", "node_id"),
                *("incarnation", "nonce", "channel", "proof"),
            ]
        ),
        values,
        min_size=1,
    ),
)
def test_any_map_is_a_greeting_or_refused(kind: str, changed: dict[str, Any]) -> None:
    whole = {
        "hello": hello().header(),
        "challenge": challenge().header(),
        "proof": {"fencepost": "proof", "proof": bytes(32)},
    }[kind]
    for read in (read_hello, read_challenge, read_proof):
        try:
            read({**whole, **changed})
        except FrameRefused:
            continue


class Script:
    """The other end of a connection, which says what it is told to, whatever it hears."""

    def __init__(self, *said: bytes) -> None:
        self.said = list(said)
        self.heard = b""
        self.remote = ("stranger", 1)

    async def read_frame(self, size_max: int) -> memoryview | None:
        if not self.said:
            return None
        frame = self.said.pop(0)
        if len(frame) > size_max:
            raise FrameRefused("too large")
        return memoryview(bytearray(frame))

    def write(self, chunks: Any) -> None:
        self.heard += b"".join(chunks)

    def close(self) -> None:
        self.said.clear()


@given(
    st.lists(
        st.binary(max_size=GREETING_MAX + 1) | st.sampled_from([hello(), challenge()]), max_size=4
    )
)
@settings(max_examples=200)
def test_whatever_a_stranger_says_it_is_never_let_in(said: list[Any]) -> None:
    frames = [
        each if isinstance(each, bytes) else b"".join(pack_frame(each.header()))[4:]  # type: ignore[arg-type]
        for each in said
    ]

    async def meet(world: World) -> None:
        for secret in (SECRET, b"x"):
            me = Identity(env=world.node("n"), node_id=ACCEPTOR, incarnation=22, secret=secret)
            with pytest.raises(Trouble):
                await challenge_guest(Script(*frames), me, "c")  # type: ignore[arg-type]
            me = Identity(env=world.node("n"), node_id=DIALER, incarnation=11, secret=secret)
            with pytest.raises(Trouble) as trouble:
                await greet(Script(*frames), me, "c", ACCEPTOR, CONTROL)  # type: ignore[arg-type]
            assert trouble.value.outcome is Outcome.REFUSED

    with World(1) as world:
        world.run(meet(world))


class Poser(Script):
    """At the right address, and with the right ids: no secret is needed for that. Then it says a proof of its own."""

    def __init__(self, prove: Callable[[Hello, Challenge, bytes], bytes], seen: int) -> None:
        self.challenge = challenge(life=LIFE, seen=seen)
        super().__init__(framed(self.challenge.header()))
        self.prove = prove
        self.hello = hello()

    def write(self, chunks: Any) -> None:
        heard, _ = unpack_frame(memoryview(b"".join(chunks))[4:])
        assert heard is not None
        if heard["fencepost"] == "hello":
            self.hello = read_hello(heard)
        else:
            welcome = self.prove(self.hello, self.challenge, read_proof(heard))
            self.said.append(framed({"fencepost": "proof", "proof": welcome}))


def framed(header: dict[str, Any]) -> bytes:
    return b"".join(pack_frame(header))[4:]  # type: ignore[arg-type]


WRONG_PROOFS: dict[str, Callable[[Hello, Challenge, bytes], bytes]] = {
    "nothing": lambda _first, _second, _theirs: bytes(32),
    "our own, sent back": lambda _first, _second, theirs: theirs,
    "of another secret": lambda first, second, _: proof(
        peer_handshake._ACCEPTOR, first, second, secret=b"another"
    ),
    "of another meeting": lambda first, _second, _: proof(
        peer_handshake._ACCEPTOR, first, challenge()
    ),
}


def greeted(poser: Any) -> tuple[PeerName | PeerRefused, Identity]:
    """What comes of greeting it, and what is known then."""

    async def meet(world: World) -> tuple[PeerName | PeerRefused, Identity]:
        me = Identity(env=world.node("n"), node_id=DIALER, incarnation=11, secret=SECRET)
        try:
            return await greet(poser, me, "c", ACCEPTOR, CONTROL), me
        except PeerRefused as refused:
            return refused, me

    with World(1) as world:
        return world.run(meet(world))


@pytest.mark.parametrize("seen", [0, 3])
@pytest.mark.parametrize("which", WRONG_PROOFS)
def test_a_dialer_believes_nothing_of_an_acceptor_before_its_proof(which: str, seen: int) -> None:
    """Neither who it is, nor its life, nor that it has seen a later one of ours: a node ends itself for that."""
    came, me = greeted(Poser(WRONG_PROOFS[which], seen))
    assert type(came) is PeerRefused
    assert "node 2 does not know this cluster's peer.secret" in str(came)
    assert me.lives.seen == {}


def test_a_dialer_believes_all_of_an_acceptor_with_its_proof() -> None:
    def right(first: Hello, second: Challenge, _theirs: bytes) -> bytes:
        return proof(peer_handshake._ACCEPTOR, first, second)

    came, me = greeted(Poser(right, 0))
    assert isinstance(came, PeerName)
    assert (came.node_id, came.life, len(me.lives.seen)) == (ACCEPTOR, LIFE, 1)
    assert isinstance(greeted(Poser(right, 3))[0], FolderOfBefore)


def test_a_relayed_greeting_for_another_node_is_refused_and_a_repeated_proof_too() -> None:
    """Mallory lets node 1 dial it and repeats all it says at node 2: as node 3, and again afterwards."""

    async def meet(world: World) -> None:
        env = world.node("n")
        one = Identity(env=env, node_id=DIALER, incarnation=11, secret=SECRET)
        two = Identity(env=env, node_id=ACCEPTOR, incarnation=22, secret=SECRET)
        listener_heard: list[list[bytes]] = []

        async def serve(connection: Any) -> None:
            tap = Tap(connection)
            listener_heard.append(tap.frames)
            guest = await challenge_guest(tap, two, "c")  # type: ignore[arg-type]
            guest.let_in(tap)  # type: ignore[arg-type]

        listener = await env.net.listen("n", 1000, serve)
        connection = await env.net.connect(*listener.address)
        name = await greet(connection, one, "c", ACCEPTOR, CONTROL)
        assert name == PeerName(node_id=ACCEPTOR, incarnation=22, cluster_id="c", channel=CONTROL)
        recorded = listener_heard[0]
        assert len(recorded) == 2
        again = Script(*recorded)
        with pytest.raises(Trouble, match="its proof does not fit"):
            await challenge_guest(again, two, "c")  # type: ignore[arg-type]
        three = Identity(env=env, node_id=BrokerId(3), incarnation=33, secret=SECRET)
        with pytest.raises(Trouble, match="it looks for node 2, and this is node 3"):
            await challenge_guest(Script(*recorded), three, "c")  # type: ignore[arg-type]

    class Tap:
        def __init__(self, connection: Any) -> None:
            self._connection = connection
            self.frames: list[bytes] = []
            self.write = connection.write
            self.close = connection.close

        async def read_frame(self, size_max: int) -> Any:
            frame = await self._connection.read_frame(size_max)
            if frame is not None:
                self.frames.append(bytes(frame))
            return frame

    with World(1) as world:
        world.run(meet(world))
