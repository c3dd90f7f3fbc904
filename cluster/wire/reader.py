"""From bytes to kio's classes; one reader compiled from each class's fields, when it is first needed.

INVARIANT  reading allocates in proportion to the bytes that are there, never to a length they claim.
PREVENTS   twenty bytes from a stranger ending a node.
PROVED BY  tests/cluster/wire/test_wire_reader.py::test_a_count_beyond_the_frame_is_refused_before_anything_is_built
"""

from collections.abc import Callable
from datetime import timedelta
from functools import cache, lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, Final, TypeAlias
from uuid import UUID

from ..base.errors import ErrorCode
from .schema import FIXED, MISSING, EntityClass, Field, Run, fields_of, is_flexible, steps_of

# All that reading bad bytes can raise; api.py turns it into RequestRefused.
MALFORMED: Final = (ValueError, IndexError, OverflowError, StructError)

ELEMENTS_MAX: Final = 1_000_000
"""Array elements in one message: a frame of 100 MB could hold 50 million empty ones of 100 bytes in memory."""

STRING_BYTES_MAX: Final = 0x7FFF
"""In the compact form, too, which could say more (Kafka's generated readers: "string field had invalid length")."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class Malformed(ValueError):
    """The bytes are not this message."""


class Budget:
    """How many array elements and tagged fields the rest of one message may still have."""

    __slots__ = ("elements_max", "left")

    def __init__(self, elements_max: int = ELEMENTS_MAX) -> None:
        self.elements_max = self.left = elements_max

    def take(self, name: str, count: int, room: int) -> None:
        """Refuse a count that can't be true: an element has a byte at least."""
        if count > room:
            raise Malformed(f"{name} claims {count} elements in {room} bytes")
        self.left -= count
        if self.left < 0:
            raise Malformed(f"{name} makes more than {self.elements_max} elements")


Reader: TypeAlias = Callable[[memoryview, int, Budget], tuple[Any, int]]
_Setter: TypeAlias = Callable[[Any, Any], None]
_Step: TypeAlias = Callable[[Any, memoryview, int, Budget], int]

_ERRORS: Final[dict[int, ErrorCode]] = {int(code): code for code in ErrorCode}


@lru_cache(maxsize=16_384)
def _uuid_of(raw: bytes) -> UUID | None:
    return UUID(bytes=raw) if any(raw) else None


# From what struct gives to what kio's annotation says. An error code newer than kio's list stays an int.
_CONVERT: Final[dict[str, Callable[[Any], Any]]] = {
    "error_code": lambda code: _ERRORS.get(code, code),
    "timedelta_i32": lambda ms: timedelta(milliseconds=ms),
    "uuid": _uuid_of,
}


def read_text(name: str, raw: memoryview) -> str:
    """As Java reads it: bytes that are no UTF-8 become U+FFFD, of three bytes each. What could not be said again so is refused:
    it would stand in no answer and no record of Kafka's, and be too large for what nodes ask each other."""
    text = str(raw, "utf-8", "replace")
    if 3 * len(raw) > STRING_BYTES_MAX and len(text.encode()) > STRING_BYTES_MAX:
        raise Malformed(f"{name} is over {STRING_BYTES_MAX} bytes long when it is read as UTF-8")
    return text


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    byte = buffer[position]
    if byte < 128:
        return byte, position + 1
    value = byte & 127
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position + 1
    raise Malformed("a length has more than five bytes")


@cache
def struct_reader(entity: EntityClass) -> Reader:
    """Reads one `entity`. Slots are set directly: a frozen dataclass's own __init__ is three times slower."""
    flexible = is_flexible(entity)
    setters = {field.name: getattr(entity, field.name).__set__ for field in fields_of(entity)}
    steps = [_step_reader(step, setters, flexible) for step in steps_of(entity)]
    tags: dict[int | None, tuple[_Setter, Reader]] = {
        field.tag: (setters[field.name], _value_reader(field, flexible))
        for field in fields_of(entity)
        if field.tag is not None
    }
    absent = [
        (setters[field.name], tagged_default(field))
        for field in fields_of(entity)
        if field.tag is not None
    ]
    new = entity.__new__

    def read(buffer: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        value = new(entity)
        for step in steps:
            position = step(value, buffer, position, budget)
        if not flexible:
            return value, position
        for put, default in absent:
            put(value, default)
        if buffer[position] == 0:
            return value, position + 1
        return value, _read_tags(value, tags, buffer, position, budget)

    return read


def tagged_default(field: Field) -> Any:
    """What a tagged field is when it is not there."""
    if field.default is not MISSING:
        return field.default
    return implicit_default(field)


def implicit_default(field: Field) -> Any:
    """What Kafka's generated classes start with where the schema names no default."""
    if field.is_array:
        return ()
    if field.struct is not None:
        inner = {inner.name: tagged_default(inner) for inner in fields_of(field.struct)}
        return field.struct(**inner)
    match field.kind:
        case "string":
            return ""
        case "bytes":
            return b""
        case "records" | "uuid":
            return None
        case "error_code":
            return ErrorCode.none
        case "timedelta_i32":
            return timedelta(0)
        case "bool":
            return False
        case _:
            return 0


def _read_tags(
    value: Any,
    tags: dict[int | None, tuple[_Setter, Reader]],
    buffer: memoryview,
    position: int,
    budget: Budget,
) -> int:
    """Tagged fields: number, size, bytes. One that this version does not know is skipped (KIP-482)."""
    count, position = read_uvarint(buffer, position)
    if count:
        budget.take("what is tagged", count, len(buffer) - position)
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        end = position + size
        if end > len(buffer):
            raise Malformed(f"tagged field {tag} claims {size} bytes")
        known = tags.get(tag)
        if known is not None:
            put, read = known
            field_value, stop = read(buffer[:end], position, budget)
            if stop != end:
                raise Malformed(f"tagged field {tag} has {size} bytes, {stop - position} were read")
            put(value, field_value)
        position = end
    return position


def _step_reader(step: Run | Field, setters: dict[str, _Setter], flexible: bool) -> _Step:
    if isinstance(step, Run):
        return _run_reader(step, setters)
    put, read = setters[step.name], _value_reader(step, flexible)

    def read_one(value: Any, buffer: memoryview, position: int, budget: Budget) -> int:
        item, position = read(buffer, position, budget)
        put(value, item)
        return position

    return read_one


def _run_reader(run: Run, setters: dict[str, _Setter]) -> _Step:
    unpack_from, size = run.layout.unpack_from, run.layout.size
    puts = [setters[field.name] for field in run.fields]
    converted = [_CONVERT.get(field.kind) for field in run.fields]
    plain = not any(converted)

    def read_plain(value: Any, buffer: memoryview, position: int, budget: Budget) -> int:
        for put, item in zip(puts, unpack_from(buffer, position), strict=True):
            put(value, item)
        return position + size

    def read_converted(value: Any, buffer: memoryview, position: int, budget: Budget) -> int:
        items = unpack_from(buffer, position)
        for put, convert, item in zip(puts, converted, items, strict=True):
            put(value, item if convert is None else convert(item))
        return position + size

    return read_plain if plain else read_converted


def _value_reader(field: Field, flexible: bool) -> Reader:
    return _array_reader(field, flexible) if field.is_array else _item_reader(field, flexible)


def _item_reader(field: Field, flexible: bool) -> Reader:
    if field.kind in FIXED:
        return _number_reader(field.kind)
    if field.struct is None:
        return _bytes_reader(field, flexible)
    read = struct_reader(field.struct)
    if field.nullable and not field.is_array and field.tag is None:
        return _nullable_struct_reader(read)
    return read


def _nullable_struct_reader(read_struct: Reader) -> Reader:
    def read(buffer: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        """A byte says whether it is there: below zero it is not (KIP-893)."""
        if buffer[position] > 127:
            return None, position + 1
        return read_struct(buffer, position + 1, budget)

    return read


def _number_reader(kind: str) -> Reader:
    layout = Struct(">" + FIXED[kind])
    convert = _CONVERT.get(kind)

    def read(buffer: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        (value,) = layout.unpack_from(buffer, position)
        return value if convert is None else convert(value), position + layout.size

    return read


def _length_reader(kind: str, flexible: bool) -> Callable[[memoryview, int], tuple[int, int]]:
    """Reads a length; -1 stands for null."""

    def compact(buffer: memoryview, position: int) -> tuple[int, int]:
        length, position = read_uvarint(buffer, position)
        return length - 1, position

    def short(buffer: memoryview, position: int) -> tuple[int, int]:
        return _INT16.unpack_from(buffer, position)[0], position + 2

    def long(buffer: memoryview, position: int) -> tuple[int, int]:
        return _INT32.unpack_from(buffer, position)[0], position + 4

    if flexible:
        return compact
    return short if kind == "string" else long


def _bytes_reader(field: Field, flexible: bool) -> Reader:
    read_length = _length_reader(field.kind, flexible)
    name, nullable = field.name, field.nullable and not field.is_array
    kind = field.kind

    def read(buffer: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        length, position = read_length(buffer, position)
        if length < 0:
            if nullable:  # -1 as it should be; to Kafka any length below zero is null
                return None, position
            raise Malformed(f"{name} has the length {length}")
        end = position + length
        if end > len(buffer):
            raise Malformed(f"{name} claims {length} bytes, {len(buffer) - position} are there")
        raw = buffer[position:end]
        if kind == "string":
            if length > STRING_BYTES_MAX:
                raise Malformed(f"{name} is {length} bytes long, {STRING_BYTES_MAX} are allowed")
            return read_text(name, raw), end
        return raw if kind == "records" else bytes(raw), end

    return read


def _array_reader(field: Field, flexible: bool) -> Reader:
    read_length = _length_reader("array", flexible)
    read_item = _item_reader(field, flexible)
    name, nullable = field.name, field.nullable

    def read(buffer: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        count, position = read_length(buffer, position)
        if count < 0:
            if nullable:
                return None, position
            raise Malformed(f"{name} has {count} elements")
        budget.take(name, count, len(buffer) - position)
        items = []
        for _ in range(count):
            item, position = read_item(buffer, position, budget)
            items.append(item)
        return tuple(items), position

    return read
