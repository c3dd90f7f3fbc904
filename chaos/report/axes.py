"""Axes: which numbers stand beside a chart, and where."""

import math
from dataclasses import dataclass
from typing import Final

from . import words

_STEPS_S: Final = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400,
)  # fmt: skip
_TICKS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """From second 0 to the end of the run, as per mille of a chart's width."""

    end_s: float

    def x(self, second: float) -> float:
        return round(1000.0 * min(max(second / self.end_s, 0.0), 1.0), 2)

    def ticks(self) -> list[tuple[float, str]]:
        step = next((s for s in _STEPS_S if self.end_s / s <= _TICKS_MAX), _STEPS_S[-1])
        step *= max(1, math.ceil(self.end_s / step / _TICKS_MAX))
        marks = range(int(self.end_s / step + 1e-9) + 1)
        return [(self.x(at * step), _moment(at * step, step)) for at in marks]


def _moment(second: float, step: float) -> str:
    if second == 0:
        return "0"
    if step < 60 and second < 600:
        return f"{second:g} s"
    if step < 60:
        return f"{int(second) // 60}:{int(second) % 60:02}"
    if step < 3_600:
        hours, minutes = divmod(int(second) // 60, 60)
        return f"{hours} h {minutes:02}" if hours else f"{minutes} min"
    return f"{second / 3_600:g} h"


@dataclass(frozen=True, slots=True)
class ValueAxis:
    """From 0 up to a round number, in per mille of a chart's height, measured from its top."""

    top: float
    step: float

    @classmethod
    def up_to(cls, most: float) -> "ValueAxis":
        if most <= 0:
            return cls(1.0, 1.0)
        raw = most / 3
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= raw)
        return cls(step * math.ceil(most / step - 1e-9), step)

    def y(self, value: float) -> float:
        return round(1000.0 * (1.0 - min(max(value / self.top, 0.0), 1.0)), 1)

    def ticks(self) -> list[tuple[float, str]]:
        marks = range(round(self.top / self.step) + 1)
        return [(self.y(at * self.step), words.short(round(at * self.step, 6))) for at in marks]


@dataclass(frozen=True, slots=True)
class LogAxis:
    """Milliseconds by powers of ten: a pause of ten seconds does not hide the milliseconds before it."""

    low: float
    high: float

    @classmethod
    def around(cls, least: float, most: float) -> "LogAxis":
        low = math.floor(math.log10(max(least, 0.1)))
        high = max(low + 1, math.ceil(math.log10(max(most, 0.1)) - 1e-9))
        return cls(float(low), float(high))

    def y(self, ms: float) -> float:
        part = (math.log10(max(ms, 1e-3)) - self.low) / (self.high - self.low)
        return round(1000.0 * (1.0 - min(max(part, 0.0), 1.0)), 1)

    def ticks(self) -> list[tuple[float, str]]:
        step = 2 if self.high - self.low > 4 else 1
        marks = range(int(self.low), int(self.high) + 1, step)
        return [(self.y(10.0**mark), _latency(mark)) for mark in marks]


def _latency(power: int) -> str:
    return f"{10.0 ** (power - 3):g} s" if power >= 3 else f"{10.0**power:g} ms"
