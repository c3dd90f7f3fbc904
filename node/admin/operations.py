"""What can be asked at the admin door: a row for each question, run by the coordinator that it concerns.

`read` makes plain values of what came in (they may travel to another node) or raises BadInput; `key` says whose
coordinator is asked, None all of them; `run` asks, there.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.added_service import AddedService

from . import check_operations as checks
from . import group_operations as groups
from .answers import Answer

Args = dict[str, Any]


class Operation(NamedTuple):
    read: Callable[[Mapping[str, Any]], Args]
    key: Callable[[Args], str] | None
    # An ErrorCode is one of `answers.PASSING`: ask again.
    run: Callable[[AddedService, Args], Awaitable[Answer | ErrorCode]]
    # Which of its values older builds refuse to read: these are sent on beside the others, where they look past them.
    beside: tuple[str, ...] = ()


def _group(args: Args) -> str:
    return str(args["group"])


def _transactional_id(args: Args) -> str:
    return str(args["transactional_id"])


OPERATIONS: Final[Mapping[str, Operation]] = {
    "group.end": Operation(groups.read_end, _group, groups.end),
    "group.decision": Operation(groups.read_decision, _group, groups.decision),
    "group.describe": Operation(groups.read_group, _group, groups.describe),
    "checks.prepare": Operation(
        checks.read_prepare, _transactional_id, checks.prepare, beside=("half_number",)
    ),
    "checks.poll": Operation(checks.read_poll, _group, checks.poll),
    "checks.answer": Operation(checks.read_answer, _transactional_id, checks.answer),
    "checks.decide": Operation(checks.read_decide, _transactional_id, checks.decide),
    "checks.release": Operation(checks.read_release, _transactional_id, checks.release),
    "checks.describe": Operation(checks.read_describe, _transactional_id, checks.describe),
    "checks.list": Operation(checks.read_list, None, checks.list_all),
}

# Method and path -> the operation; a part in braces becomes a field.
ROUTES: Final[Mapping[tuple[str, str], str]] = {
    ("POST", "/v1/transaction-groups/{group}/end"): "group.end",
    ("GET", "/v1/transaction-groups/{group}/decisions/{number}"): "group.decision",
    ("GET", "/v1/transaction-groups/{group}"): "group.describe",
    ("POST", "/v1/checks/prepare"): "checks.prepare",
    ("POST", "/v1/checks/poll"): "checks.poll",
    ("POST", "/v1/checks/answer"): "checks.answer",
    ("POST", "/v1/checks/decide"): "checks.decide",
    ("POST", "/v1/checks/release"): "checks.release",
    ("GET", "/v1/checks/half-message"): "checks.describe",
    ("GET", "/v1/checks"): "checks.list",
}


class Match(NamedTuple):
    operation: str
    fields: dict[str, str]  # from the path


def match(method: str, path: str) -> Match | list[str]:
    """The operation; else the methods that this path knows, none when there is no such path."""
    parts = path.split("/")
    allowed = []
    for (known_method, pattern), operation in ROUTES.items():
        fields = _fields(pattern.split("/"), parts)
        if fields is not None:
            if known_method == method:
                return Match(operation, fields)
            allowed.append(known_method)
    return allowed


def _fields(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    fields = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            fields[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return fields
