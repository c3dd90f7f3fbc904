"""Until when certificates are good: read as OpenSSL reads them, and told."""

import math
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fencepost.cluster.base.certificate_dates import not_after_s
from fencepost.cluster.wire.peer_dialing import PeerTls
from fencepost.node.peer_tls import peer_tls
from hypothesis import given
from hypothesis import strategies as st
from scraping import samples, value_of
from sim_node import NODE, SimNode

KEYS = {
    "ec": "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1",
    "rsa": "-newkey rsa:2048",
}
NAME = "fencepost_peer_certificate_not_after_timestamp_seconds"


def openssl(*arguments: str) -> str:
    return subprocess.run(
        ["openssl", *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module", autouse=True)
def needs_openssl() -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates: there is none on the PATH")


def made(folder: Path, name: str, days: int, key: str = "ec") -> Path:
    """One that vouches for itself, its key before it, as a keystore has them."""
    path = folder / f"{name}.pem"
    key_path, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    openssl(
        *f"req -x509 {KEYS[key]} -nodes -days {days} -subj /CN={name}".split(),
        *("-keyout", str(key_path), "-out", str(certificate)),
    )
    path.write_text(key_path.read_text() + certificate.read_text())
    return path


def said_by_openssl(path: Path) -> int:
    said = openssl("x509", "-noout", "-enddate", "-in", str(path))
    return int(ssl.cert_time_to_seconds(said.strip().removeprefix("notAfter=")))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("days", [1, 400, 36_500], ids=["a day", "a year", "a century"])
def test_the_dates_are_those_that_openssl_says(tmp_path: Path, days: int, key: str) -> None:
    """From 2050 on they are written otherwise."""
    path = made(tmp_path, "one", days, key)
    assert not_after_s(str(path)) == [said_by_openssl(path)]


def test_each_certificate_of_a_chain_has_its_date_and_what_is_none_has_not(tmp_path: Path) -> None:
    paths = [made(tmp_path, f"c{days}", days) for days in (3, 2)]
    chain = tmp_path / "chain.pem"
    broken = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n"
    chain.write_text(paths[0].read_text() + broken + "some words\n" + paths[1].read_text())
    assert not_after_s(str(chain)) == [said_by_openssl(each) for each in paths]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_have_no_date_and_do_no_harm(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes
) -> None:
    path = tmp_path_factory.mktemp("junk") / "junk.pem"
    path.write_text(ssl.DER_cert_to_PEM_cert(junk))
    assert not_after_s(str(path)) == []


# -- what is told of them ------------------------------------------------------------------------------


@pytest.fixture
def node() -> Iterator[SimNode]:
    node = SimNode(seed="certificates")
    node.start()
    yield node
    node.close()


def told_of(node: SimNode, tls: PeerTls | None) -> dict[str, float]:
    config = node.broker.config
    config.peers = replace(config.peers, tls=tls)

    async def ask() -> bytes:
        return await node.world.on(node.world.node(NODE), node.broker.metrics.scrape.text())

    found = samples(node.run(ask).decode())
    stores = [dict(labels)["store"] for name, labels in found if name == NAME]
    return {store: value_of(found, NAME, store=store) for store in stores}


def test_a_scrape_tells_when_the_first_one_shown_and_the_last_one_trusted_expire(
    node: SimNode, tmp_path: Path
) -> None:
    """A chain is as good as its shortest; while an authority is exchanged, the old one may expire."""
    shown, above = made(tmp_path, "shown", 30), made(tmp_path, "above", 20)
    old, new = made(tmp_path, "old", 10), made(tmp_path, "new", 400)
    keystore, truststore = tmp_path / "keystore.pem", tmp_path / "truststore.pem"
    keystore.write_text(shown.read_text() + (tmp_path / "above.crt").read_text())
    truststore.write_text((tmp_path / "old.crt").read_text() + (tmp_path / "new.crt").read_text())
    tls = peer_tls(str(keystore), str(truststore), "", "https")
    assert told_of(node, tls) == {
        "keystore": said_by_openssl(above),
        "truststore": said_by_openssl(new),
    }
    assert said_by_openssl(old) < said_by_openssl(new)
    assert told_of(node, None) == {"keystore": math.inf, "truststore": math.inf}
