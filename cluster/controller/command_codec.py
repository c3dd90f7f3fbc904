"""How commands for the controller, and its answers, travel between nodes.

INVARIANT  what is read is a command of the list below with fields of the declared types, or it is refused.
PREVENTS   a peer of another version, or a damaged frame, making the controller decide on something impossible.
PROVED BY  tests/cluster/controller/test_command_codec.py::test_any_bytes_are_a_command_or_refused

Each type is written as its annotations say: a dataclass as a map of its fields by name, without those that have
their default, so that versions may add fields; an enum as its value, a UUID as its bytes. A field that the reader
does not know is refused: what it asks for would silently not be done.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NewType, TypeVar, Union, get_args, get_origin
from uuid import UUID

import msgpack

from ..base.errors import FrameRefused
from .commands import ControllerCommand
from .service import DECIDE

R = TypeVar("R")
_INT_MIN: Final = -(2**63)
_INT_END: Final = 2**63


class _Wrong(Exception):
    """What was read is not of the type that is declared."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Codec:
    """`write` to what msgpack has, and back."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _as_it_is(value: Any) -> Any:
    return value


def _plain(*allowed: type) -> _Codec:
    def read(value: Any) -> Any:
        if type(value) not in allowed:
            raise _Wrong(f"{type(value).__name__} instead of {allowed[0].__name__}")
        return value

    return _Codec(_as_it_is, read)


def _read_int(value: Any) -> int:
    if type(value) is not int or not _INT_MIN <= value < _INT_END:
        raise _Wrong(f"{value!r:.40} instead of an integer of 64 bits")
    return value


def _read_uuid(value: Any) -> UUID:
    if type(value) is not bytes or len(value) != 16:
        raise _Wrong(f"{value!r:.40} instead of a UUID")
    return UUID(bytes=value)


_LEAVES: Final[Mapping[Any, _Codec]] = {
    int: _Codec(_as_it_is, _read_int),
    str: _plain(str),
    bool: _plain(bool),
    bytes: _plain(bytes),
    float: _plain(float, int),
    UUID: _Codec(lambda value: value.bytes, _read_uuid),
    type(None): _plain(type(None)),
}


def _items(value: Any) -> list[Any]:
    if type(value) is not list:
        raise _Wrong(f"{type(value).__name__} instead of a list")
    return value


def _sequence(make: Callable[[list[Any]], Any], item: _Codec) -> _Codec:
    return _Codec(
        lambda value: [item.write(each) for each in value],
        lambda value: make([item.read(each) for each in _items(value)]),
    )


def _fixed(codecs: list[_Codec]) -> _Codec:
    def read(value: Any) -> tuple[Any, ...]:
        if len(_items(value)) != len(codecs):
            raise _Wrong(f"{len(value)} items instead of {len(codecs)}")
        return tuple(codec.read(each) for codec, each in zip(codecs, value, strict=True))

    return _Codec(
        lambda value: [codec.write(each) for codec, each in zip(codecs, value, strict=True)], read
    )


def _mapping(key: _Codec, item: _Codec) -> _Codec:
    def read(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise _Wrong(f"{type(value).__name__} instead of a map")
        return {key.read(name): item.read(each) for name, each in value.items()}

    return _Codec(
        lambda value: {key.write(name): item.write(each) for name, each in value.items()}, read
    )


def _optional(item: _Codec) -> _Codec:
    return _Codec(
        lambda value: None if value is None else item.write(value),
        lambda value: None if value is None else item.read(value),
    )


def _enumeration(cls: type[enum.Enum]) -> _Codec:
    by_value = {member.value: member for member in cls}

    def read(value: Any) -> enum.Enum:
        if type(value) not in (int, str) or value not in by_value:
            raise _Wrong(f"{value!r:.40} is no {cls.__name__}")
        return by_value[value]

    return _Codec(lambda value: value.value, read)


def _dataclass(cls: type[Any]) -> _Codec:
    hints = typing.get_type_hints(cls)
    fields = {field.name: _codec_of(hints[field.name]) for field in dataclasses.fields(cls)}
    required = [
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]

    defaults = {field.name: field.default for field in dataclasses.fields(cls)}

    def write(value: Any) -> dict[str, Any]:
        assert type(value) is cls, f"a {type(value).__name__} where a {cls.__name__} is declared"
        said = [(name, getattr(value, name)) for name in fields]
        return {name: fields[name].write(each) for name, each in said if each != defaults[name]}

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _Wrong(f"{type(value).__name__} instead of a {cls.__name__}")
        unknown = [name for name in value if name not in fields]
        missing = [name for name in required if name not in value]
        if unknown or missing:
            raise _Wrong(f"{cls.__name__}: {unknown!r:.60} unknown, {missing} missing")
        return cls(**{name: fields[name].read(each) for name, each in value.items()})

    return _Codec(write, read)


def _codec_of(hint: Any) -> _Codec:
    """By an annotation of commands.py. TypeError for one that can't travel: seen when this module is imported."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    if hint in _LEAVES:
        return _LEAVES[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return _optional(_codec_of(next(each for each in arguments if each is not type(None))))
    if origin is list:
        return _sequence(list, _codec_of(arguments[0]))
    if origin is tuple and arguments[-1] is Ellipsis:
        return _sequence(tuple, _codec_of(arguments[0]))
    if origin is tuple:
        return _fixed([_codec_of(each) for each in arguments])
    if origin in (dict, Mapping):
        return _mapping(*(_codec_of(each) for each in arguments))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enumeration(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint)
    raise TypeError(f"{hint} can't be sent to another node")


def _answer_type(command: type[ControllerCommand[Any]]) -> Any:
    return get_args(command.__orig_bases__[0])[0]  # type: ignore[attr-defined]


_COMMANDS: Final[Mapping[str, tuple[_Codec, _Codec]]] = {
    command.__name__: (_codec_of(command), _codec_of(_answer_type(command))) for command in DECIDE
}


def write_command(command: ControllerCommand[Any]) -> bytes:
    name = type(command).__name__
    return _pack([name, _COMMANDS[name][0].write(command)])


def read_command(data: bytes | memoryview) -> ControllerCommand[Any]:
    match _unpack(data):
        case [str(name), body]:
            pass
        case _:
            raise FrameRefused("a peer's controller command is no [name, fields]")
    codecs = _COMMANDS.get(name)
    if codecs is None:
        raise FrameRefused(
            f"a peer asks the controller for {name!r:.60}, which this version of Fencepost does not know"
        )
    command: ControllerCommand[Any] = _read(codecs[0], body, name)
    return command


def write_answer(command: ControllerCommand[R], answer: R) -> bytes:
    return _pack(_COMMANDS[type(command).__name__][1].write(answer))


def read_answer(command: ControllerCommand[R], data: bytes | memoryview) -> R:
    name = type(command).__name__
    answer: R = _read(_COMMANDS[name][1], _unpack(data), f"the answer to {name}")
    return answer


def _read(codec: _Codec, packed: Any, what: str) -> Any:
    try:
        return codec.read(packed)
    except _Wrong as wrong:
        raise FrameRefused(f"{what} of a peer can't be read: {wrong}") from wrong


def _pack(packed: Any) -> bytes:
    return bytes(msgpack.packb(packed, use_bin_type=True))


def _unpack(data: bytes | memoryview) -> Any:
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException) as error:
        raise FrameRefused(f"a peer's controller command is not msgpack: {error}") from error
