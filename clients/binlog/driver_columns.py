"""Columns as the driver does not read them: of types that it does not know, and with long names and values.

INVARIANT  what a map says of a column is read as that column's, whatever type it has.
PREVENTS   a source that ends in the driver, because some table that nobody follows has a compressed column.
PROVED BY  tests/binlog/test_binlog_unknown_types.py::test_a_compressed_column_of_another_table_ends_no_source

The driver reads nothing for a type that it does not know, takes what is there for the next column's, and then for names and keys.
It takes the length of a name, or of an ENUM's value, for one of seven bits a byte: of 128 bytes and more it reads something else. And
it takes values for UTF-8, whatever their column's character set is: here they stay bytes. And it ends at a field behind the columns
that it does not know: MySQL 9's of a VECTOR's dimensions.
"""

from typing import Any, Final

from pymysqlreplication import row_event
from pymysqlreplication.column import Column

from .row_images import BLOB_COMPRESSED, VARCHAR_COMPRESSED

VECTOR: Final = 242  # MySQL 9's
FIELDS_KNOWN: Final = range(1, 13)  # to the driver; its 128 is none of the log's
CHECKSUM_BYTES: Final = 4
METADATA_BYTES: Final = {BLOB_COMPRESSED: 1, VARCHAR_COMPRESSED: 2, VECTOR: 1}


_fields_of_driver: Final = row_event.TableMapEvent._get_optional_meta_data


class AnyColumn(Column):  # type: ignore[misc]  # it is untyped
    def __init__(self, *told: Any, **fields: Any) -> None:
        """As the driver makes it: of a type and the packet behind it, or of fields."""
        super().__init__(*told, **fields)
        if told:
            kind, packet = told
            packet.advance(METADATA_BYTES.get(kind, 0))


def teach() -> None:
    """The driver, once and for all."""
    row_event.Column = AnyColumn
    row_event.TableMapEvent._get_optional_meta_data = fields_of
    row_event.TableMapEvent._read_column_names = names_of
    row_event.TableMapEvent._read_type_values = values_of


def fields_of(told: Any) -> Any:
    """As the driver reads them, from a packet without those that it does not know."""
    packet, inner = told.packet, told.packet.packet
    began, known = packet.read_bytes, b""
    while packet.bytes_to_read() > CHECKSUM_BYTES:
        start, kind = inner._position, packet.read(1)[0]
        packet.advance(packet.read_length_coded_binary())
        if kind in FIELDS_KNOWN:
            known += inner._data[start : inner._position]
    inner._data, inner._position = known + inner._data[inner._position :], 0
    packet.read_bytes = began
    return _fields_of_driver(told)


def names_of(told: Any, length: int) -> list[str]:
    until = told.packet.read_bytes + length
    found = []
    while told.packet.read_bytes < until:
        found.append(_with_length(told.packet).decode())
    return found


def values_of(told: Any, length: int) -> list[list[bytes]]:
    """Of each ENUM, or of each SET."""
    until = told.packet.read_bytes + length
    found = []
    while told.packet.read_bytes < until:
        count = told.packet.read_length_coded_binary()
        found.append([_with_length(told.packet) for _ in range(count)])
    return found


def _with_length(packet: Any) -> bytes:
    found: bytes = packet.read(packet.read_length_coded_binary())
    return found
