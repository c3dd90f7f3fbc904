"""From kio's classes to bytes; one writer compiled from each class's fields, when it is first needed.

INVARIANT  record bytes are passed on by reference; everything else of a message leaves as one piece between them.
PREVENTS   every fetched megabyte being copied once more on its way out.
PROVED BY  tests/cluster/wire/test_wire_writer.py::test_records_leave_by_reference_between_joined_pieces
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from operator import attrgetter
from struct import Struct
from typing import Any, Final, TypeAlias
from uuid import UUID

from ..base.ports import Chunk
from .reader import tagged_default
from .schema import FIXED, EntityClass, Field, Run, fields_of, is_flexible, steps_of

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_MILLISECOND: Final = timedelta(milliseconds=1)


class RecordsValue:
    """Record bytes in several pieces (file ranges, views), to stand in a `records` field."""

    __slots__ = ("chunks", "size")

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = chunks
        self.size = sum(map(len, chunks))

    def __len__(self) -> int:
        return self.size


class Collector:
    """Gathers a message: small pieces are joined, records are kept as they are."""

    __slots__ = ("chunks", "size", "small")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.small: list[bytes] = []
        self.size = 0

    def put_records(self, value: Any) -> None:
        self.join()
        if isinstance(value, RecordsValue):
            self.chunks.extend(value.chunks)
        else:
            self.chunks.append(value)
        self.size += len(value)

    def join(self) -> None:
        if self.small:
            piece = b"".join(self.small)
            self.chunks.append(piece)
            self.size += len(piece)
            self.small = []


Put: TypeAlias = Callable[[bytes], None]
Writer: TypeAlias = Callable[[Collector, Any], None]

_SMALL: Final = tuple(bytes((number,)) for number in range(128))


def uvarint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _ms(value: timedelta | int | None) -> int:
    if value is None:
        return -1
    return value // _MILLISECOND if isinstance(value, timedelta) else value


def _uuid_bytes(value: UUID | None) -> bytes:
    return bytes(16) if value is None else value.bytes


_CONVERT: Final[dict[str, Callable[[Any], Any]]] = {
    "timedelta_i32": _ms,
    "timedelta_i64": _ms,
    "datetime_i64": _ms,
    "uuid": _uuid_bytes,
}


@cache
def struct_writer(entity: EntityClass) -> Writer:
    flexible = is_flexible(entity)
    steps = [_step_writer(step, flexible) for step in steps_of(entity)]
    tagged = sorted(
        (field.tag, attrgetter(field.name), tagged_default(field), _value_writer(field, flexible))
        for field in fields_of(entity)
        if field.tag is not None
    )

    def write(out: Collector, value: Any) -> None:
        for step in steps:
            step(out, value)
        if not flexible:
            return
        if not tagged:
            out.small.append(b"\x00")
            return
        _write_tags(out, value, tagged)

    return write


def _write_tags(out: Collector, value: Any, tagged: list[tuple[Any, ...]]) -> None:
    """Those that differ from their default, by rising number; none is ever record bytes."""
    there = []
    for tag, get, default, write in tagged:
        item = get(value)
        if item is not default and item != default:
            inner = Collector()
            write(inner, item)
            there.append((tag, b"".join(inner.small)))
    out.small.append(uvarint(len(there)))
    for tag, data in there:
        out.small += (uvarint(tag), uvarint(len(data)), data)


def _step_writer(step: Run | Field, flexible: bool) -> Writer:
    if isinstance(step, Run):
        return _run_writer(step)
    get, write = attrgetter(step.name), _value_writer(step, flexible)
    return lambda out, value: write(out, get(value))


def _run_writer(run: Run) -> Writer:
    pack = run.layout.pack
    get = attrgetter(*(field.name for field in run.fields))
    converts = [_CONVERT.get(field.kind) for field in run.fields]

    def one(out: Collector, value: Any) -> None:
        out.small.append(pack(get(value)))

    def one_converted(out: Collector, value: Any) -> None:
        out.small.append(pack(converts[0](get(value))))  # type: ignore[misc]

    def plain(out: Collector, value: Any) -> None:
        out.small.append(pack(*get(value)))

    def converted(out: Collector, value: Any) -> None:
        items = [
            item if convert is None else convert(item)
            for convert, item in zip(converts, get(value), strict=True)
        ]
        out.small.append(pack(*items))

    if len(run.fields) == 1:
        return one_converted if any(converts) else one
    return converted if any(converts) else plain


def _value_writer(field: Field, flexible: bool) -> Writer:
    return _array_writer(field, flexible) if field.is_array else _item_writer(field, flexible)


def _item_writer(field: Field, flexible: bool) -> Writer:
    if field.kind in FIXED:
        return _number_writer(field.kind)
    if field.struct is None:
        return _bytes_writer(field, flexible)
    write = struct_writer(field.struct)
    if field.nullable and not field.is_array and field.tag is None:
        return _nullable_struct_writer(write)
    return write


def _nullable_struct_writer(write_struct: Writer) -> Writer:
    def write(out: Collector, value: Any) -> None:
        if value is None:
            out.small.append(b"\xff")
            return
        out.small.append(b"\x01")
        write_struct(out, value)

    return write


def _number_writer(kind: str) -> Writer:
    pack = Struct(">" + FIXED[kind]).pack
    convert = _CONVERT.get(kind)

    def write(out: Collector, value: Any) -> None:
        out.small.append(pack(value if convert is None else convert(value)))

    return write


def _length_writer(kind: str, flexible: bool) -> Callable[[int], bytes]:
    if flexible:
        return lambda length: uvarint(length + 1)
    return _INT16.pack if kind == "string" else _INT32.pack


def _bytes_writer(field: Field, flexible: bool) -> Writer:
    length_bytes = _length_writer(field.kind, flexible)
    name, nullable = field.name, field.nullable and not field.is_array
    null = length_bytes(-1)

    def write(out: Collector, value: Any) -> None:
        if value is None:
            assert nullable, f"{name} can't be null in this version"
            out.small.append(null)
            return
        if type(value) is str:
            value = value.encode()
        out.small.append(length_bytes(len(value)))
        out.small.append(value)

    def write_records(out: Collector, value: Any) -> None:
        if value is None:
            out.small.append(null)
            return
        out.small.append(length_bytes(len(value)))
        if len(value):
            out.put_records(value)

    return write_records if field.kind == "records" else write


def _array_writer(field: Field, flexible: bool) -> Writer:
    length_bytes = _length_writer("array", flexible)
    write_item = _item_writer(field, flexible)
    name, nullable = field.name, field.nullable
    null = length_bytes(-1)

    def write(out: Collector, value: Any) -> None:
        if value is None:
            assert nullable, f"{name} can't be null in this version"
            out.small.append(null)
            return
        out.small.append(length_bytes(len(value)))
        for item in value:
            write_item(out, item)

    return write
