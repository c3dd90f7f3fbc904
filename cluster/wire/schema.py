"""What a message of Kafka's is made of, taken from kio's classes: the plan that reader, writer and render share.

kio 0.6.5 gives one dataclass for each version of each message, generated from Kafka's own schemas. Only the
classes are used. kio's reader is not, because one frame from anybody ends the process, or is refused though it
is legal (all seen with 0.6.5):
- an array that claims 2^31-1 elements aborts the process in the allocator;
- an unknown tagged field is a KeyError, though the protocol says to skip it (KIP-482);
- a boolean other than 0 or 1 is refused (to Kafka anything but 0 is true);
- 64-bit times become datetimes, which can't hold -1, -2 or large numbers.
Its writer is not, because it makes a call for every number: 5 µs for a partition of a Fetch response.

Values are those of kio's annotations (`timedelta` for 32-bit durations, None for the zero UUID, `ErrorCode`),
with two exceptions: every 64-bit time is an int in milliseconds, and `records` are memoryviews of the frame.
"""

import dataclasses
import importlib
import types
import typing
from functools import cache
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

# struct's letter for each type of a fixed size.
FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}


# One of kio's dataclasses. mypy takes no `type[…]` for hashable, which a cache's key must be.
EntityClass: TypeAlias = Any


class Field(NamedTuple):
    """One field of a message, as Kafka's schema has it in this version."""

    name: str
    kind: str  # a key of FIXED, or string, bytes, records, struct
    struct: EntityClass | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any  # what a message without it means; MISSING where the schema names none


class Run(NamedTuple):
    """Neighbouring numbers, read and written with one call of struct."""

    layout: Struct
    fields: tuple[Field, ...]


MISSING: Final = dataclasses.MISSING

# The only two fields (of all versions that both have) whose default kio 0.6.5 lost: Kafka's schema says null,
# which means "all of them" and "unchanged"; an empty list would mean none.
_NULL_BY_DEFAULT: Final = {
    ("ListPartitionReassignmentsRequest", "topics"): None,
    ("ConsumerGroupHeartbeatRequest", "topic_partitions"): None,
}


def load_class(name: str, version: int, kind: str) -> EntityClass:
    """The class of `name` ("fetch"); `kind` is "request" or "response". Imports that one module only."""
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    wanted = name.replace("_", "") + kind
    for attribute, value in vars(module).items():
        if attribute.lower() == wanted and isinstance(value, type):
            return value
    raise AssertionError(f"kio has no {kind} for {name} v{version}")


@cache
def fields_of(entity: EntityClass) -> tuple[Field, ...]:
    return tuple(_classify(entity.__name__, field) for field in dataclasses.fields(entity))


def is_flexible(entity: EntityClass) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    return bool(entity.__flexible__)


def steps_of(entity: EntityClass) -> list[Run | Field]:
    """The untagged fields in order, neighbouring numbers gathered."""
    steps: list[Run | Field] = []
    numbers: list[Field] = []

    def close() -> None:
        if numbers:
            layout = ">" + "".join(FIXED[field.kind] for field in numbers)
            steps.append(Run(Struct(layout), tuple(numbers)))
            numbers.clear()

    for field in fields_of(entity):
        if field.tag is not None:
            continue
        if field.kind in FIXED and not field.is_array:
            numbers.append(field)
            continue
        close()
        steps.append(field)
    close()
    return steps


def _classify(owner: str, field: dataclasses.Field[Any]) -> Field:
    hint, nullable = _without_none(field.type)
    is_array = typing.get_origin(hint) is tuple
    if is_array:
        hint, _ = _without_none(typing.get_args(hint)[0])
    struct: EntityClass | None = hint if dataclasses.is_dataclass(hint) else None
    kind = "struct" if struct is not None else field.metadata["kafka_type"]
    tag = field.metadata.get("tag")
    default = _NULL_BY_DEFAULT.get((owner, field.name), field.default)
    return Field(field.name, kind, struct, is_array, nullable, tag, default)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        inner = [arg for arg in typing.get_args(hint) if arg is not types.NoneType]
        assert len(inner) == 1, hint
        return inner[0], True
    return hint, False
