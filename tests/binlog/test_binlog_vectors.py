"""A table with MySQL 9's VECTOR, as the log has its map: nobody's concern where it is not followed, and named where it is."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.clients.binlog import driver_columns
from fencepost.clients.binlog.binlog_stream import Interpreter
from fencepost.clients.binlog.columns import UnknownType
from pymysql.protocol import MysqlPacket
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import TableMapEvent

TABLE_MAP, VECTOR, INT, VARCHAR = 19, 242, 3, 15
LATIN1 = 8
# Fields behind the columns (MySQL's Optional_metadata_field_type).
SIGNEDNESS, DEFAULT_CHARSET, COLUMN_NAME, SIMPLE_PRIMARY_KEY, DIMENSIONALITY = 1, 2, 4, 8, 13
FIELDS = {
    SIGNEDNESS: b"\x80",
    DEFAULT_CHARSET: bytes([LATIN1]),
    COLUMN_NAME: b"\x02id\x01v\x01t",
    SIMPLE_PRIMARY_KEY: b"\0",
}


def field(kind: int, value: bytes) -> bytes:
    if len(value) > 250:
        return struct.pack("<BBH", kind, 0xFC, len(value)) + value
    return bytes([kind, len(value)]) + value


def table_map(*fields: bytes) -> Any:
    """Of shop.t (id INT UNSIGNED PRIMARY KEY, v VECTOR, t VARCHAR(9)), as the driver reads it."""
    body = struct.pack("<IHH", 9, 0, 1) + b"\x04shop\0\x01t\0"
    body += bytes([3, INT, VECTOR, VARCHAR]) + b"\x03\x04\x24\0" + b"\x06" + b"".join(fields)
    header = struct.pack("<cIBIIIH", b"\0", 5, TABLE_MAP, 1, 19 + len(body) + 4, 100, 0)
    connection = SimpleNamespace(charset="utf8", _get_dbms=lambda: "mysql")
    tables = dict.fromkeys(("only_tables", "ignored_tables", "only_schemas", "ignored_schemas"))
    driver_columns.teach()
    return BinLogPacketWrapper(
        MysqlPacket(header + body + b"CRC!", "utf8"),
        {},
        connection,
        (9, 0, 0),
        use_checksum=True,
        allowed_events=frozenset([TableMapEvent]),
        **tables,
        freeze_schema=False,
        ignore_decode_errors=False,
        verify_checksum=False,
        optional_meta_data=True,
        enable_logging=False,
    ).event


@pytest.mark.parametrize("at", range(len(FIELDS) + 1))
@pytest.mark.parametrize("unknown", [field(DIMENSIONALITY, b"\x03"), field(99, b"\x04" * 300), b""])
def test_a_field_that_the_driver_does_not_know_is_passed_over(at: int, unknown: bytes) -> None:
    fields = [field(*each) for each in FIELDS.items()]
    found = table_map(*fields[:at], unknown, *fields[at:])
    assert [each.name for each in found.columns] == ["id", "v", "t"]
    assert [each.type for each in found.columns] == [INT, VECTOR, VARCHAR]
    assert found.columns[0].unsigned and found.columns[2].character_set_name == "cp1252"
    assert found.optional_metadata.simple_primary_key_list == [0]


def test_a_vector_of_another_table_ends_no_source_and_one_that_is_followed_is_named() -> None:
    fields = [field(*each) for each in FIELDS.items()]
    found = table_map(*fields, field(DIMENSIONALITY, b"\x03"))
    assert list(Interpreter(["other.*"], "mysql").take(found)) == []
    with pytest.raises(UnknownType, match=r"shop\.t: column v has the type number 242.*--tables"):
        list(Interpreter(["shop.*"], "mysql").take(found))
