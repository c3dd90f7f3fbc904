"""What each alert sees while it is quiet, while it fires, and when that is over.

A series is written as it goes: "0 2m | 3 5m | 0 5m" is at 0 for two minutes, then at 3 for five; "+2 5m" rises by 2
from sample to sample, from where it was; "gone 1m" is a node that does not answer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

STEP_S = 10
A = 'cluster="main",instance="a:9644",job="fencepost"'
B = 'cluster="main",instance="b:9644",job="fencepost"'
C = 'cluster="main",instance="c:9644",job="fencepost"'
_PIECE = re.compile(r"(gone|\+?-?[\d.e]+) (\d+)(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Scene:
    """`quiet`, `fires` and `clears` are times from its beginning, and what the alert does then."""

    alert: str
    series: Mapping[str, str]
    quiet: str
    fires: str
    clears: str


def samples(course: str) -> str:
    """In promtool's notation, one in ten seconds."""
    words: list[str] = []
    level = 0.0
    for piece in course.split(" | "):
        found = _PIECE.fullmatch(piece)
        assert found is not None, f"{piece!r} in {course!r}"
        count = int(found[2]) * _SECONDS[found[3]] // STEP_S
        if found[1] == "gone":
            words += ["stale", *["_"] * (count - 1)]
        elif found[1].startswith("+"):
            slope = float(found[1][1:])
            words += [f"{level + slope * i:g}" for i in range(1, count + 1)]
            level += slope * count
        else:
            level = float(found[1])
            words += [f"{level:g}"] * count
    return " ".join(words)


def slow(histogram: str, labels: str, course: str) -> dict[str, str]:
    """Ten a sample, all within 10 ms where the course says "fast", all between 1 s and 2 s where it says "slow"."""
    fast = course.replace("fast", "+10").replace("slow", "+0")
    every = course.replace("fast", "+10").replace("slow", "+10")
    return {
        f'{histogram}_bucket{{{labels},le="0.01"}}': fast,
        f'{histogram}_bucket{{{labels},le="1"}}': fast,
        f'{histogram}_bucket{{{labels},le="2"}}': every,
        f'{histogram}_bucket{{{labels},le="+Inf"}}': every,
    }


def one(alert: str, series: str, course: str, *times: str) -> Scene:
    return Scene(alert, {series: course}, *times)


def _tests(scene: Scene) -> dict[str, object]:
    def at(time: str, fires: bool) -> dict[str, object]:
        labels = f'{{alertname="{scene.alert}"}}'
        shown = [{"labels": labels, "value": 1}] if fires else []
        firing = f'count by (alertname) (ALERTS{{alertname="{scene.alert}",alertstate="firing"}})'
        return {"expr": firing, "eval_time": time, "exp_samples": shown}

    return {
        "name": scene.alert,
        "interval": f"{STEP_S}s",
        "input_series": [
            {"series": name, "values": samples(course)} for name, course in scene.series.items()
        ],
        "promql_expr_test": [
            at(scene.quiet, False),
            at(scene.fires, True),
            at(scene.clears, False),
        ],
    }


def as_promtool_tests(scene: Scene, rules: str) -> dict[str, object]:
    """A file for promtool; `rules` names another, which has nothing but what this alert needs."""
    return {
        "rule_files": [rules],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [_tests(scene)],
    }
