"""Structured events on standard error: JSON lines for machines, coloured lines for a person at a terminal.

INVARIANT  an event that comes too often costs a bounded number of lines, and says how many it left out.
PREVENTS   ten thousand partitions that lose their leader in one moment filling a disk, or hiding everything else.
PROVED BY  tests/cluster/base/test_log.py::test_a_flood_of_one_event_is_bounded_and_says_how_many_lines_it_left_out

A line has the same first fields always: time, level, area, event, message, node_id, and request_id where a client's
request caused it. The rest are the event's own. `log_events.py` has every event, its area and its sentence.
"""

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Final, TextIO

from .errors import ConfigRefused
from .log_events import area_of, said_by, sentence_of
from .request_scope import current_request_id
from .shown import printable

LEVELS: Final = {"debug": 10, "info": 20, "warn": 30, "error": 40}
AREAS: Final = (
    "cluster",
    "quorum",
    "controller",
    "replication",
    "txn",
    "groups",
    "node",
    "requests",
)
FORMATS: Final = ("auto", "json", "text")
# Of one event at one level: so many lines at once, then so many a second. A cluster of a hundred partitions that loses
# a node is told in full; one of ten thousand is told what happened by the first hundred, and the number.
BURST: Final = 100
LINES_PER_S: Final = 5.0
# What was left out is told when that event is logged next, or when any is after so long.
TELL_LEFT_OUT_S: Final = 10.0

FRAMES_SAID: Final = 3
_COLOURS: Final = {"debug": "\x1b[2m", "info": "", "warn": "\x1b[33m", "error": "\x1b[1;31m"}
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"


def reason_of(error: BaseException) -> str:
    """An exception with its traceback, for the one log line that explains a death."""
    return "".join(traceback.format_exception(error)).rstrip()


def where_of(error: BaseException) -> str:
    """The calls that an exception came out of, the innermost first: `key_map.py:51 put < compaction.py:246 _map_batch`."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_SAID:]
    called = [f"{each.filename.rpartition('/')[2]}:{each.lineno} {each.name}" for each in frames]
    return " < ".join(reversed(called))


def parse_levels(text: str) -> dict[str, int]:
    """`warn`, or `info,quorum=debug,replication=warn`. "" is the key of all areas that are not named."""
    levels = {"": LEVELS["info"]}
    for item in filter(None, (each.strip() for each in text.split(","))):
        area, separator, level = item.rpartition("=")
        if (separator and area not in AREAS) or level not in LEVELS:
            raise ConfigRefused(
                f"Invalid value {text} for configuration log.level: {item!r} is none of "
                f"{', '.join(LEVELS)}, nor AREA=LEVEL with one of the areas {', '.join(AREAS)}"
            )
        levels[area] = LEVELS[level]
    return levels


class _Flow:
    """How much of one event may still be said."""

    __slots__ = ("left", "left_out", "since_s")

    def __init__(self, now_s: float) -> None:
        self.left = float(BURST)
        self.since_s = now_s
        self.left_out = 0

    def may_say(self, now_s: float) -> bool:
        self.left = min(BURST, self.left + (now_s - self.since_s) * LINES_PER_S)
        self.since_s = now_s
        if self.left < 1:
            self.left_out += 1
            return False
        self.left -= 1
        return True


class StreamLog:
    """Writes each event as a line at once. Nothing that can go wrong here may hurt the node."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        form: str = "auto",
        levels: str = "info",
        node_id: int | None = None,
        now_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._levels = parse_levels(levels)
        is_terminal = self._stream.isatty()
        self.is_for_people = form == "text" or (form == "auto" and is_terminal)
        self._render = _json_line
        if self.is_for_people:
            self._render = _coloured_line if is_terminal else _text_line
        self._node_id = node_id
        self._now_s, self._steady_s = now_s, steady_s
        self._flows: dict[tuple[str, str], _Flow] = {}
        self._tells_at_s = steady_s() + TELL_LEFT_OUT_S

    def set_levels(self, text: str) -> None:
        """ConfigRefused for what is none; then all stays as it was."""
        self._levels = parse_levels(text)

    def debug(self, event: str, **fields: object) -> None:
        self._line("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._line("info", event, fields)

    def warn(self, event: str, **fields: object) -> None:
        self._line("warn", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._line("error", event, fields)

    def _line(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        area = area_of(event)
        levels = self._levels
        if LEVELS[level] < levels.get(area, levels[""]):
            return
        now_s = self._steady_s()
        flow = self._flows.get((level, event))
        if flow is None:
            flow = self._flows[level, event] = _Flow(now_s)
        if flow.may_say(now_s):
            own = as_typed(fields)
            if flow.left_out:
                own["left_out"], flow.left_out = flow.left_out, 0
            self._write(level, area, event, own)
        if now_s >= self._tells_at_s:
            self._tell_left_out(now_s)

    def _tell_left_out(self, now_s: float) -> None:
        self._tells_at_s = now_s + TELL_LEFT_OUT_S
        # A library may speak on a thread of its own (`foreign_log.py`), and have an event of its first time in between.
        for (level, event), flow in list(self._flows.items()):
            if flow.left_out:
                own: dict[str, object] = {"of": event, "left_out": flow.left_out}
                flow.left_out = 0
                self._write(level, area_of(event), "lines_left_out", own)

    def flush(self) -> None:
        """Say now what was left out: nothing may be logged for a long time, or ever."""
        self._tell_left_out(self._steady_s())

    def _write(self, level: str, area: str, event: str, own: Mapping[str, object]) -> None:
        head: dict[str, object] = {
            "time": _stamp(self._now_s()),
            "level": level,
            "area": area,
            "event": event,
            "message": sentence_of(event, {"node_id": self._node_id, **own}),
        }
        if self._node_id is not None:
            head["node_id"] = self._node_id
        request_id = current_request_id()
        if request_id is not None and "request_id" not in own:
            head["request_id"] = request_id
        # A closed or full standard error must not end a node that serves.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(self._render({**head, **own}) + "\n")
            self._stream.flush()


def as_typed(fields: Mapping[str, object]) -> dict[str, object]:
    """`partition="orders-3"`, as parts of the node name it, is a topic and a number to whoever reads the lines."""
    own: dict[str, object] = {}
    for name, value in fields.items():
        if name == "partition" and isinstance(value, str):
            topic, dash, index = value.rpartition("-")
            if dash and index.isdigit():
                own["topic"], own["partition"] = topic, int(index)
                continue
        own[name] = value
    return own


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


def _json_line(line: Mapping[str, object]) -> str:
    """JSON leaves controls above 0x7e as they are; clients choose their names, and terminals show logs."""
    text = json.dumps(line, default=str, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(line, default=str)


_APART: Final = frozenset({"time", "level", "area", "event", "message", "node_id", "traceback"})
# What a person's line has in front, or not at all: the node is known, the sentence says the rest.
_HEAD: Final = ("time", "level", "area", "event", "message", "node_id")


def _text_line(line: Mapping[str, object]) -> str:
    """2026-11-21 09:49:47.031Z warn  controller broker_fenced: Node 3 … | broker=3 cause=…"""
    stamp = str(line["time"]).replace("T", " ")
    head = f"{stamp} {line['level']:5} {line['area']} {line['event']}: "
    return printable(head) + _said(line)


def _coloured_line(line: Mapping[str, object]) -> str:
    clock = str(line["time"])[11:]
    colour = _COLOURS[str(line["level"])]
    event = f"{_BOLD}{line['event']}{_PLAIN}"
    return (
        f"{_DIM}{clock}{_PLAIN} {colour}{line['level']:5}{_PLAIN} {event} {_said(line, dim=True)}"
    )


def _said(line: Mapping[str, object], *, dim: bool = False) -> str:
    message = printable(str(line["message"]))
    apart = _APART | said_by(str(line["event"]))
    left = [
        printable(f"{name}={_word(value)}") for name, value in line.items() if name not in apart
    ]
    fields = " ".join(left)
    trace = str(line.get("traceback", "")).splitlines()
    tail = "".join(f"\n    {printable(each)}" for each in trace)
    if dim and fields:
        fields = f"{_DIM}{fields}{_PLAIN}"
    return " | ".join(filter(None, (message, fields))) + tail


def _word(value: object) -> str:
    """A value that has blanks in it is quoted, so that a line can be taken apart again."""
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or "\n" in text or not text else text


def text_of(line: Mapping[str, object]) -> str:
    """A JSON line that was read, as a person's line with its node: for several nodes' lines in one list."""
    node = f"node {line.get('node_id', '?')}: "
    known = {name: line.get(name, "") for name in _HEAD}
    return _text_line({**known, **line, "message": f"{node}{known['message']}"})
