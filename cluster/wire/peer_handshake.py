"""How two nodes prove to each other that they know the cluster's secret, before anything else is said.

INVARIANT  nothing that a connection carries is acted on before its other end has proved that it knows the secret.
PREVENTS   a stranger, or a node of another cluster, posing as a replica or a voter.
PROVED BY  tests/cluster/wire/test_peer_handshake.py::test_a_proof_is_of_no_use_anywhere_else
           tests/cluster/wire/test_peer_handshake.py::test_a_dialer_believes_nothing_of_an_acceptor_before_its_proof

    dialer                                       acceptor
    hello: ids, incarnation, cluster, nonce, life  ->
                                             <-  challenge: id, incarnation, cluster, nonce, life, which one of yours was seen
    proof: MAC("dialer", hello, challenge)   ->
                                             <-  welcome: MAC("acceptor", hello, challenge)

The listening end proves itself last: whoever merely reaches the port gets nothing that was made with the secret. Both
MACs cover both greetings, so both ids, both nonces and what the connection is for; the role in them keeps one from
being sent back as the other. The bytes that follow are neither encrypted nor authenticated: on a network that
is not trusted, use TLS beneath. Instead of any frame either end may send a refusal, which is a sentence.

Lives (`peer_lives.py`) are told since 2026-11; the MACs cover them where both ends tell theirs. Who dials with a folder of
before gets a welcome all the same, and then the end of the connection: it ends itself for that, so it has to be proved.
"""

import hashlib
import hmac
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ..base.errors import FrameRefused, Outcome, Trouble
from ..base.ids import NODE_ID_END, BrokerId
from ..base.ports import Connection, Env
from .peer_frames import pack_frame, unpack_frame
from .peer_lives import UNKNOWN, Life, PeerLives, pack_life, read_life, why_not

PROTOCOL_VERSION: Final = 1
# What anyone may make this node hold before it is known: a greeting has under 600 bytes.
GREETING_MAX: Final = 1024
NONCE_SIZE: Final = 32
PROOF_SIZE: Final = hashlib.sha256().digest_size
CLUSTER_ID_MAX: Final = 64
SENTENCE_MAX: Final = 500
CONTROL: Final = "control"  # messages and requests
STREAM: Final = "stream"
CHANNELS: Final = (CONTROL, STREAM)
_DIALER: Final = b"fencepost peer: dialer"
_ACCEPTOR: Final = b"fencepost peer: acceptor"
_INT_64: Final = 1 << 63


class PeerRefused(Trouble):
    """One end does not want the other; the sentence says why. Nothing was done."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, Outcome.REFUSED)


class FolderOfBefore(PeerRefused):
    """The other end, proved, has seen life `seen` of this node's folder, and that one is not in its past."""

    def __init__(self, sentence: str, seen: int) -> None:
        super().__init__(sentence)
        self.seen = seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What the dialing end says first."""

    version: int
    cluster_id: str
    from_id: int
    to_id: int
    incarnation: int
    nonce: bytes
    channel: str
    life: Life | None = None  # None: of a build that does not tell it

    def header(self) -> dict[str, Any]:
        said = {
            "fencepost": "hello",
            "version": self.version,
            "cluster_id": self.cluster_id,
            "from": self.from_id,
            "to": self.to_id,
            "incarnation": self.incarnation,
            "nonce": self.nonce,
            "channel": self.channel,
        }
        return said if self.life is None else {**said, "life": pack_life(self.life)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What the accepting end answers."""

    version: int
    cluster_id: str
    node_id: int
    incarnation: int
    nonce: bytes
    life: Life | None = None
    seen: int = 0  # the life of the dialer's folder that keeps it out

    def header(self) -> dict[str, Any]:
        said = {
            "fencepost": "challenge",
            "version": self.version,
            "cluster_id": self.cluster_id,
            "node_id": self.node_id,
            "incarnation": self.incarnation,
            "nonce": self.nonce,
        }
        if self.life is None:
            return said
        return {**said, "life": pack_life(self.life), "seen": self.seen}


def read_hello(header: dict[str, Any]) -> Hello:
    match header:
        case {
            "fencepost": "hello",
            "version": int(version),
            "cluster_id": str(cluster_id),
            "from": int(from_id),
            "to": int(to_id),
            "incarnation": int(incarnation),
            "nonce": bytes(nonce),
            "channel": ("control" | "stream") as channel,
        } if len(nonce) == NONCE_SIZE and len(cluster_id) <= CLUSTER_ID_MAX:
            _check_numbers(NODE_ID_END, from_id, to_id)
            _check_numbers(_INT_64, incarnation)
            return Hello(
                version=version,
                cluster_id=cluster_id,
                from_id=from_id,
                to_id=to_id,
                incarnation=incarnation,
                nonce=nonce,
                channel=channel,
                life=read_life(header.get("life")),
            )
    raise FrameRefused("what came first is no greeting of a node")


def read_challenge(header: dict[str, Any]) -> Challenge:
    match header:
        case {
            "fencepost": "challenge",
            "version": int(version),
            "cluster_id": str(cluster_id),
            "node_id": int(node_id),
            "incarnation": int(incarnation),
            "nonce": bytes(nonce),
        } if len(nonce) == NONCE_SIZE and len(cluster_id) <= CLUSTER_ID_MAX:
            _check_numbers(NODE_ID_END, node_id)
            _check_numbers(_INT_64, incarnation)
            life = read_life(header.get("life"))
            seen = header.get("seen", 0) if life is not None else 0
            if type(seen) is not int:
                raise FrameRefused("a greeting with a life seen that is none")
            _check_numbers(_INT_64, seen)
            return Challenge(
                version=version,
                cluster_id=cluster_id,
                node_id=node_id,
                incarnation=incarnation,
                nonce=nonce,
                life=life,
                seen=seen,
            )
    raise FrameRefused("the answer to our greeting is none of a node")


def read_proof(header: dict[str, Any]) -> bytes:
    match header:
        case {"fencepost": "proof", "proof": bytes(proof)} if len(proof) == PROOF_SIZE:
            return proof
    raise FrameRefused("a proof was due, and something else came")


def _check_numbers(end: int, *numbers: int) -> None:
    if any(type(number) is bool or not 0 <= number < end for number in numbers):
        raise FrameRefused("a greeting with an impossible number")


def proof_of(secret: bytes, role: bytes, hello: Hello, challenge: Challenge) -> bytes:
    """The MAC over both greetings as they were understood, each field in its place."""
    if hello.life is None or challenge.life is None:
        # One end is of an older build, which has not read what the other one tells of lives.
        hello, challenge = replace(hello, life=None), replace(challenge, life=None)
    mac = hmac.new(secret, role, hashlib.sha256)
    for greeting in (hello.header(), challenge.header()):
        mac.update(hashlib.sha256(pack_frame(greeting)[0]).digest())  # type: ignore[arg-type]
    return mac.digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerName:
    """Who is at the other end, proved."""

    node_id: BrokerId
    incarnation: int
    cluster_id: str
    channel: str
    life: Life | None = UNKNOWN


@dataclass(slots=True, kw_only=True)
class Identity:
    """Who this node is. `incarnation` is drawn at each start: two processes with one node id differ in it."""

    env: Env
    node_id: BrokerId
    incarnation: int
    secret: bytes
    lives: PeerLives = field(default_factory=PeerLives)
    nonces: int = 0

    def nonce(self) -> bytes:
        """Never twice the same, and not to be foreseen without the secret, whoever watches our dice."""
        self.nonces += 1
        said = f"nonce {self.node_id} {self.incarnation} {self.nonces}".encode()
        return hmac.digest(self.secret, said + self.env.rng.randbytes(NONCE_SIZE), "sha256")


async def read_greeting(connection: Connection) -> dict[str, Any]:
    frame = await connection.read_frame(GREETING_MAX)
    if frame is None:
        raise FrameRefused("the connection was closed during the greetings")
    header, _ = unpack_frame(frame)
    match header:
        case None:
            raise FrameRefused("a ping came before any greeting")
        case {"fencepost": "refused", "sentence": str(sentence)}:
            raise PeerRefused(f"the other end refuses: {printable(sentence)}")
        case _:
            return header


def printable(sentence: str) -> str:
    """What a stranger said, fit for a log."""
    return "".join(each if each.isprintable() else "?" for each in sentence[:SENTENCE_MAX])


def refuse(connection: Connection, sentence: str) -> None:
    connection.write(pack_frame({"fencepost": "refused", "sentence": sentence}))
    connection.close()


def cluster_refusal(ours: str, theirs: str) -> str | None:
    if ours and theirs and ours != theirs:
        return f"it belongs to the cluster {printable(theirs)}, this node to {ours}"
    return None


async def greet(
    connection: Connection, me: Identity, cluster_id: str, to_id: BrokerId, channel: str
) -> PeerName:
    """The dialing end. PeerRefused or FrameRefused when the other end is not who was meant to be there."""
    hello = Hello(
        version=PROTOCOL_VERSION,
        cluster_id=cluster_id,
        from_id=me.node_id,
        to_id=to_id,
        incarnation=me.incarnation,
        nonce=me.nonce(),
        channel=channel,
        life=me.lives.mine(),
    )
    connection.write(pack_frame(hello.header()))
    challenge = read_challenge(await read_greeting(connection))
    sentence = cluster_refusal(cluster_id, challenge.cluster_id)
    if seen := me.lives.seen_instead(to_id, challenge.life):
        sentence = why_not(challenge.life, seen)
    if challenge.version != PROTOCOL_VERSION:
        sentence = f"it speaks version {challenge.version}, this node {PROTOCOL_VERSION}"
    if challenge.node_id != to_id:
        sentence = f"it is node {challenge.node_id}, and node {to_id} was looked for there"
    if sentence is not None:
        refuse(connection, f"node {me.node_id} does not want node {challenge.node_id}: {sentence}")
        raise PeerRefused(f"node {challenge.node_id} is not wanted: {sentence}")
    proof = proof_of(me.secret, _DIALER, hello, challenge)
    connection.write(pack_frame({"fencepost": "proof", "proof": proof}))
    welcome = read_proof(await read_greeting(connection))
    if not hmac.compare_digest(welcome, proof_of(me.secret, _ACCEPTOR, hello, challenge)):
        raise PeerRefused(f"node {to_id} does not know this cluster's peer.secret")
    if challenge.seen:
        why = why_not(hello.life, challenge.seen)
        raise FolderOfBefore(f"node {me.node_id} is not let in: {why}", challenge.seen)
    if seen := me.lives.seen_instead(to_id, challenge.life):  # since it was asked
        raise PeerRefused(f"node {to_id} is not wanted: {why_not(challenge.life, seen)}")
    me.lives.saw(to_id, challenge.life)
    return PeerName(
        node_id=to_id,
        incarnation=challenge.incarnation,
        cluster_id=challenge.cluster_id,
        channel=channel,
        life=challenge.life,
    )


@dataclass(slots=True, kw_only=True)
class Guest:
    """A dialer that has proved itself and waits for its welcome."""

    name: PeerName
    welcome: bytes

    def let_in(self, connection: Connection) -> None:
        connection.write(pack_frame({"fencepost": "proof", "proof": self.welcome}))


async def challenge_guest(connection: Connection, me: Identity, cluster_id: str) -> Guest:
    """The accepting end, up to its welcome. Whoever is refused was sent the sentence of the PeerRefused."""
    hello = read_hello(await read_greeting(connection))
    sentence = _unwanted(hello, me, cluster_id)
    if sentence is not None:
        _turn_away(connection, hello, sentence)
    challenge = Challenge(
        version=PROTOCOL_VERSION,
        cluster_id=cluster_id,
        node_id=me.node_id,
        incarnation=me.incarnation,
        nonce=me.nonce(),
        life=me.lives.mine(),
        seen=me.lives.seen_instead(BrokerId(hello.from_id), hello.life),
    )
    connection.write(pack_frame(challenge.header()))
    proof = read_proof(await read_greeting(connection))
    if not hmac.compare_digest(proof, proof_of(me.secret, _DIALER, hello, challenge)):
        _turn_away(connection, hello, "its proof does not fit: peer.secret is not the same")
    name = PeerName(
        node_id=BrokerId(hello.from_id),
        incarnation=hello.incarnation,
        cluster_id=hello.cluster_id,
        channel=hello.channel,
        life=hello.life,
    )
    guest = Guest(name=name, welcome=proof_of(me.secret, _ACCEPTOR, hello, challenge))
    if challenge.seen:
        guest.let_in(connection)  # so that it believes what the challenge says
        connection.close()
        raise PeerRefused(
            f"node {name.node_id} is not let in: {why_not(hello.life, challenge.seen)}"
        )
    return guest


def _turn_away(connection: Connection, hello: Hello, sentence: str) -> None:
    refuse(connection, f"node {hello.from_id} is not let in: {sentence}")
    raise PeerRefused(f"node {hello.from_id} is not let in: {sentence}")


def _unwanted(hello: Hello, me: Identity, cluster_id: str) -> str | None:
    if hello.version != PROTOCOL_VERSION:
        return f"it speaks version {hello.version}, this node {PROTOCOL_VERSION}"
    if hello.from_id == me.node_id:
        if hello.incarnation == me.incarnation:
            return "it is this node itself; its own address was given for another node"
        return f"this node has the node id {me.node_id} too; no two may have the same"
    if hello.to_id != me.node_id:
        return f"it looks for node {hello.to_id}, and this is node {me.node_id}"
    return cluster_refusal(cluster_id, hello.cluster_id)
