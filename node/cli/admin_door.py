"""How commands speak to a node's admin door (`node/admin/README.md`): where it is, what is asked, what may be believed.

INVARIANT  a token goes to what --admin names, or to whoever listens above --bootstrap; a failure is a sentence, whoever answers.
PREVENTS   a proxy that a variable names, or a redirect of whoever answers, being handed the token of all nodes.
PROVED BY  tests/node/test_cli_parked.py::test_a_token_goes_to_no_proxy_and_follows_no_redirect
"""

import argparse
import http.client
import json
import os
from collections.abc import Mapping
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from .checked import Failed, NotUnderstood
from .children import ADMIN_PORTS_APART
from .health import LISTENER, URL, above, connection_to, door_url, own_door

EXAMPLE: Final = "127.0.0.1:10092"
TOKEN: Final = "FENCEPOST_ADMIN_TOKEN"  # noqa: S105 - the variable's name
TIMEOUT_S: Final = 15.0
ANSWER_BYTES_MAX: Final = 64 << 20  # far more than all half messages that a door shows at once
# The door's next step is for programs.
_AT_A_SHELL: Final[Mapping[str, str]] = {
    "TRANSACTIONAL_ID_NOT_FOUND": "`fencepost txn parked --all` shows those there are.",
    "SASL_AUTHENTICATION_FAILED": f"Put the nodes' admin.token into ${TOKEN}.",
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


def admin_url(arguments: argparse.Namespace) -> str:
    return admin_urls(arguments)[0]


def admin_urls(arguments: argparse.Namespace) -> list[str]:
    """The one that is named; else above each of --bootstrap that which `dev` opens for it."""
    if arguments.admin is not None:
        return [door_url(arguments.admin, EXAMPLE)]
    return [door_url(above(each.strip()), EXAMPLE) for each in arguments.bootstrap.split(",")]


def ask_door(
    arguments: argparse.Namespace, method: str, path: str, fields: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The answer's fields; Failed with the door's own sentence and next step.

    A door that nobody opens is not the last of --bootstrap; the first that does is asked from then on.
    """
    urls = admin_urls(arguments)
    why = ""
    for url in urls:
        try:
            found = _ask(url, method, path, fields)
        except _Closed as closed:
            why = str(closed)
        else:
            arguments.admin = url
            return found
    raise Failed(_no_door(", ".join(urls), why))


class _Closed(Exception):
    """Nothing was asked there."""


def _ask(url: str, method: str, path: str, fields: Mapping[str, Any] | None) -> dict[str, Any]:
    body = None if fields is None else json.dumps(fields).encode()
    headers = {"content-type": "application/json", **_token()}
    connection = connection_to(url, EXAMPLE, TIMEOUT_S)
    is_asked = False
    try:
        connection.connect()
        is_asked = True
        connection.request(method, urlsplit(url).path + path, body, headers)
        reply = connection.getresponse()
        found = reply.read(ANSWER_BYTES_MAX + 1)
        if reply.length and len(found) <= ANSWER_BYTES_MAX:
            raise http.client.IncompleteRead(found, reply.length)
    except (OSError, UnicodeError, http.client.HTTPException) as broken:
        if not is_asked:
            raise _Closed(_why(broken)) from broken
        _fail(url, broken, may_have_happened=method != "GET")
    finally:
        connection.close()
    if len(found) > ANSWER_BYTES_MAX:
        raise strange(url, f"its answer is longer than {ANSWER_BYTES_MAX >> 20} MiB")
    return _answer(url, reply, found)


def _fail(url: str, broken: Exception, *, may_have_happened: bool) -> NoReturn:
    why = _why(broken)
    if may_have_happened:
        raise Failed(
            f"the admin door at {url} did not answer ({why}). It may have been done all the same:"
            " look with `fencepost txn parked --all` before trying again."
        ) from broken
    if isinstance(broken, http.client.HTTPException):
        raise strange(url, f"it answers with what is not whole HTTP: {why}") from broken
    raise Failed(_no_door(url, why)) from broken


def _no_door(where: str, why: str) -> str:
    return f"no admin door answers at {where} ({why}). It opens at a node's admin.listener; name one with --admin."


def _why(broken: Exception) -> str:
    return str(broken).strip() or type(broken).__name__


def _answer(url: str, reply: http.client.HTTPResponse, body: bytes) -> dict[str, Any]:
    if http.client.MULTIPLE_CHOICES <= reply.status < http.client.BAD_REQUEST:
        where = reply.getheader("location")
        raise strange(url, f"it sends elsewhere ({reply.status}, {where!r}), which is not followed")
    said = _fields(url, body)
    if reply.status == http.client.OK:
        return said
    step = _AT_A_SHELL.get(str(said.get("error")), said.get("next_step"))
    why = f"{said.get('error', reply.status)}: {said.get('message', reply.reason)}"
    raise Failed(f"{why.rstrip('.')}.{f' {step}' if step else ''}")


def _token() -> dict[str, str]:
    """For an admin door that other machines reach."""
    token = os.environ.get(TOKEN, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise NotUnderstood(
            f"${TOKEN} has characters that no token has: say the nodes' admin.token"
        )
    return {"authorization": f"Bearer {token}"} if token else {}


def _fields(url: str, body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as wrong:
        raise strange(url, "it does not speak JSON") from wrong
    if not isinstance(found, dict):
        raise strange(url, "what it says has no fields")
    return found


def strange(url: str, why: str) -> Failed:
    return Failed(f"what answers at {url} is no admin door: {why}. Name one with --admin.")
