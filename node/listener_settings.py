"""Where clients reach a node: `listeners`, `advertised.listeners`, and what is spoken on each of them.

INVARIANT  each listener has exactly one advertised address, of the same name, that a client can connect to.
PREVENTS   a client outside a container network that is told an address which only those inside can reach.
PROVED BY  tests/node/test_listeners.py::test_a_client_is_told_the_addresses_of_the_listener_that_it_asked_on

A listener's name says which network it is for (`INSIDE`, `OUTSIDE`); `listener.security.protocol.map` says what is
spoken there, as in Kafka. Names in the map by default are those of the protocols themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.base.host_names import EVERYWHERE, why_no_host

from .voters import PEER_LISTENER

LISTENERS: Final = "listeners"
ADVERTISED: Final = "advertised.listeners"
PROTOCOLS: Final = "listener.security.protocol.map"
# What Kafka knows. The others need TLS and SASL, which the client door does not have yet.
_KNOWN: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SPOKEN: Final = ("PLAINTEXT",)


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """One entry of `listeners`: `PLAINTEXT://127.0.0.1:9092`."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Two rows of equal length and names: where to listen, and what clients are told."""

    bound: tuple[ListenerAddress, ...]
    advertised: tuple[ListenerAddress, ...]


def listener_settings(listeners: str, advertised: str, protocols: str) -> ListenerSettings:
    """ConfigRefused for what can't be."""
    spoken = _parse_protocols(protocols)
    bound = _parse(LISTENERS, listeners, spoken)
    _check_ports(listeners, bound)
    told = _parse(ADVERTISED, advertised, spoken) if advertised else bound
    by_name = {each.name: each for each in told}
    if sorted(by_name) != sorted(each.name for each in bound):
        raise ConfigRefused(
            f"Invalid value {advertised} for configuration {ADVERTISED}: it must name each of "
            f"{LISTENERS} ({listeners}), and no other"
        )
    settings = ListenerSettings(bound, tuple(by_name[each.name] for each in bound))
    for each in settings.advertised:
        if each.host in EVERYWHERE:
            raise ConfigRefused(
                f"clients can't be told to connect to {each.host or 'an empty host'}: set "
                f"{ADVERTISED}={each.name}://HOST:{each.port} with a host that they reach"
            )
    return settings


def _parse_protocols(text: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for entry in text.split(","):
        name, colon, protocol = entry.strip().partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not name or not colon or protocol not in _KNOWN:
            raise ConfigRefused(
                f"Invalid value {entry!r} for configuration {PROTOCOLS}: allowed is NAME:PROTOCOL, with "
                f"one of {', '.join(_KNOWN)}; for example INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"
            )
        if name in found:
            raise ConfigRefused(
                f"Invalid value {text!r} for configuration {PROTOCOLS}: {name} stands there twice"
            )
        found[name] = protocol
    return found


def _parse(setting: str, text: str, protocols: Mapping[str, str]) -> tuple[ListenerAddress, ...]:
    found: dict[str, ListenerAddress] = {}
    for entry in text.split(","):
        name, separator, address = entry.strip().partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigRefused(
                f"Invalid value {entry!r} for configuration {setting}: "
                "allowed is NAME://HOST:PORT, for example PLAINTEXT://127.0.0.1:9092"
            )
        name = name.upper()
        if name in found:
            raise ConfigRefused(
                f"Invalid value {text!r} for configuration {setting}: {name} stands there twice"
            )
        protocol = _protocol_of(name, entry, setting, protocols)
        host = host.strip("[]")
        why = why_no_host(host) if host else None  # an empty one is all of this machine's
        if why is not None:
            raise ConfigRefused(f"Invalid value {entry!r} for configuration {setting}: {why}")
        found[name] = ListenerAddress(name, host, int(port), protocol)
    return tuple(found.values())


def _protocol_of(name: str, entry: str, setting: str, protocols: Mapping[str, str]) -> str:
    if name == PEER_LISTENER:
        raise ConfigRefused(
            f"Invalid value {entry!r} for configuration {setting}: {name} is the name of the door for "
            "the other nodes (peer.listener); choose another"
        )
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigRefused(
            f"Invalid value {entry!r} for configuration {setting}: {PROTOCOLS} does not say what is "
            f"spoken on {name}; add {name}:PLAINTEXT to it, or name the listener PLAINTEXT"
        )
    if protocol not in _SPOKEN:
        raise ConfigRefused(
            f"Invalid value {entry!r} for configuration {setting}: its protocol {protocol} is not there "
            f"yet; allowed is {', '.join(_SPOKEN)}"
        )
    return protocol


def _check_ports(text: str, bound: Sequence[ListenerAddress]) -> None:
    """What the kernel would refuse later, and less clearly."""
    for place, each in enumerate(bound):
        for other in bound[:place]:
            same_host = each.host == other.host or {each.host, other.host} & set(EVERYWHERE)
            if each.port and each.port == other.port and same_host:
                raise ConfigRefused(
                    f"Invalid value {text!r} for configuration {LISTENERS}: {other.name} and {each.name} "
                    f"can't both listen on port {each.port}; give each its own"
                )
