"""Columns of types that the driver does not know, and how much a table's map says of each.

INVARIANT  what a map says of a column is read as that column's, whatever type it has.
PREVENTS   a source that ends in the driver, because some table that nobody follows has a compressed column.
PROVED BY  tests/binlog/test_binlog_unknown_types.py::test_a_compressed_column_of_another_table_ends_no_source

The driver reads nothing for a type that it does not know, takes what is there for the next column's, and then for names and keys.
"""

from typing import Any, Final

from pymysqlreplication import row_event
from pymysqlreplication.column import Column

from .row_images import BLOB_COMPRESSED, VARCHAR_COMPRESSED

VECTOR: Final = 242  # MySQL 9's
METADATA_BYTES: Final = {BLOB_COMPRESSED: 1, VARCHAR_COMPRESSED: 2, VECTOR: 1}


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
