"""`fencepost health`: whether a node may be counted on, in its own sentence; for people, containers and scripts.

Nothing heavy is imported: a container asks every few seconds.
"""

import argparse
import http.client
import json
import os
import sys
from typing import Any, Final
from urllib.parse import urlsplit

from fencepost.cluster.base.host_names import EVERYWHERE, PORT_MAX, host_and_port
from fencepost.cluster.base.shown import printable

from .checked import CLIENT_PORT, Failed, NotUnderstood, address
from .full_output import written_whole

PORT: Final = 9644
PORTS: Final = {"http": 80, "https": 443}  # with a scheme the port may be left out
EXAMPLE: Final = f"127.0.0.1:{PORT}"
TIMEOUT_S: Final = 4.0
ANSWER_BYTES_MAX: Final = 64 << 10  # a sentence takes a few hundred
LISTENER, URL = "FENCEPOST_ADMIN_LISTENER", "FENCEPOST_ADMIN_URL"
BOOTSTRAP: Final = "FENCEPOST_BOOTSTRAP"
EXIT_OK, EXIT_NOT_READY, EXIT_USAGE = 0, 1, 2


def configure(parser: argparse.ArgumentParser) -> None:
    parser.allow_abbrev = False
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--admin",
        metavar="HOST:PORT",
        help=f"a node's admin door (${URL}, or where ${LISTENER} is on this machine)",
    )
    whose.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"nodes as clients reach them, with commas between: each is asked, 1000 above its port, where"
        f" `fencepost dev` has its admin door (where no variable names a door: ${BOOTSTRAP}, or 127.0.0.1:{CLIENT_PORT})",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="only whether the process turns, not whether clients and other nodes may count on it",
    )


def doors(admin: str | None, bootstrap: str | None) -> list[str]:
    """What is said on purpose comes first, then the door that a variable names."""
    if admin is None and bootstrap is None:
        listener = os.environ.get(LISTENER)  # inside of a node's container
        admin = os.environ.get(URL) or (own_door(listener) if listener else None)
        bootstrap = os.environ.get(BOOTSTRAP) or f"127.0.0.1:{CLIENT_PORT}"
    if admin is not None:
        return [admin]
    assert bootstrap is not None
    return [above(each.strip()) for each in bootstrap.split(",")]


def own_door(listener: str) -> str:
    host, _, port = listener.strip().rpartition(":")
    host = host.strip("[]")
    host = "127.0.0.1" if host in EVERYWHERE else host
    return host_and_port(host, port or PORT)


def door_url(text: str, example: str) -> str:
    """Of what --admin may say: HOST:PORT, or a URL, behind a proxy that speaks TLS for the node."""
    scheme, found, rest = text.rpartition("://")
    place, _, path = rest.partition("/")
    if found and scheme not in PORTS:
        raise NotUnderstood(f"--admin {text!r}: say HOST:PORT, for example {example}")
    address(place, "--admin", PORTS[scheme] if found else None, example)
    return f"{scheme or 'http'}://{place}/{path}".rstrip("/")


def connection_to(url: str, example: str, timeout_s: float) -> http.client.HTTPConnection:
    """Not urllib's opener: it takes a proxy out of the environment, and follows redirects, with the token."""
    door = urlsplit(url)
    host, port = address(door.netloc, "--admin", PORTS[door.scheme], example)
    kind = http.client.HTTPSConnection if door.scheme == "https" else http.client.HTTPConnection
    return kind(host, port, timeout=timeout_s)


def run(arguments: argparse.Namespace) -> int:
    """0 when all that are asked are as asked; 1, and why, when one is not or does not answer."""
    return written_whole(lambda: _asked(arguments))


def _asked(arguments: argparse.Namespace) -> int:
    try:
        places = doors(arguments.admin, arguments.bootstrap)
        urls = [door_url(each, EXAMPLE) for each in places]
        connections = [connection_to(url, EXAMPLE, TIMEOUT_S) for url in urls]
    except Failed as wrong:
        print(f"fencepost: {wrong}", file=sys.stderr)
        return EXIT_USAGE
    asked = "live" if arguments.live else "ready"
    codes = []
    for place, url, connection in zip(places, urls, connections, strict=True):
        try:
            is_so, why = _ask(connection, place, url, asked)
        except Failed as silent:
            print(f"fencepost: {silent}", file=sys.stderr)
            codes.append(EXIT_NOT_READY)
        else:
            print(printable(why if len(places) == 1 else f"{place}: {why}"))
            codes.append(EXIT_OK if is_so else EXIT_NOT_READY)
    return max(codes)


def _ask(
    connection: http.client.HTTPConnection, place: str, url: str, asked: str
) -> tuple[bool, str]:
    """Whether it is so, in its own words."""
    try:
        connection.request("GET", f"{urlsplit(url).path}/health/{asked}")
        reply = connection.getresponse()
        status, body = reply.status, reply.read(ANSWER_BYTES_MAX)
    except (OSError, UnicodeError, http.client.HTTPException) as silent:
        raise Failed(
            f"no answer from the admin door {place} ({silent}). Is the node up, and is admin.listener set? Name that with"
            f" --admin; `fencepost dev` has it 1000 above the client port: --admin {_door_of_dev()}"
        ) from silent
    finally:
        connection.close()
    said = _fields(body)
    if not isinstance(said.get(asked), bool):
        raise Failed(
            f"what answers at {place} is no admin door: it does not say whether it is `{asked}`. Name one with --admin."
        )
    return said[asked] and status == http.client.OK, str(said.get("why", ""))


def _door_of_dev() -> str:
    """Of the first node of $FENCEPOST_BOOTSTRAP, or of `dev` as it comes."""
    try:
        return above(os.environ.get(BOOTSTRAP, "").partition(",")[0])
    except NotUnderstood:
        return above(f"127.0.0.1:{CLIENT_PORT}")


def above(client_door: str) -> str:
    """The admin door that `dev` opens for it."""
    from .children import ADMIN_PORTS_APART  # slow to import

    host, client_port = address(client_door, "--bootstrap", CLIENT_PORT)
    if client_port + ADMIN_PORTS_APART > PORT_MAX:
        raise NotUnderstood(
            f"--admin is needed: there is no port {ADMIN_PORTS_APART} above that of --bootstrap {client_door}"
        )
    return host_and_port(host, client_port + ADMIN_PORTS_APART)


def _fields(body: bytes) -> dict[str, Any]:
    """None, of whatever else serves HTTP there."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
