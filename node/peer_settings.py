"""Who votes, and where this node's peer door is: the settings that make several nodes one cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.base.host_names import EVERYWHERE, host_and_port, is_loopback, why_no_host
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.peer_door import PeerTls

VOTERS: Final = "controller.quorum.voters"
LISTENER: Final = "peer.listener"
ADVERTISED: Final = "peer.advertised.listener"
SECRET: Final = "peer.secret"  # noqa: S105 - a setting's name
# Four survive no more than three do, and each more makes every change wait for more.
VOTER_COUNTS: Final = (1, 3, 5)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """`listener` is None for a node that needs no peer door: it votes alone, and nobody follows it."""

    voters: Mapping[BrokerId, Address]
    listener: Address | None
    advertised: Address | None
    secret: bytes
    tls: PeerTls | None = None

    @property
    def is_alone(self) -> bool:
        return self.listener is None


def peer_settings(
    node_id: BrokerId,
    voters: Sequence[str],
    listener: str,
    advertised: str,
    secret: str,
    tls: PeerTls | None = None,
) -> PeerSettings:
    """ConfigRefused for what can't be; a node that is none of the voters follows them."""
    known = _parse_voters(voters)
    alone = not known or list(known) == [node_id]
    if not listener and not alone:
        if node_id not in known:
            raise ConfigRefused(
                f"Invalid value {','.join(voters)!r} for configuration {VOTERS}: node {node_id} is none "
                f"of the voters, so it follows them, and needs a {LISTENER} of its own: HOST:PORT"
            )
        listener = host_and_port(*known[node_id])
    if not listener:
        if advertised:
            raise ConfigRefused(f"{ADVERTISED}={advertised} is set, and {LISTENER} is not")
        return PeerSettings(
            voters={node_id: ("", 0)}, listener=None, advertised=None, secret=secret.encode()
        )
    bound = parse_address(LISTENER, listener)
    told = parse_address(ADVERTISED, advertised) if advertised else bound
    if not advertised and bound[0] in EVERYWHERE and node_id in known:
        told = known[node_id]
    _check_reach(node_id, known, bound, told, secret)
    return PeerSettings(
        voters=known or {node_id: told},
        listener=bound,
        advertised=told,
        secret=secret.encode(),
        tls=tls,
    )


def _check_reach(
    node_id: BrokerId,
    voters: Mapping[BrokerId, Address],
    bound: Address,
    told: Address,
    secret: str,
) -> None:
    if told[0] in EVERYWHERE:
        raise ConfigRefused(
            f"other nodes can't be told to connect to {told[0] or 'an empty host'}: set "
            f"{ADVERTISED}=HOST:{told[1]} with a host that they reach"
        )
    if told[1] == 0:
        raise ConfigRefused(
            f"Invalid value {host_and_port(*bound)!r} for configuration {LISTENER}: the other nodes must know the "
            "port before this one starts; name one"
        )
    if secret:
        return
    addresses = {LISTENER: bound, ADVERTISED: told}
    addresses |= {f"{VOTERS}, node {voter}": voters[voter] for voter in sorted(voters)}
    for where, address in addresses.items():
        if not is_loopback(address[0]):
            raise ConfigRefused(
                f"{host_and_port(*address)} ({where}) is reached over a network: set {SECRET}, the same on "
                f"every node, so that nobody else can pose as node {node_id} or another; without it "
                "all peer addresses must be of the loopback"
            )


def _parse_voters(entries: Sequence[str]) -> dict[BrokerId, Address]:
    found: dict[BrokerId, Address] = {}
    text = ",".join(entries)
    for entry in entries:
        number, at, address = entry.strip().partition("@")
        if not at or not number.isdecimal():
            raise ConfigRefused(
                f"Invalid value {entry!r} for configuration {VOTERS}: allowed is ID@HOST:PORT, for "
                "example 1@10.0.0.1:9192"
            )
        voter = BrokerId(int(number))
        if voter in found:
            raise ConfigRefused(
                f"Invalid value {text!r} for configuration {VOTERS}: node {voter} stands there twice"
            )
        where = parse_address(VOTERS, address)
        if where in found.values():
            raise ConfigRefused(
                f"Invalid value {text!r} for configuration {VOTERS}: {address} stands there twice"
            )
        if where[0] in EVERYWHERE or where[1] == 0:
            raise ConfigRefused(
                f"Invalid value {text!r} for configuration {VOTERS}: nobody can connect to {address}"
            )
        found[voter] = where
    if found and len(found) not in VOTER_COUNTS:
        raise ConfigRefused(
            f"Invalid value {text!r} for configuration {VOTERS}: {len(found)} nodes; 1, 3 or 5 vote, and "
            "further nodes follow them"
        )
    return found


def parse_address(setting: str, text: str, example: str = "127.0.0.1:9192") -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigRefused(
            f"Invalid value {text!r} for configuration {setting}: allowed is HOST:PORT, for example "
            + example
        )
    host = host.strip("[]")
    why = why_no_host(host) if host else None  # an empty one is all of this machine's
    if why is not None:
        raise ConfigRefused(f"Invalid value {text!r} for configuration {setting}: {why}")
    return host, int(port)
