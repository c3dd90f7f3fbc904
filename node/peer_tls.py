"""TLS beneath the peer door, both ways: what nodes say to each other is then hidden and can't be altered on its way.

INVARIANT  with a keystore set no connection between nodes is plain, and each end has shown a certificate that the
           truststore vouches for.
PREVENTS   somebody on the path reading records, or changing them after the handshake has proved who is there.
PROVED BY  tests/node/test_peer_tls.py::test_nodes_with_certificates_of_their_cluster_speak_and_others_do_not

The shared secret is asked for all the same: it says which node it is, certificates say that it may be one. Settings are
Kafka's `ssl.…` with `peer.` before them, files are PEM: the keystore holds the key and the chain of certificates.
"""

import ssl
from collections.abc import Iterator
from typing import Final

from fencepost.cluster.base.certificate_dates import not_after_s
from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.wire.peer_door import PeerTls

KEYSTORE: Final = "peer.ssl.keystore.location"
TRUSTSTORE: Final = "peer.ssl.truststore.location"
CHECKS_NAMES: Final = "https"


def peer_tls(keystore: str, truststore: str, password: str, identification: str) -> PeerTls | None:
    """None when nothing is set. ConfigRefused, with the file's name, for what can't be used."""
    if not keystore and not truststore:
        return None
    if not keystore or not truststore:
        missing, present = (KEYSTORE, TRUSTSTORE) if truststore else (TRUSTSTORE, KEYSTORE)
        raise ConfigRefused(
            f"{present} is set, and {missing} is not: nodes show their certificates"
        )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = identification == CHECKS_NAMES
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            # Without a password a key that wants one must not make OpenSSL ask the terminal.
            context.load_cert_chain(keystore, password=lambda: password)
        except (OSError, ValueError) as error:
            raise _unusable(KEYSTORE, keystore, "a key and its certificates", error) from error
        try:
            context.load_verify_locations(truststore)
        except (OSError, ValueError) as error:
            raise _unusable(TRUSTSTORE, truststore, "certificates to trust", error) from error
    return PeerTls(server=server, client=client, not_after_s=dict(_dates(keystore, truststore)))


def _dates(keystore: str, truststore: str) -> Iterator[tuple[str, int]]:
    """A chain is as good as its shortest. Of those to trust the last one counts: while an authority is exchanged there are two."""
    for store, path, choose in (("keystore", keystore, min), ("truststore", truststore, max)):
        if found := not_after_s(path):
            yield store, choose(found)


def _unusable(setting: str, path: str, wanted: str, error: Exception) -> ConfigRefused:
    return ConfigRefused(
        f"Invalid value {path!r} for configuration {setting}: it must be a PEM file with {wanted}: {error}"
    )
