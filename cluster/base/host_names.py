"""Whether a host can be asked for at all, said before anybody is told of it; and by whom."""

import ipaddress
import re
from typing import Final

# Addresses that mean "all of this machine's": something to listen on, nothing to connect to.
EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
NAME_MAX: Final = 253  # RFC 1035, as text
PART_MAX: Final = 63
PORT_MAX: Final = 65_535
# Underscores are in no host of the RFC, but in those of container networks.
_OTHER: Final = re.compile(r"[^a-z0-9._-]", re.ASCII | re.IGNORECASE)
_SHOWN_MAX: Final = 80


def why_no_host(host: str) -> str | None:
    """A sentence when it is neither an address nor a name that a name server can be asked for; it need not exist."""
    why = None if _is_address(host) else _why_no_name(host)
    if why is None:
        return None
    shown = repr(host if len(host) <= _SHOWN_MAX else host[:_SHOWN_MAX] + "…")
    return f"{shown} is no host name: {why}"


def host_and_port(host: str, port: int | str) -> str:
    """As people write them, and we read them again."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine's own users can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _why_no_name(host: str) -> str | None:
    if not host:
        return "it is empty"
    if len(host) > NAME_MAX:
        return f"it has over {NAME_MAX} characters"
    odd = _OTHER.search(host) if host.isascii() else None
    if odd is not None:
        return f"{odd[0]!r} stands in none"
    parts = host.removesuffix(".").split(".")
    if not all(parts):
        return "a part between its dots is empty"
    if any(len(part) > PART_MAX for part in parts):
        return f"a part between its dots has over {PART_MAX} characters"
    try:
        host.encode("idna")  # as the event loop does
    except UnicodeError as error:
        return str(error)
    return None
