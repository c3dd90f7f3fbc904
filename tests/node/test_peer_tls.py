"""Certificates beneath the peer door, over real sockets."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import uvloop
from fencepost.cluster.base.errors import ConfigRefused, Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.wire.peer_door import PeerDoor, PeerTimes, PeerTls
from fencepost.cluster.wire.peer_guests import GUESTS_MAX
from fencepost.node.config import NodeConfig
from fencepost.node.peer_tls import peer_tls

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
HELD_S, GOODBYE_S = 20.0, 10.0  # what TLS would give a stranger, and waits for its goodbye
CURVE = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.trust = str(folder / "ca.pem")
        openssl(
            *f"req -x509 {CURVE} -nodes -days 2 -subj /CN=ca".split(),
            *("-keyout", str(folder / "ca.key"), "-out", self.trust),
        )

    def keystore(self, host: str, password: str = "") -> str:
        base = str(self.folder / host)
        guard = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        openssl(
            *f"req {CURVE} -subj /CN={host}".split(),
            *guard,
            "-keyout",
            f"{base}.key",
            "-out",
            f"{base}.csr",
        )
        Path(f"{base}.ext").write_text(f"subjectAltName=DNS:{host}\n")
        openssl(
            *f"x509 -req -in {base}.csr -CA {self.trust} -CAkey {self.folder}/ca.key -days 2".split(),
            *("-extfile", f"{base}.ext", "-out", f"{base}.crt"),
        )
        store = Path(f"{base}.pem")
        store.write_text(Path(f"{base}.key").read_text() + Path(f"{base}.crt").read_text())
        return str(store)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates: there is none on the PATH")
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


def in_reality(scenario: Any, log: Any = None, times: PeerTimes = PeerTimes()) -> None:  # noqa: B008 - it is frozen
    async def main() -> None:
        own = log or StreamLog(levels="error")
        async with open_env(log=own) as env, asyncio.timeout(50):
            addresses: dict[BrokerId, tuple[str, int]] = {}

            async def door(node_id: BrokerId, tls: PeerTls | None) -> PeerDoor:
                made = PeerDoor(
                    env,
                    node_id,
                    secret=b"s",
                    cluster_id=lambda: "c",
                    address_of=addresses.get,
                    tls=tls,
                    times=times,
                )
                made.on_request("echo", echo)
                made.on_stream("echo", echo_stream)
                addresses[node_id] = "localhost", (await made.open("localhost", 0))[1]
                return made

            await scenario(door)

    uvloop.run(main())


async def echo(peer: BrokerId, header: dict[str, Any], payload: memoryview) -> Any:
    return header, payload


async def echo_stream(peer: BrokerId, hello: dict[str, Any], stream: Any) -> None:
    while (frame := await stream.read()) is not None:
        stream.write(frame[0], [frame[1]])
        await stream.drain()


@pytest.mark.slow
def test_nodes_with_certificates_of_their_cluster_speak_and_others_do_not(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "theirs")
    ours = peer_tls(authority.keystore("localhost"), authority.trust, "", "https")
    foreign = peer_tls(other.keystore("localhost"), authority.trust, "", "https")

    async def scenario(door: Any) -> None:
        one, two = await door(ONE, ours), await door(TWO, ours)
        payload = bytes(range(256)) * 4096
        header, got = await one.request(TWO, "echo", {"n": 1}, payload, timeout_s=30)
        assert (header, bytes(got)) == ({"n": 1}, payload)
        stream = await two.open_stream(ONE, "echo", {})
        stream.write({"n": 2}, [payload, payload])
        frame = await stream.read()
        assert frame is not None
        assert (frame[0], bytes(frame[1])) == ({"n": 2}, payload * 2)
        stream.close()
        for tls in (None, foreign):
            three = await door(THREE, tls)
            for asking, asked in ((three, ONE), (one, THREE)):
                with pytest.raises(Trouble) as trouble:
                    await asking.request(asked, "echo", {}, timeout_s=30)
                assert trouble.value.outcome is Outcome.REFUSED
            await three.close()
        await one.request(TWO, "echo", {}, timeout_s=30)

    in_reality(scenario)


@pytest.mark.slow
def test_a_certificate_with_another_name_is_refused_unless_names_are_not_checked(
    authority: Authority,
) -> None:
    keystore = authority.keystore("elsewhere.example", password="hush")
    checked = peer_tls(keystore, authority.trust, "hush", "https")
    unchecked = peer_tls(keystore, authority.trust, "hush", "")

    async def scenario(door: Any) -> None:
        one, two = await door(ONE, checked), await door(TWO, unchecked)
        with pytest.raises(Trouble, match="can't connect") as trouble:
            await one.request(TWO, "echo", {}, timeout_s=30)
        assert trouble.value.outcome is Outcome.REFUSED
        await two.request(ONE, "echo", {}, timeout_s=30)

    in_reality(scenario)


class Notes:
    """A log that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **fields: object) -> None:
        self.events.append(event)

    warn = error = info


def have_ended(strangers: list[socket.socket]) -> int:
    """Of sockets that are read without waiting."""
    ended = 0
    for each in strangers:
        with contextlib.suppress(BlockingIOError):
            try:
                ended += not each.recv(100)
            except ConnectionError:
                ended += 1
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_strangers_that_never_shake_hands_have_the_same_few_places_and_seconds_as_without_tls(
    authority: Authority, said: bytes
) -> None:
    """Each was held for 20 s (HELD_S) before anything counted it: descriptors that the logs need."""
    ours = peer_tls(authority.keystore("localhost"), authority.trust, "", "https")
    notes = Notes()

    async def scenario(door: Any) -> None:
        one, two = await door(ONE, ours), await door(TWO, ours)
        port = two._dialer._address_of(ONE)[1]
        strangers = [socket.create_connection(("localhost", port)) for _ in range(300)]
        for each in strangers:
            each.setblocking(False)
            each.send(said)
        try:
            async with asyncio.timeout(one.times.handshake_s / 2):  # not because theirs is over
                while have_ended(strangers) < len(strangers) - GUESTS_MAX:
                    await asyncio.sleep(0.02)
            assert (await two.request(ONE, "echo", {"n": 1}, timeout_s=30))[0] == {"n": 1}
            async with asyncio.timeout(HELD_S / 2):
                while have_ended(strangers) < len(strangers):
                    await asyncio.sleep(0.02)
        finally:
            for each in strangers:
                each.close()
        assert one.counters.handshakes_late == len(strangers)
        assert one.counters.handshakes_refused == 0
        assert [each for each in notes.events if each != "peer_up"] == ["peer_refused"] * 2

    in_reality(scenario, notes, PeerTimes(handshake_s=5.0))


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"\0\0\0\4what", b"\x7f\0\0\0"])
def test_a_stranger_with_a_certificate_that_is_refused_can_not_stay_by_not_saying_goodbye(
    authority: Authority, said: bytes
) -> None:
    """TLS waits for the other end's goodbye. Whoever never said it had its connection for 10 s more (GOODBYE_S), uncounted."""
    ours = peer_tls(authority.keystore("localhost"), authority.trust, "", "https")
    assert ours is not None

    async def scenario(door: Any) -> None:
        one = await door(ONE, ours)
        two = await door(TWO, ours)
        port = two._dialer._address_of(ONE)[1]
        plain = socket.create_connection(("localhost", port))

        def shake_hands_and_say() -> None:
            stranger = ours.client.wrap_socket(plain, server_hostname="localhost")
            stranger.send(said)
            bare.append(socket.socket(fileno=stranger.detach()))

        bare: list[socket.socket] = []
        await asyncio.get_running_loop().run_in_executor(None, shake_hands_and_say)
        stranger = bare[0]
        stranger.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(one.times.handshake_s + GOODBYE_S / 2):
                with contextlib.suppress(ConnectionError):
                    while await loop.sock_recv(stranger, 1000):
                        pass
        finally:
            stranger.close()
        assert one.counters.handshakes_refused == 1

    in_reality(scenario)


def test_settings_that_give_no_certificates_stop_the_start(authority: Authority) -> None:
    def load(**told: str) -> NodeConfig:
        flags = [f"peer.ssl.{name}.location={path}" for name, path in told.items()]
        return NodeConfig.load(
            flags=["peer.listener=127.0.0.1:9192", *flags], environment={}, file=None
        )

    assert load().peers.tls is None
    keystore = authority.keystore("a.example")
    assert load(keystore=keystore, truststore=authority.trust).peers.tls is not None
    for told, complaint in (
        ({"keystore": keystore}, r"peer\.ssl\.truststore\.location is not"),
        ({"truststore": authority.trust}, r"peer\.ssl\.keystore\.location is not"),
        (
            {"keystore": "/nowhere", "truststore": authority.trust},
            "'/nowhere'.*PEM file with a key",
        ),
        ({"keystore": authority.trust, "truststore": authority.trust}, "PEM file with a key"),
        ({"keystore": keystore, "truststore": "/nowhere"}, "'/nowhere'.*certificates to trust"),
    ):
        with pytest.raises(ConfigRefused, match=complaint):
            load(**told)
    locked = authority.keystore("b.example", password="hush")
    with pytest.raises(ConfigRefused, match="PEM file with a key"):
        load(keystore=locked, truststore=authority.trust)
