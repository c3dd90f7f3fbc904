"""The second pass over a long history, value by value: who sent it, who polled it, where it is."""

from array import array
from pathlib import Path
from typing import Final, NamedTuple

from .queue_buckets import Buckets
from .queue_lines import (
    FAIL,
    INFO,
    IS_TXN,
    KIND,
    OF_FINAL,
    OK,
    POLL,
    SHOWN,
    WAS_SEEN,
    Found,
    Lines,
)

SHIFT: Final = 17  # places of a bucket, as a power of two
PERHAPS: Final = 1  # of a place: it counts only if its line turns out to be committed
# place, value, line, process, flags
PLACE_FORM: Final = "<qqIIB"
# key, place, value, line
UNREAD_FORM: Final = "<IqqI"


class Writer(NamedTuple):
    key: int
    line: int
    process: int
    offset: int
    kind: int
    began_s: float
    ended_s: float


class Known:
    """What the polls of one value say together."""

    __slots__ = ("at_end", "more", "place", "was_read")

    def __init__(self) -> None:
        self.place: int | None = None
        self.more: set[int] | None = None  # with the first one, if there are others
        self.was_read = False  # by anybody, whatever became of his operation
        self.at_end = False

    def add(self, place: int) -> None:
        if self.place is None:
            self.place = place
        elif place != self.place:
            self.more = self.more or {self.place}
            self.more.add(place)

    @property
    def places(self) -> set[int]:
        return self.more or (set() if self.place is None else {self.place})


class Values:
    """A place is a key's base plus an offset, so that places of all keys are numbers of one row."""

    def __init__(self, lines: Lines, folder: Path, found: Found) -> None:
        self.lines = lines
        self.found = found
        self.bases: list[int] = []
        base = 0
        for end in lines.ends:
            self.bases.append(base)
            base += end + 1
        self.places = Buckets(folder, "places", PLACE_FORM)
        self.unread = Buckets(folder, "unread", UNREAD_FORM)
        # by key: the highest first place of what was read
        self._bound = array("q", [-1]) * len(self.bases)

    def run(self) -> None:
        for bucket in self.lines.values.numbers():
            self._bucket(bucket)
            self.lines.values.drop(bucket)
        self._lost()
        if self.lines.has_final:
            self._torn()

    def _bucket(self, bucket: int) -> None:
        writers: dict[int, Writer] = {}
        known: dict[int, Known] = {}
        values = self.lines.values
        for value, key, line, process, offset, flags, began_s, ended_s in values.read(bucket):
            if not flags & POLL:
                kind = flags & KIND
                writers[value] = Writer(key, line, process, offset, kind, began_s, ended_s)
        for value, key, line, process, offset, flags, began_s, ended_s in values.read(bucket):
            if flags & POLL:
                writer = writers.get(value)
                about = known.get(value)
                if about is None:
                    about = known[value] = Known()
                about.at_end = about.at_end or bool(flags & OF_FINAL)
                place = self.bases[key] + offset
                if writer is None or writer.key == key:
                    if place != about.place:
                        about.add(place)
                else:
                    self.places.add(place >> SHIFT, place, value, 0, 0, 0)
                    self._bound[key] = max(place, self._bound[key])
                if (
                    writer is None
                    or writer.key != key
                    or writer.kind == FAIL
                    or writer.line == line
                ):
                    self._wrong(value, key, offset, line, writer)
                about.was_read = True
                if writer is not None:
                    self._polled(writer, line, process, flags, began_s, ended_s)
        nothing = Known()
        for value, writer in writers.items():
            self._written(value, writer, known.pop(value, nothing))
        for value, about in known.items():
            for place in about.places:
                self.places.add(place >> SHIFT, place, value, 0, 0, 0)

    def _wrong(self, value: int, key: int, offset: int, line: int, writer: Writer | None) -> None:
        name = self.lines.keys.name(key)
        if writer is None or writer.key != key:
            what = f"{value} was read at {offset}, which nobody sent there"
            self.found.add("phantom", name, what, line)
        elif writer.line == line:
            what = f"{value} was read at {offset} before its end"
            self.found.add("precommitted-read", name, what, line)
        else:
            what = f"{value} was read at {offset}, though what sent it failed"
            self.found.add("G1a", name, what, writer.line, line)

    def _polled(
        self,
        writer: Writer,
        line: int,
        process: int,
        flags: int,
        began_s: float,
        ended_s: float,
    ) -> None:
        if writer.kind == INFO:
            self.lines.outcome[writer.line] |= WAS_SEEN
        if flags & SHOWN or FAIL in (flags & KIND, writer.kind) or writer.line == line:
            return
        if writer.ended_s >= began_s:  # else time says it already
            sent = (writer.line, writer.process, writer.began_s, writer.ended_s)
            self.lines.edge(sent, (line, process, began_s, ended_s))

    def _written(self, value: int, writer: Writer, about: Known) -> None:
        lines = self.lines
        places, flags = about.places, 0
        if writer.offset >= 0 and writer.kind != FAIL:
            told = self.bases[writer.key] + writer.offset
            if writer.kind == OK or about.was_read:
                places.add(told)
            elif not places:
                places, flags = {told}, PERHAPS
        if len(places) > 1:
            at = sorted(place - self.bases[writer.key] for place in places)
            name = lines.keys.name(writer.key)
            self.found.add("duplicate", name, f"value {value} is at {at}", writer.line)
        for place in places:
            self.places.add(place >> SHIFT, place, value, writer.line, writer.process, flags)
        if about.was_read:
            first = min(places, default=-1)
            self._bound[writer.key] = max(self._bound[writer.key], first)
        elif places and writer.kind != FAIL:
            self.unread.add(0, writer.key, max(places), value, writer.line)
        if about.at_end:
            lines.note_at_end(writer.line)
        elif lines.has_final and (writer.kind == OK or (writer.kind == INFO and about.was_read)):
            how = (
                "was never found" if writer.kind == OK else "was read, and is not there at the end"
            )
            name = lines.keys.name(writer.key)
            self.found.add("unseen", name, f"{value} at {writer.offset} {how}", writer.line)

    def _lost(self) -> None:
        for key, place, value, line in self.unread.take(0):
            if place <= self._bound[key] and self.lines.is_committed(line):
                what = f"{value} was never read, though one behind it was"
                self.found.add("lost-write", self.lines.keys.name(key), what, line)

    def _torn(self) -> None:
        lines = self.lines
        for line in range(1, len(lines.outcome)):
            outcome = lines.outcome[line]
            if not outcome & IS_TXN:
                continue
            sent, there = lines.sends_of(line), lines.found_at_end(line)
            # Of an unknown one: what was read of it, at the end or before, was committed, so all of it was.
            is_whole = lines.is_committed(line) or (there > 0 and outcome & KIND == INFO)
            wanted = sent if is_whole else 0
            if there != wanted:
                what = f"of {sent} values {there} are there, not {wanted}"
                self.found.add("torn", "all", what, line)
