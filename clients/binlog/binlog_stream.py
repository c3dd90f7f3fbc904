"""The binary log as changes (`changes.py`). The driver's events come in, ours go out.

INVARIANT  an event that may hold changes and can't be read ends the stream in a sentence.
PREVENTS   changes that are left out in silence: compressed, of a partial image, or logged as a statement.
PROVED BY  tests/binlog/test_binlog_stream.py::test_a_change_that_was_logged_as_a_statement_ends_the_stream

Between a transaction's BEGIN and its end nothing but rows, savepoints and schema changes is let pass: what else is there is a
change that was logged as a statement, and which tables it changes only the database knows.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from pymysqlreplication import event, row_event

from .changes import (
    CREATE,
    DELETE,
    TRUNCATE,
    UPDATE,
    Change,
    Event,
    Idle,
    Row,
    SchemaChange,
    TransactionEnd,
)
from .charsets import BINARY, as_it_was_said, charset_of, decoded, encoding_of
from .columns import Column, Table
from .database import CannotFollow, refused_versioned
from .gtids import MARIADB
from .mysql_json import NotJson, text_of
from .patterns import selects
from .rollbacks import Held, LeftOut
from .row_images import Packed, Reader, column_of, read_row, reader_of
from .schema_changes import LoggedAsStatement, emptied_by
from .secrets_in_statements import without_secrets
from .statements import Kind, Statement, statement_of

STANDALONE, PREPARED_XA = 1, 64  # flags of MariaDB's GTID event
CRC32: Final = 1  # what a file's first event calls its checksums
# Kinds of events that the driver does not know, and that tell of no change.
HARMLESS: Final = frozenset((0x1C, 0x24, 0x25, 0x29))
# How MariaDB logs a sequence: as a table of just these columns, and without a key.
SEQUENCES: Final = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value"),
    *("increment", "cache_size", "cycle_option", "cycle_count"),
)
FOLLOWED: Final = (
    *(row_event.TableMapEvent, row_event.WriteRowsEvent, row_event.UpdateRowsEvent),
    *(row_event.DeleteRowsEvent, row_event.PartialUpdateRowsEvent),
    *(event.GtidEvent, event.MariadbGtidEvent, event.XidEvent, event.QueryEvent),
    *(event.HeartbeatLogEvent, event.XAPrepareEvent, event.NotImplementedEvent),
    *(event.FormatDescriptionEvent, event.BeginLoadQueryEvent, event.ExecuteLoadQueryEvent),
)
# What MariaDB calls the two columns that make a table system-versioned; the second is part of its key.
PERIOD: Final = ("row_start", "row_end")
# MariaDB's own column behind a UNIQUE that is too long for an index: it is in the log, and no SELECT has it.
HIDDEN: Final = re.compile(r"DB_ROW_HASH_\d+", re.ASCII)


class Shape(NamedTuple):
    """A table as its map in the log has it."""

    table: Table
    names: tuple[str, ...]  # those that are hidden too
    readers: tuple[Reader, ...]
    hidden: tuple[str, ...] = ()


class Interpreter:
    """Takes the driver's events one after the other. Knows no connection."""

    def __init__(
        self,
        tables: Sequence[str],
        flavor: str,
        left_out: LeftOut | None = None,
        *,
        rows_are_read: bool = True,
        cascades_are_accepted: bool = False,
        names_are_small: bool = False,
    ) -> None:
        """`left_out` is which rows are known to be rolled back (`rollbacks.py`); `rows_are_read` is whether tables are in
        their topics with what they had, not with their changes alone; `names_are_small` is whether all spellings of a name
        are one to the server, and small letters what is said of them here."""
        self._patterns, self._flavor, self._rows_are_read = tables, flavor, rows_are_read
        self._cascades_are_accepted, self._names_are_small = cascades_are_accepted, names_are_small
        self._left_out = left_out or {}
        self._shapes: dict[int, Shape | None] = {}  # None: a table that nobody asked for
        self._gtid = ""
        self._held: Held | None = None  # None between two transactions
        self._ends_with_query = False

    def take(self, told: Any) -> Iterator[Event]:
        if isinstance(told, row_event.TableMapEvent):
            self._shapes[told.table_id] = self._shape(told)
        elif isinstance(told, row_event.RowsEvent):
            yield from self._rows(told)
        elif isinstance(told, event.GtidEvent | event.MariadbGtidEvent):
            yield from self._begin(told)
        elif isinstance(told, event.XidEvent):
            yield from self._end()
        elif isinstance(told, event.QueryEvent):
            yield from self._query(told)
        elif isinstance(told, event.BeginLoadQueryEvent | event.ExecuteLoadQueryEvent):
            self._refuse_statement("LOAD DATA")
        elif isinstance(told, event.HeartbeatLogEvent):
            yield Idle()
        elif isinstance(told, event.XAPrepareEvent):
            self._refuse_xa()
        elif isinstance(told, event.FormatDescriptionEvent):
            self._shapes.clear()  # another file, perhaps of another run: table numbers begin anew
            self._check_checksums(told)
        elif told.event_type not in HARMLESS:
            raise CannotFollow(
                f"after {self._gtid or 'the start'} the binary log has an event of kind {told.event_type}, which can't be read "
                "and may hold changes: compression of the log must be off. Then start with --resnapshot"
            )

    def _check_checksums(self, told: Any) -> None:
        """The driver takes four bytes off each event, or none, by what is set as it connects; a file is as was set when it began."""
        if told.checksum_algorithm != CRC32:
            raise CannotFollow(
                f"after {self._gtid or 'the start'} a file of the binary log has no checksums (binlog_checksum was NONE when it "
                "began), and is not read: the ends of rows would be taken for them. Say binlog_checksum=CRC32 in the database's "
                "configuration and SET GLOBAL binlog_checksum=CRC32, then start with --resnapshot"
            )

    # -- transactions ----------------------------------------------------------------------------

    def _begin(self, told: Any) -> Iterator[Event]:
        name = (told.gtid, 0)
        if self._held is not None:  # the database died while it logged it, and took it back
            self._held.roll_back()
            yield from self._held.end()
            if told.gtid == self._gtid:
                name = (told.gtid, self._held.name[1] + 1)
        flags = getattr(told, "flags", 0)
        if flags & PREPARED_XA:
            self._refuse_xa()
        self._gtid = told.gtid
        self._held = Held(name, self._left_out.get(name, ()))
        # MySQL has BEGIN behind the GTID of all but schema changes; MariaDB says it in the flags.
        self._ends_with_query = bool(flags & STANDALONE) or self._flavor != MARIADB

    def _refuse_xa(self) -> None:
        raise CannotFollow(
            f"after {self._gtid or 'the start'} the database logged an XA transaction, which may still be rolled back: those "
            "are not followed. End it, and start with --resnapshot"
        )

    def _refuse_statement(self, sql: str) -> NoReturn:
        raise CannotFollow(
            f"{self._gtid or 'at the start'}: a change was logged as a statement, not as rows ({sql[:80]!r}): some session has set "
            "binlog_format. Which tables a statement changes is not known here, so this ends even if it changes none of "
            "--tables. Have that session use binlog_format=ROW, and start with --resnapshot"
        )

    def _end(self) -> Iterator[Event]:
        assert self._held is not None, "a transaction ended that had no GTID"
        yield from self._held.end()
        self._held = None
        yield TransactionEnd(self._gtid)

    def _query(self, told: Any) -> Iterator[Event]:
        sql = as_it_was_said(told.query, getattr(told, "character_set_client", None))
        mode = getattr(told, "sql_mode", 0)
        statement = statement_of(sql, mode)
        sql = without_secrets(sql, mode)  # from here on it is told to others
        held = self._held
        match statement.kind:
            case Kind.BEGIN:
                self._ends_with_query = False
                return
            case Kind.COMMIT | Kind.ROLLBACK:
                if held is not None and statement.kind is Kind.ROLLBACK:
                    held.roll_back()
                yield from self._end()
                return
            case Kind.SAVEPOINT if held is not None:
                held.savepoint(statement.savepoint)
            case Kind.ROLLBACK_TO if held is not None:
                held.roll_back_to(statement.savepoint)
            case Kind.RELEASE:
                pass
            case Kind.SCHEMA if held is not None:
                yield from self._schema_change(told, sql, statement, held)
            case Kind.XA:
                self._refuse_xa()
            case kind if kind is Kind.DATA or not self._ends_with_query:
                self._refuse_statement(sql)
        if self._ends_with_query:
            yield from self._end()

    def _schema_change(
        self, told: Any, sql: str, statement: Statement, held: Held
    ) -> Iterator[Event]:
        schema = told.schema.decode() if isinstance(told.schema, bytes) else told.schema
        found, ts_ms = statement.schema, told.timestamp * 1_000
        if self._names_are_small:
            schema, found = schema.lower(), found.in_small_letters()
        try:
            emptied = emptied_by(
                found,
                schema,
                self._patterns,
                rows_are_read=self._rows_are_read,
                cascades_are_accepted=self._cascades_are_accepted,
            )
        except LoggedAsStatement:
            self._refuse_statement(sql)
        except CannotFollow as refused:
            raise CannotFollow(f"{self._gtid}: {refused}") from refused
        if emptied is None:
            return
        change = SchemaChange(self._gtid, ts_ms, schema, sql, found.drops_schema)
        yield from held.take(change, len(sql))
        for each in emptied:
            gone = Change(self._gtid, held.rows, ts_ms, Table(*each, (), ()), TRUNCATE)
            yield from held.take(gone, 0)

    # -- rows ------------------------------------------------------------------------------------

    def _shape(self, told: Any) -> Shape | None:
        schema, name = told.schema, told.table
        if self._names_are_small:
            schema, name = schema.lower(), name.lower()
        if not selects(self._patterns, schema, name):
            return None
        full_name = f"{schema}.{name}"
        if any(each.name is None for each in told.columns):
            raise CannotFollow(
                f"{self._gtid}: rows of {full_name} were logged without the names of their columns: "
                "binlog_row_metadata was not FULL then. Start with --resnapshot"
            )
        if tuple(each.name for each in told.columns) == SEQUENCES:
            return None
        packed = [
            packed_of(*each, full_name) for each in zip(told.columns, _charsets(told), strict=True)
        ]
        columns: list[Column] = [column_of(each, full_name) for each in packed]
        known = told.optional_metadata
        # A key with prefixes is a dict by the column's number, in the key's order.
        key = known.simple_primary_key_list or list(known.primary_keys_with_prefix)
        names = tuple(each.name for each in packed)
        hidden = tuple(each for each in names if HIDDEN.fullmatch(each))
        shown = tuple(each for each in columns if each.name not in hidden)
        if set(PERIOD) <= set(names) and (not key or names[key[-1]] == PERIOD[1]):
            raise CannotFollow(f"{self._gtid}: {refused_versioned(full_name)}")
        return Shape(
            Table(schema, name, shown, tuple(names[number] for number in key)),
            names,
            tuple(reader_of(each, text_of) for each in packed),
            hidden,
        )

    def _rows(self, told: Any) -> Iterator[Event]:
        shape, held = self._shapes.get(told.table_id), self._held
        if shape is None:
            return
        if held is None:
            raise CannotFollow(f"rows of {shape.table.full_name} were logged without a GTID")
        self._check_image(told, shape)
        data = told.packet.read(told.event_size - told.packet.read_bytes)
        ts_ms, at = told.timestamp * 1_000, 0
        while at < len(data):
            began = at
            before: Row | None = None
            after: Row | None = None
            if isinstance(told, row_event.WriteRowsEvent):
                op = CREATE
                after, at = self._read(shape, data, at)
            elif isinstance(told, row_event.DeleteRowsEvent):
                op = DELETE
                before, at = self._read(shape, data, at)
            else:
                op = UPDATE
                before, at = self._read(shape, data, at)
                after, at = self._read(shape, data, at)
            change = Change(self._gtid, held.rows, ts_ms, shape.table, op, before, after)
            yield from held.take(change, at - began)

    def _read(self, shape: Shape, data: bytes, at: int) -> tuple[Row, int]:
        try:
            row, at = read_row(shape.names, shape.readers, data, at)
        except UnicodeDecodeError as trouble:
            raise CannotFollow(
                f"{self._gtid}: {shape.table.full_name} holds text that is none in its character set: {trouble}. Mend the "
                "row, and start with --resnapshot; or leave the table out with --tables"
            ) from trouble
        except NotJson as trouble:
            raise CannotFollow(
                f"{self._gtid}: a row of {shape.table.full_name} can't be read: {trouble}. Mend the row, and start with --resnapshot; "
                "or leave the table out with --tables"
            ) from trouble
        except (IndexError, struct.error) as trouble:
            raise self._cut(shape) from trouble
        if at > len(data):  # a slice that is too short is a number or a text all the same
            raise self._cut(shape)
        for each in shape.hidden:
            del row[each]
        return row, at

    def _cut(self, shape: Shape) -> CannotFollow:
        return CannotFollow(
            f"{self._gtid}: a row of {shape.table.full_name} ends before all of its columns do: it can't be read. Start with "
            "--resnapshot; or leave the table out with --tables"
        )

    def _check_image(self, told: Any, shape: Shape) -> None:
        is_partial = isinstance(told, row_event.PartialUpdateRowsEvent)
        maps = [told.columns_present_bitmap, getattr(told, "columns_present_bitmap2", b"")]
        wanted = told.number_of_columns
        if is_partial or any(each and _ones(each) != wanted for each in maps):
            raise CannotFollow(
                f"{self._gtid}: rows of {shape.table.full_name} were logged in part: some session has set binlog_row_image "
                "(or binlog_row_value_options). Have it use FULL, and start with --resnapshot"
            )


def _ones(bits: bytes) -> int:
    return int.from_bytes(bits, "little").bit_count()


def _charsets(told: Any) -> Iterator[int | str | None]:
    """Of each column the character set, or the number of a collation that the driver does not know: it calls such a one UTF-8."""
    known = told.optional_metadata
    texts, enums = iter(known.charset_collation_list), iter(known.enum_and_set_collation_list)
    for column in told.columns:
        charset: int | str | None = column.character_set_name
        if charset is not None:
            number = next(enums if column.enum_values or column.set_values else texts)
            charset = charset if column.collation_name else int(number)
        yield charset


def packed_of(column: Any, charset: int | str | None, table: str) -> Packed:
    """From the driver's description."""
    encoding = None
    if charset is not None and charset != BINARY:
        try:
            encoding = encoding_of(charset_of(charset) if isinstance(charset, int) else charset)
        except LookupError as trouble:
            raise CannotFollow(
                f"{table}: column {column.name} has the character set {charset}, which can't be decoded: give it another one, "
                "or leave the table out with --tables"
            ) from trouble
    # The driver puts a value without a number in front of an enum's. One without a character set is shown as UTF-8.
    values = column.enum_values[1:] if column.enum_values else column.set_values or ()
    try:
        values = tuple(decoded(each, encoding or "utf-8") for each in values)
    except UnicodeDecodeError as trouble:
        raise CannotFollow(
            f"{table}: column {column.name} has values that are none in its character set ({trouble}): give it others, or leave the "
            "table out with --tables"
        ) from trouble
    told = vars(column)
    size = next(
        (told[name] for name in ("length_size", "max_length", "bytes", "size") if name in told), 0
    )
    return Packed(
        name=column.name,
        code=column.type,
        unsigned=bool(column.unsigned),
        size=size,
        precision=told.get("precision", told.get("bits", 0)),
        scale=told.get("decimals", told.get("fsp", 0)),
        encoding=encoding,
        values=values,
    )
