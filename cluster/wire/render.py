"""Plain dicts to the messages of one version: handlers state what they know, this keeps what that version has.

INVARIANT  a name that some version of the message knows is kept or dropped; one that none knows is an error.
PREVENTS   a misspelt field silently answered with its default.
PROVED BY  tests/cluster/wire/test_wire_render.py::test_a_name_that_no_version_knows_is_an_assertion

Fields have kio's names; those that lost their unit there are also taken with it (`throttle_time_ms` for
`throttle_time`). What is missing gets the schema's default. Milliseconds may be ints, error codes may be ints,
arrays may be lists or tuples, structs are dicts or already rendered.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final, TypeAlias

from ..base.errors import ErrorCode
from .api import SUPPORTED, ApiKey, request_class, response_class
from .reader import implicit_default, tagged_default
from .schema import MISSING, EntityClass, Field, fields_of

Convert: TypeAlias = Callable[[Any], Any]
_Path: TypeAlias = tuple[str, ...]
_TIMES: Final = frozenset({"timedelta_i32", "timedelta_i64", "datetime_i64"})


def render(api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
    """The response body of `version` from `fields`."""
    return _renderer(api_key, response_class, version, response_class(api_key, version), ())(fields)


def render_request(api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
    return _renderer(api_key, request_class, version, request_class(api_key, version), ())(fields)


_Loader: TypeAlias = Callable[[ApiKey, int], EntityClass]


# For one set of names: (setter, converter or None) of each in order, and (setter, default) of all others.
_Shape: TypeAlias = tuple[
    list[tuple[Callable[[Any, Any], None], Convert | None]],
    list[tuple[Callable[[Any, Any], None], Any]],
]


@cache
def _renderer(
    api_key: ApiKey, load: _Loader, version: int, entity: EntityClass, path: _Path
) -> Convert:
    plan = {
        field.name: (
            getattr(entity, field.name).__set__,
            _converter(api_key, load, version, field, path),
            _default(field),
        )
        for field in fields_of(entity)
    }
    timed = {f"{field.name}_ms": field.name for field in fields_of(entity) if field.kind in _TIMES}
    new = entity.__new__

    @cache
    def shape_of(names: tuple[str, ...]) -> _Shape:
        """Handlers write the same few names in the same order, so this is worked out once for each."""
        puts: list[tuple[Callable[[Any, Any], None], Convert | None]] = []
        rest = dict(plan)
        for name in names:
            known = plan.get(timed.get(name, name))
            if known is None:
                assert _known_elsewhere(api_key, load, path, name), (
                    f"no version of {api_key.name} has {'.'.join((*path, name))}"
                )
                puts.append((_drop, None))
                continue
            puts.append((known[0], known[1]))
            rest.pop(timed.get(name, name), None)
        return puts, [(put, default) for put, _, default in rest.values()]

    def convert_struct(fields: Any) -> Any:
        if type(fields) is entity:
            return fields
        value = new(entity)
        puts, rest = shape_of(tuple(fields))
        for (put, convert), item in zip(puts, fields.values(), strict=True):
            put(value, item if convert is None else convert(item))
        for put, default in rest:
            put(value, default)
        return value

    return convert_struct


def _drop(value: Any, item: Any) -> None:
    """Another version has this field."""


def _default(field: Field) -> Any:
    """Mutable defaults do not exist: arrays are tuples, structs are frozen."""
    if field.default is not MISSING:
        return _plain(field, field.default)
    return tagged_default(field) if field.tag is not None else implicit_default(field)


def _plain(field: Field, default: Any) -> Any:
    """64-bit times default to datetimes in kio; here they are ints."""
    if field.kind in ("timedelta_i64", "datetime_i64"):
        return -1 if default is None else default // timedelta(milliseconds=1)
    return default


def _converter(
    api_key: ApiKey, load: _Loader, version: int, field: Field, path: _Path
) -> Convert | None:
    """From what a handler says to what the message holds; None where they are the same."""
    one: Convert | None = None
    if field.struct is not None:
        one = _renderer(api_key, load, version, field.struct, (*path, field.name))
    elif field.kind == "error_code":
        one = _error_code
    elif field.kind == "timedelta_i32":
        one = _timedelta
    elif field.kind in _TIMES:
        one = _int_ms
    if not field.is_array:
        return one if field.struct is None else _or_none(one)
    if one is None:
        return lambda items: items if items is None else tuple(items)
    return lambda items: items if items is None else tuple(map(one, items))


def _or_none(convert: Convert | None) -> Convert:
    assert convert is not None
    return lambda value: None if value is None else convert(value)


def _error_code(value: int) -> ErrorCode:
    return value if type(value) is ErrorCode else ErrorCode(value)


def _timedelta(value: int | timedelta) -> timedelta:
    return value if type(value) is timedelta else timedelta(milliseconds=value)  # type: ignore[arg-type]


def _int_ms(value: int | timedelta | None) -> int:
    if value is None:
        return -1
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value


@cache
def _known_elsewhere(api_key: ApiKey, load: _Loader, path: _Path, name: str) -> bool:
    """Whether another version's struct at `path` has the field. Loads them all, once for each such name."""
    low, high = SUPPORTED[api_key]
    for version in range(high, low - 1, -1):
        entity: EntityClass | None = load(api_key, version)
        for step in path:
            entity = next((field.struct for field in fields_of(entity) if field.name == step), None)
            if entity is None:
                break
        if entity is not None and any(
            name in (field.name, f"{field.name}_ms" if field.kind in _TIMES else field.name)
            for field in fields_of(entity)
        ):
            return True
    return False
