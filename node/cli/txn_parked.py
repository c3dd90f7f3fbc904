"""Half messages that nobody's check decided: what waits for a person, and letting it go on.

Kafka's protocol has no words for them, so these commands speak to the admin door (`node/admin/README.md`).
"""

import argparse
import getpass
import urllib.parse
from typing import Any, Final

from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC

from ..few import few
from .admin_door import admin_url, ask_door, strange
from .checked import Failed
from .cluster import EXIT_FAILED, EXIT_OK, say
from .output import show, show_json, show_line
from .txn_sentences import show_duration

# What a half message has, as the door shows it.
SHOWN: Final = {
    "transactional_id": str,
    "half_id": str,
    "state": str,
    "checks": int,
    "prepared_ms": int,
    "changed_ms": int,
}


def parked(arguments: argparse.Namespace, now_ms: int) -> int:
    flag = "false" if arguments.all else "true"
    answer = ask_door(arguments, "GET", f"/v1/checks?parked={flag}")
    halves = _half_messages(arguments, answer)
    missing = _missing(answer)
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
        if missing:
            nothing = "Those that could be asked know of none."
        show(header, rows, as_json=False, empty=nothing)
        if any(each["state"] == "parked" for each in halves):
            print(
                "\nReaders of their partitions wait behind these. `fencepost txn release ID` has one checked again;"
                " `fencepost txn release ID --outcome commit|rollback` decides it."
            )
    for sentence in missing:
        say(sentence)
    return EXIT_FAILED if missing else EXIT_OK


def _half_messages(arguments: argparse.Namespace, answer: dict[str, Any]) -> list[dict[str, Any]]:
    halves = answer.get("half_messages")
    if not isinstance(halves, list):
        raise strange(admin_url(arguments), "it tells of no half messages")
    for each in halves:
        if not isinstance(each, dict) or not all(
            isinstance(each.get(name), kind) for name, kind in SHOWN.items()
        ):
            raise strange(admin_url(arguments), "what it tells of half messages can't be read")
    return halves


def _missing(answer: dict[str, Any]) -> list[str]:
    """Whose half messages are not in the answer. An older node does not say which partitions nobody answered for."""
    said = [
        f"node {node} could not be asked: what it coordinates is missing here"
        for node in _listed(answer, "nodes_not_reached")
    ]
    if partitions := [
        _partition(each) for each in _listed(answer, "partitions_without_a_coordinator")
    ]:
        said.append(
            f"nobody answers for {few(partitions)}: the half messages of its ids are missing here. Ask again in a moment;"
            f" `fencepost partition list {TRANSACTION_STATE_TOPIC} --offline` names the nodes to start if it has no leader."
        )
    return said


def _listed(answer: dict[str, Any], name: str) -> list[Any]:
    found = answer.get(name, [])
    return found if isinstance(found, list) else [found]


def _partition(each: Any) -> str:
    return f"{TRANSACTION_STATE_TOPIC}-{each}" if isinstance(each, int) else str(each)


def release(arguments: argparse.Namespace) -> int:
    name = arguments.transactional_id
    half_id = arguments.half_id
    if half_id is None:
        query = urllib.parse.urlencode({"transactional_id": name})
        half_id = _told(arguments, "half_id", "GET", f"/v1/checks/half-message?{query}")["half_id"]
    chosen = {"transactional_id": name, "half_id": half_id}
    if arguments.outcome is None:
        answer = ask_door(arguments, "POST", "/v1/checks/release", chosen)
        done = f"{name}: its producers are asked about {half_id} again, from the first interval on"
    else:
        # It can't be taken back: readers see it, or never do.
        decided = {**chosen, "outcome": arguments.outcome, "by": _who()}
        answer = _told(arguments, "state", "POST", "/v1/checks/decide", decided)
        done = f"{name}: {half_id} is {answer['state'].replace('_', ' ')}"
        if answer.get("as_wanted") is False:
            raise Failed(f"{name}: {answer.get('message', 'it was decided otherwise before')}")
    if arguments.json:
        show_json(answer)
    else:
        show_line(done)
    return EXIT_OK


def _told(arguments: argparse.Namespace, name: str, *asked: Any) -> dict[str, Any]:
    """An answer that says this."""
    answer = ask_door(arguments, *asked)
    if not isinstance(answer.get(name), str):
        raise strange(admin_url(arguments), f"it does not tell `{name}`")
    return answer


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "a person"
