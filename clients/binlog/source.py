"""A database's changes to topics, exactly once: a snapshot, then the binary log, restartable from anywhere.

    BinlogSource(Settings(source="shop", tables=("shop.*",), bootstrap="127.0.0.1:9092")).run()

INVARIANT  each change is in one committed transaction, whose position says so; whoever starts goes on from that position.
PREVENTS   changes that are written twice or never, whenever the source, the database or a broker is killed.
PROVED BY  tests/binlog/test_binlog_kills.py::test_whatever_step_a_source_is_killed_at_each_change_is_there_once

1. A new incarnation has its transactional id initialised: from then on no earlier one can commit, and what that one left
   open is decided.
2. It reads its position, up to a record of its own: a leader that was deposed has an older one. There is none: it takes the snapshot, all of it in one transaction with the position at which it was
   taken; a snapshot that dies is aborted, and the next one begins anew, so no row of it was ever seen. A position that is to
   be forgotten (`resnapshot`) counts as none until a later one is there: then the snapshot was committed, also when nobody
   was told.
3. It asks the database for what came after its position, and commits changes with the position behind them, database
   transactions whole.
Whatever goes wrong on the way, it begins again at 1: nothing is remembered that Kafka doesn't know. Only which position is to
be forgotten is, and rows that were rolled back (`rollbacks.py`): who does not remember them finds them out again. Of what ends
it for good: nobody comes by there again, so it begins anew once, and commits each transaction before that by itself.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..transactional.kept_topics import ensure_topic
from .changes import READ, TRUNCATE, Change, Event, Idle, SchemaChange, TransactionEnd, Untold
from .columns import Table, UnknownType
from .database import CannotFollow, Database, SourceLost
from .gtids import Position, WrongPosition, position_of
from .kept_place import as_kept, position_in
from .kept_positions import COMPACT, KeptPositions, latest_by_key, refuse_losing
from .log_connection import BinlogStream, refuse_nowhere
from .patterns import selects
from .reading import NotReadable
from .records import Recorder, Topics, TopicTaken, told_columns
from .rollbacks import Name as TransactionName
from .rollbacks import Span, TakenBack
from .schema_changes import refuse_another_key
from .schema_statements import Name
from .settings import INITIAL, Settings
from .transactions import NotWritten, Transactions
from .troubles import OF_DATABASE, PASSING, Clocks, Part, raise_if_hopeless

POSITION_ALONE_S: Final = (
    5.0  # how often a position is written when nothing that is followed changed
)
NOWHERE: Final = -1
# No try helps: they say what to do.
FINAL: Final = (CannotFollow, UnknownType, TopicTaken, NotWritten, NotReadable, WrongPosition)

log = logging.getLogger("fencepost.clients")


class BinlogSource:
    """`run` until `stop`, or until something happens that no second try helps against: an exception that says what."""

    def __init__(self, settings: Settings, on_step: Callable[[str], None] | None = None) -> None:
        """`on_step` is told where it is, for those who watch."""
        self._settings = settings
        self._step = on_step or (lambda _: None)
        self._stopping = threading.Event()
        client = {**settings.kafka, "bootstrap.servers": settings.bootstrap}
        self._client = client
        self._positions = KeptPositions(client, settings.position_topic)
        self._forgotten_at: int | None = None  # the offset of the position that is to be forgotten
        self._left_out: dict[TransactionName, tuple[Span, ...]] = {}  # which rows were rolled back
        self._warned: tuple[str, ...] = ()  # of what
        self._clocks = Clocks(settings.give_up_s)
        self._is_under_way = False  # the position was read
        self._one_by_one = False  # transactions: what ends this source is near
        self._position_at = NOWHERE  # the offset of the position that was read last
        self.committed = 0  # records
        self.transactions = 0  # of Kafka, that were committed

    def stop(self) -> None:
        """After what is under way."""
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            self._is_under_way = False
            try:
                self._live()
                return
            except TakenBack as found:
                self._left_out[found.name] = found.spans
                log.info("%s: %s", self._settings.source, found)
                continue
            except _Near as near:
                log.info(
                    "%s: what came before this is written first: %s", self._settings.source, near
                )
                self._one_by_one = True
                continue
            except PASSING as trouble:
                raise_if_hopeless(trouble, self._settings)
                pause_s = self._clocks.failed(self._part_of(trouble), time.monotonic())
                if pause_s is None:
                    raise
                log.warning(
                    "%s: %s; trying again in %.1f s", self._settings.source, trouble, pause_s
                )
            self._stopping.wait(pause_s)

    def _part_of(self, trouble: Exception) -> Part:
        if isinstance(trouble, OF_DATABASE):
            return Part.DATABASE
        return Part.COMMITS if self._is_under_way else Part.BEGINNING

    # -- one incarnation -------------------------------------------------------------------------

    def _live(self) -> None:
        settings = self._settings
        with Database(settings) as database:
            if database.names_are_small:
                settings = self._settings = settings.in_small_letters()
            self._warn_once(database.check(), database.cascades())
            database.refuse_versioned()
            self._positions.prepare(settings.replication)
            transactions = Transactions(settings, self._positions)
            transactions.start()
            self._step("fenced")
            try:
                kept = self._kept(transactions)
                self._step("position-read")
                told = self._told_before(transactions)
                life = _Incarnation(self, settings, database, transactions, told)
                self._is_under_way = True
                self._clocks.well(Part.BEGINNING)
                is_again = self._forgotten_at not in (None, NOWHERE)
                position = None if kept is None else position_in(kept, database.flavor, settings)
                if position is None:
                    position = life.first_position(is_again=is_again)
                until = database.now() if settings.stop_when_caught_up else None
                try:
                    life.follow(position, until)
                except OF_DATABASE:
                    life.ask_whether_fenced()
                    raise
                except FINAL as ending:
                    if life.holds_whole and not self._one_by_one:
                        raise _Near(str(ending)) from ending
                    raise
            finally:
                transactions.abandon()

    def _warn_once(self, *accepted: str) -> None:
        for each in accepted:
            if each and each not in self._warned:
                log.warning("%s: %s", self._settings.source, each)
        self._warned = accepted

    def _kept(self, transactions: Transactions) -> str | None:
        """The position to go on from. Offsets are compared, not texts: of a database in which nothing happened the snapshot's
        position says what the one before it said."""
        end = transactions.end_of(self._positions.topic)
        found = self._positions.find(self._settings.source, end)
        offset = NOWHERE if found is None else found.offset
        if self._settings.resnapshot and self._forgotten_at is None:
            self._forgotten_at = offset
        if offset != self._position_at:  # a commit was done, whether it was answered or not
            self._clocks.well(Part.COMMITS)
        self._position_at = offset
        if found is None or offset == self._forgotten_at:
            return None
        return found.position

    def _told_before(self, transactions: Transactions) -> dict[str, dict[str, Any]]:
        topic = self._settings.schema_topic_name
        ensure_topic(self._client, topic, 1, replication=self._settings.replication, config=COMPACT)
        refuse_losing(self._client, topic, "--schema-topic")
        kept = latest_by_key(self._client, topic, transactions.end_of(topic))
        return told_columns(kept, topic)


class _Near(Exception):
    """What no try helps against came, and transactions before it are whole and not committed."""


class _Incarnation:
    """From a position that was read to the first trouble."""

    def __init__(
        self,
        source: BinlogSource,
        settings: Settings,
        database: Database,
        transactions: Transactions,
        told: dict[str, dict[str, Any]],
    ) -> None:
        self._source, self._settings = source, settings
        self._database, self._transactions = database, transactions
        self._told = told
        self._tables: dict[str, Table] = {}  # as they were compared with what was told last
        self._recorder = Recorder(settings, Topics(settings))
        self._since: float | None = None  # when the first of what is not committed came
        self._is_inside = False
        self._kept = ""  # the position that is committed, as it is kept

    @property
    def holds_whole(self) -> bool:
        return self._since is not None

    # -- the beginning ---------------------------------------------------------------------------

    def first_position(self, *, is_again: bool) -> Position:
        """The snapshot's, or what is committed now. Of one that is taken again, what was told before comes to nothing first:
        which of those rows are still there nobody knows."""
        settings, flavor = self._settings, self._database.flavor
        if settings.snapshot != INITIAL:
            text = self._database.now()
            refuse_nowhere(flavor, text, settings.database)
            position = position_of(flavor, text)
            self._commit(position)
            return position
        text = self._database.begin_snapshot()
        refuse_nowhere(flavor, text, settings.database)
        self._source._step("snapshot-began")
        position = position_of(flavor, text)
        ts_ms = int(time.time() * 1_000)
        tables = self._database.tables()
        # Rows may have been told before a position that is lost, too.
        known = self._known() | {(t.schema, t.name) for t in tables if is_again}
        number = self._tell_emptied(sorted(known), text, ts_ms)
        for table in tables:
            for row in self._database.snapshot_rows(table):
                self._write(Change(text, number, ts_ms, table, READ, after=row))
                number += 1
                self._source._clocks.well(Part.DATABASE)
                self._source._step("snapshot-row")
                if self._source._stopping.is_set():
                    raise SourceLost("stopped in the middle of the snapshot, which begins anew")
        self._source._step("snapshot-written")
        self._commit(position)
        log.info(
            "%s: a snapshot of %s rows at %s", settings.source, number, text or "the beginning"
        )
        return position

    # -- the stream ------------------------------------------------------------------------------

    def follow(self, position: Position, until: str | None) -> None:
        """`until` is a position too: there it ends."""
        flavor = self._database.flavor
        self._database.close()  # it may take long until it is needed again
        self._kept = as_kept(position, self._database.flavor, self._settings)
        left_out = self._source._left_out
        with BinlogStream(
            self._settings,
            flavor,
            str(position),
            left_out,
            names_are_small=self._database.names_are_small,
        ) as stream:
            if until is not None and position.has(until):
                return
            for event in stream.events():
                self._source._clocks.well(Part.DATABASE)
                self._take(event, position)
                is_whole = not self._is_inside
                may_be_there = is_whole and not isinstance(event, Untold)
                if may_be_there and until is not None and position.has(until):
                    self._commit(position)
                    return
                if is_whole and self._is_due(event):
                    self._commit(position)
                if is_whole and self._source._stopping.is_set():
                    if self._since is not None:
                        self._commit(position)
                    return
        raise SourceLost("the database ended the stream")

    def ask_whether_fenced(self) -> None:
        """A newer copy of this source is the same replica, so the database has just ended this one's stream for it. Who began anew
        then without a question would fence the newer one, and cut it off in its turn."""
        if self._kept:
            self._transactions.ask_whether_fenced(self._kept)

    def _take(self, event: Event, position: Position) -> None:
        match event:
            case Change():
                self._is_inside = True
                self._write(event)
                self._source._step("change-written")
            case SchemaChange():
                self._is_inside = True
                self._transactions.write(self._recorder.of_schema_change(event))
                if event.drops_schema:
                    gone = [each for each in self._known() if each[0] == event.drops_schema]
                    self._tell_emptied(sorted(gone), event.gtid, event.ts_ms)
            case TransactionEnd():
                position.add(event.gtid)
                self._is_inside = False
                self._since = self._since or time.monotonic()
                self._source._step("transaction-ended")
            case Idle() if self._since is None:
                self._source._clocks.well(Part.COMMITS)  # nothing is owed
            case Idle() | Untold():
                pass

    def _write(self, change: Change) -> None:
        table = change.table
        if change.op == TRUNCATE:
            self._forget(table.full_name)
        elif self._tables.get(table.full_name) != table:
            self._tell_columns(change)
        for record in self._recorder.of_change(change):
            self._transactions.write(record)

    def _known(self) -> set[Name]:
        """The tables that rows were told of, and that are followed."""
        names = {(each["schema"], each["table"]) for each in self._told.values()}
        return {each for each in names if selects(self._settings.tables, *each)}

    def _tell_emptied(self, tables: Sequence[Name], gtid: str, ts_ms: int) -> int:
        """How many they are: the next row's number."""
        for number, each in enumerate(tables):
            self._write(Change(gtid, number, ts_ms, Table(*each, (), ()), TRUNCATE))
        return len(tables)

    def _tell_columns(self, change: Change) -> None:
        """When they are others than those that the schema topic has."""
        table, told = change.table, change.table.as_json()
        before = self._told.get(table.full_name)
        if before is not None and change.op != READ and self._settings.snapshot == INITIAL:
            refuse_another_key(before, table, change.gtid)
        if before is None and change.op != READ and self._settings.snapshot == INITIAL:
            with Database(self._settings) as database:
                database.refuse_unreadable(table)
        if before != told:
            self._transactions.write(self._recorder.of_table(table, change.gtid))
            self._told[table.full_name] = told
        self._tables[table.full_name] = table

    def _forget(self, table: str) -> None:
        """What was told of its columns and its key: no row has them any more."""
        self._tables.pop(table, None)
        if self._told.pop(table, None) is not None:
            self._transactions.write(self._recorder.of_emptied(table))

    # -- commits ---------------------------------------------------------------------------------

    def _is_due(self, event: Event) -> bool:
        if self._since is None:
            return False
        age_s = time.monotonic() - self._since
        if not self._transactions.records:
            return age_s >= POSITION_ALONE_S
        is_full = self._transactions.records >= self._settings.records_max
        is_full = is_full or self._source._one_by_one
        return is_full or isinstance(event, Idle) or age_s * 1_000 >= self._settings.linger_ms

    def _commit(self, position: Position) -> None:
        records, kept = (
            self._transactions.records,
            as_kept(position, self._database.flavor, self._settings),
        )
        self._source._step("committing")
        self._transactions.commit(kept)
        self._kept, self._since = kept, None
        self._source._clocks.well(Part.COMMITS)
        for name in [each for each in self._source._left_out if position.has(each[0])]:
            del self._source._left_out[name]  # nobody comes by it again
        self._source.committed += records
        self._source.transactions += 1
        self._source._step("committed")
