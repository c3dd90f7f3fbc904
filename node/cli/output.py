"""What people see: tables, JSON for programs, and a bar on long work."""

import sys
import time
from collections.abc import Sequence
from typing import Any, Final, TextIO

from fencepost.cluster.base.shown import printable

from .printable import json_text

Row = Sequence[object]

# Below this a bar would only flicker.
BAR_AFTER_S: Final = 0.5
BAR_EVERY_S: Final = 0.1
BAR_WIDTH: Final = 30


def show_table(header: Sequence[str], rows: Sequence[Row], *, out: TextIO | None = None) -> None:
    """Columns as wide as they need; numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max([len(name)] + [len(row[column]) for row in cells]) for column, name in enumerate(header)
    ]
    right = [
        bool(rows) and all(isinstance(row[column], int) for row in rows)
        for column in range(len(header))
    ]

    def line(values: Sequence[str]) -> str:
        padded = [
            value.rjust(width) if is_right else value.ljust(width)
            for value, width, is_right in zip(values, widths, right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    print(line([name.upper() for name in header]), file=out)
    for row in cells:
        print(line(row), file=out)


class _Standard:
    """Standard output, as far as this command has written it."""

    has_json = False


def began_json() -> None:
    _Standard.has_json = False


def has_json() -> bool:
    """Whether a program has its document already: another one behind it would be none."""
    return _Standard.has_json


def show_json(value: Any, *, out: TextIO | None = None) -> None:
    _Standard.has_json |= out is None
    print(json_text(value, indent=2), file=out)


def show(
    header: Sequence[str], rows: Sequence[Row], *, as_json: bool, empty: str | None = None
) -> None:
    """The same rows for a person or for a program. `empty` says what no rows mean and what to do next."""
    if as_json:
        show_json([dict(zip(header, row, strict=True)) for row in rows])
    elif not rows and empty is not None:
        print(empty)
    else:
        show_table(header, rows)


def show_size(count: int) -> str:
    """Bytes as people say them."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def show_line(sentence: str) -> None:
    """A result in words. A name in it is no second line."""
    print(printable(sentence))


def _cell(value: object) -> str:
    return printable(_text(value))


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(each) for each in value) or "-"
    return str(value)


class Progress:
    """A bar on standard error, only for a terminal and only when it takes long enough to be read."""

    def __init__(self, what: str) -> None:
        self._what = printable(what)
        self._started = time.monotonic()
        self._drawn = 0.0
        self._is_drawn = False
        self._on = sys.stderr.isatty()

    def at(self, done: int, part: float | None = None) -> None:
        """So many are done, which is `part` of all (0 to 1) where that is known."""
        now = time.monotonic()
        if not self._on or now - self._started < BAR_AFTER_S or now - self._drawn < BAR_EVERY_S:
            return
        self._drawn = now
        self._is_drawn = True
        rate = done / (now - self._started)
        if part:
            filled = min(BAR_WIDTH, int(BAR_WIDTH * part))
            bar = "█" * filled + "░" * (BAR_WIDTH - filled)
            left = (now - self._started) * (1 - part) / part
            text = f"{self._what} {bar} {done:,}  {rate:,.0f}/s  {left:.0f} s left"
        else:
            text = f"{self._what} {done:,}  {rate:,.0f}/s"
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    def end(self) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
