"""The bytes of what Fencepost writes into `__transaction_state` beside Kafka's own records.

INVARIANT  whatever the bytes, reading ends in a record or in ValueError, and a record read again is the same.
PREVENTS   one damaged record taking the coordinator down with an error that names nothing.
PROVED BY  tests/txn/test_added_records.py::test_any_bytes_decode_to_a_record_or_are_refused

A key begins as Kafka's do (kind, then the id that the record is about), with kinds from 1000 on: Kafka's own
readers skip what they don't know. A value is a version and a msgpack array.
"""

import struct
from struct import Struct
from typing import Any, Final

import msgpack

GROUP_DECISION: Final = 1000
HALF_MESSAGE: Final = 1001

VALUE_VERSION: Final = 0
_KEY: Final = Struct(">hh")
_VERSION: Final = Struct(">h")
_NUMBER: Final = Struct(">q")
# A key's id is written with two bytes of length, as Kafka's strings are.
ID_BYTES_MAX: Final = 32_767


def key_of(kind: int, owner: str, number: int | None = None) -> bytes:
    encoded = owner.encode()
    if len(encoded) > ID_BYTES_MAX:
        raise ValueError(f"{len(encoded)} bytes are too many for an id")
    tail = b"" if number is None else _NUMBER.pack(number)
    return _KEY.pack(kind, len(encoded)) + encoded + tail


def read_key(key: bytes, *, numbered: bool) -> tuple[str, int]:
    """The id, and the number behind it (0 when there is none)."""
    try:
        _, length = _KEY.unpack_from(key)
    except struct.error:
        raise ValueError(f"{len(key)} bytes are no key") from None
    behind = _KEY.size + length
    if length < 0 or len(key) != behind + (_NUMBER.size if numbered else 0):
        raise ValueError(f"a key of {len(key)} bytes claims an id of {length}")
    owner = key[_KEY.size : behind].decode()
    return owner, _NUMBER.unpack_from(key, behind)[0] if numbered else 0


def value_of(*fields: Any) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return _VERSION.pack(VALUE_VERSION) + packed


def read_value(value: bytes, shape: tuple[type, ...]) -> list[Any]:
    """The fields, each of its type. A later version may only add fields behind these."""
    if len(value) < _VERSION.size:
        raise ValueError(f"{len(value)} bytes are no value")
    version = _VERSION.unpack_from(value)[0]
    if version != VALUE_VERSION:
        raise ValueError(f"a value of version {version} is not known")
    try:
        fields = msgpack.unpackb(value[_VERSION.size :])
    except (ValueError, msgpack.exceptions.UnpackException) as damaged:
        raise ValueError(f"a value can't be read: {damaged}") from damaged
    if not isinstance(fields, list) or len(fields) < len(shape):
        raise ValueError("a value has too few fields")
    for field, kind in zip(fields, shape, strict=False):
        if type(field) is not kind:
            raise ValueError(f"a value has {type(field).__name__} where {kind.__name__} belongs")
    return fields
