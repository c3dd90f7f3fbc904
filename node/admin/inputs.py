"""Reading what a stranger sent: each field by name, type and bounds, or a sentence that says what is wrong with it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

NUMBER_MAX: Final = 2**63 - 1
EPOCH_MAX: Final = 2**15 - 1
# A transactional id is written with two bytes of length; nobody's name needs more.
NAME_BYTES_MAX: Final = 1_000
WAIT_MS_MAX: Final = 60_000
Fields = Mapping[str, Any]


class BadInput(Exception):
    """The request can't be meant like this; says what is allowed."""


def read_body(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; an empty body is an empty object."""
    if not body:
        return {}
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as damaged:
        raise BadInput(f"the body is not JSON: {damaged}") from None
    if not isinstance(parsed, dict):
        raise BadInput(f"the body must be a JSON object, not {_kind(parsed)}")
    return parsed


def allow(fields: Fields, *names: str) -> None:
    """A misspelt field must not pass for one that was left out."""
    for field in fields:
        if field not in names:
            name = str(field)  # a peer's may be anything
            # In these quotes clients know a door of an older build by it.
            shown = repr(name if len(name) <= 60 else f"{name[:57]}…")
            raise BadInput(f"{shown} is no field of this request: it may have {', '.join(names)}")


def name(fields: Fields, field: str, *, default: str | None = None) -> str:
    value = fields.get(field, default)
    if not isinstance(value, str) or (not value and default is None):
        raise BadInput(f"{field} must be a string that is not empty, not {_shown(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadInput(f"{field} must be valid Unicode") from None
    if size > NAME_BYTES_MAX:
        raise BadInput(f"{field} may have {NAME_BYTES_MAX} bytes at most, and this has {size}")
    return value


def group_name(fields: Fields, field: str = "group") -> str:
    value = name(fields, field)
    if "::" in value or value.endswith(":"):
        raise BadInput(
            f"{field} must not contain '::', nor end in ':': '::' parts a group from its member, as in GROUP::MEMBER"
        )
    return value


def integer(
    fields: Fields,
    field: str,
    *,
    least: int = 0,
    most: int = NUMBER_MAX,
    default: int | None = None,
) -> int:
    value = fields.get(field, default)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)  # in a path or a query everything is text
    if type(value) is not int or not least <= value <= most:
        raise BadInput(
            f"{field} must be a whole number from {least} to {most}, not {_shown(value)}"
        )
    return value


def flag(fields: Fields, field: str) -> bool:
    value = fields.get(field, False)
    if value in ("true", "false"):
        value = value == "true"
    if type(value) is not bool:
        raise BadInput(f"{field} must be true or false, not {_shown(value)}")
    return value


def choice(fields: Fields, field: str, allowed: Sequence[str]) -> str:
    value = fields.get(field)
    if not isinstance(value, str) or value not in allowed:
        raise BadInput(f"{field} must be one of {', '.join(allowed)}, not {_shown(value)}")
    return value


def rows(fields: Fields, field: str, *, most: int) -> list[Mapping[str, Any]]:
    value = fields.get(field, [])
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BadInput(f"{field} must be a list of objects, not {_shown(value)}")
    if len(value) > most:
        raise BadInput(f"{field} may have {most} entries at most, and this has {len(value)}")
    return value


def table(fields: Fields, field: str, *, most: int) -> dict[str, Mapping[str, Any]]:
    value = fields.get(field)
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise BadInput(f"{field} must be an object of objects, by name, not {_shown(value)}")
    if len(value) > most:
        raise BadInput(f"{field} may have {most} entries at most, and this has {len(value)}")
    return value


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "nothing" if value is None else kinds.get(type(value), "a number")


def _shown(value: object) -> str:
    """As JSON, and not all of a megabyte."""
    if value is None:
        return "nothing"
    try:
        text = json.dumps(value, default=repr, skipkeys=True)  # a peer's may be no JSON
    except RecursionError:  # what was just shallow enough to be read
        return _kind(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
