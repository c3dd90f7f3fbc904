"""Half messages that nobody's check decided: what waits for a person, and letting it go on.

Kafka's protocol has no words for them, so these commands speak to the admin door (`node/admin/README.md`).
"""

import argparse
import getpass
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from .checked import PORT_MAX, Failed, address
from .children import ADMIN_PORTS_APART
from .cluster import EXIT_FAILED, EXIT_OK, PORT, say
from .health import LISTENER, URL, own_door
from .output import show, show_json
from .txn_sentences import show_duration

ADMIN_EXAMPLE: Final = "127.0.0.1:10092"
TIMEOUT_S: Final = 15.0
# The door's next step is for programs.
_AT_A_SHELL: Final[Mapping[str, str]] = {
    "TRANSACTIONAL_ID_NOT_FOUND": "`fencepost txn parked --all` shows those there are.",
    "SASL_AUTHENTICATION_FAILED": "Put the nodes' admin.token into $FENCEPOST_ADMIN_TOKEN.",
}


def add_admin_argument(parser: argparse.ArgumentParser) -> None:
    listener = os.environ.get(LISTENER)  # inside of a node's container
    parser.add_argument(
        "--admin",
        default=os.environ.get(URL) or (own_door(listener) if listener else None),
        metavar="HOST:PORT",
        help=f"a node's admin door (${URL}, where ${LISTENER} is on this machine, or {ADMIN_PORTS_APART} above the"
        " port of --bootstrap)",
    )


def parked(arguments: argparse.Namespace, now_ms: int) -> int:
    flag = "false" if arguments.all else "true"
    answer = _ask(arguments, "GET", f"/v1/checks?parked={flag}")
    halves: list[dict[str, Any]] = answer["half_messages"]
    silent = answer.get("nodes_not_reached", [])
    if arguments.json:
        show_json(halves)
    else:
        rows = [
            (
                each["transactional_id"],
                each["half_id"],
                each["state"],
                each["checks"],
                show_duration(now_ms - each["prepared_ms"]),
                show_duration(now_ms - each["changed_ms"]) if each["state"] == "parked" else None,
            )
            for each in halves
        ]
        header = ("transactional id", "half message", "state", "checks", "prepared", "parked")
        nothing = "No half message waits." if arguments.all else "Nothing is parked."
        show(header, rows, as_json=False, empty=nothing)
        if any(each["state"] == "parked" for each in halves):
            print(
                "\nReaders of their partitions wait behind these. `fencepost txn release ID` has one checked again;"
                " `fencepost txn release ID --outcome commit|rollback` decides it."
            )
    for node in silent:
        say(f"node {node} could not be asked: what it coordinates is missing here")
    return EXIT_FAILED if silent else EXIT_OK


def release(arguments: argparse.Namespace) -> int:
    name = arguments.transactional_id
    half_id = arguments.half_id
    if half_id is None:
        query = urllib.parse.urlencode({"transactional_id": name})
        half_id = _ask(arguments, "GET", f"/v1/checks/half-message?{query}")["half_id"]
    chosen = {"transactional_id": name, "half_id": half_id}
    if arguments.outcome is None:
        answer = _ask(arguments, "POST", "/v1/checks/release", chosen)
        done = f"{name}: its producers are asked about {half_id} again, from the first interval on"
    else:
        # It can't be taken back: readers see it, or never do.
        decided = {**chosen, "outcome": arguments.outcome, "by": _who()}
        answer = _ask(arguments, "POST", "/v1/checks/decide", decided)
        done = f"{name}: {half_id} is {answer['state'].replace('_', ' ')}"
        if answer.get("as_wanted") is False:
            raise Failed(f"{name}: {answer['message']}")
    if arguments.json:
        show_json(answer)
    else:
        print(done)
    return EXIT_OK


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "a person"


# --- the admin door -------------------------------------------------------------------------------


def admin_url(arguments: argparse.Namespace) -> str:
    text = arguments.admin
    if text is None:
        first = arguments.bootstrap.split(",")[0].strip()
        host, client_port = address(first, "--bootstrap", PORT)
        if client_port + ADMIN_PORTS_APART > PORT_MAX:
            raise Failed(
                f"--admin is needed: there is no port {ADMIN_PORTS_APART} above that of --bootstrap {first}"
            )
        shown = f"[{host}]" if ":" in host else host
        text = f"{shown}:{client_port + ADMIN_PORTS_APART}"
    scheme, found, rest = text.rpartition("://")
    place, _, path = rest.partition("/")
    if found and scheme not in ("http", "https"):
        raise Failed(f"--admin {text!r}: say HOST:PORT, for example {ADMIN_EXAMPLE}")
    address(place, "--admin", 443 if scheme == "https" else 80 if found else None, ADMIN_EXAMPLE)
    return f"{scheme or 'http'}://{place}/{path}".rstrip("/")


def _ask(
    arguments: argparse.Namespace, method: str, path: str, fields: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The answer's fields; Failed with the door's own sentence and next step."""
    url = admin_url(arguments)
    body = None if fields is None else json.dumps(fields).encode()
    request = urllib.request.Request(  # noqa: S310 - `admin_url` lets nothing but HTTP through
        f"{url}{path}",
        data=body,
        method=method,
        headers={"content-type": "application/json", **_token()},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310 - as above
            return _fields(url, reply.read())
    except urllib.error.HTTPError as refused:
        said = _fields(url, refused.read())
        step = _AT_A_SHELL.get(str(said.get("error")), said.get("next_step"))
        why = f"{said.get('error', refused.code)}: {said.get('message', refused.reason)}"
        raise Failed(f"{why.rstrip('.')}.{f' {step}' if step else ''}") from refused
    except (urllib.error.URLError, OSError) as silent:
        reason = getattr(silent, "reason", silent)
        raise Failed(
            f"no admin door answers at {url} ({reason}). It opens at a node's admin.listener; name one with --admin."
        ) from silent


def _token() -> dict[str, str]:
    """For an admin door that other machines reach."""
    token = os.environ.get("FENCEPOST_ADMIN_TOKEN")
    return {"authorization": f"Bearer {token}"} if token else {}


def _fields(url: str, body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as strange:
        raise Failed(f"what answers at {url} is no admin door: it does not speak JSON") from strange
    if not isinstance(found, dict):
        raise Failed(f"what answers at {url} is no admin door")
    return found
