"""What can be said of an expression without Prometheus: the series that it names, and the same one in quicker time."""

import re
from collections.abc import Mapping
from typing import Any

# A name that can only be a metric's: ours, what rules record of them, the process's, Prometheus' own.
_NAME = r"(?:(?:[a-z_]+:)?(?:fencepost_\w+|up)(?::\w+)?|process_\w+|ALERTS)"
_SELECTOR = re.compile(rf"(?<![\w:])({_NAME})(?![\w:(])(\{{[^}}]*\}})?")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACES = re.compile(r"\{[^}]*\}")
_COMPARISON = re.compile(r"(?<![=!<>~])(>=|<=|==|!=|>|<)(?![=~])(?!\s*bool)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_IN_EXPRESSION = re.compile(r"(?<=\[)[^\]]+(?=\])|(?<=offset )\d+\w+")
HISTOGRAM_PARTS = ("_bucket", "_count", "_sum")


def selectors(expr: str) -> list[tuple[str, str]]:
    """(metric, its matchers with their braces, or nothing), in the order in which they stand."""
    grouped = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", expr)
    return [(found[1], found[2] or "") for found in _SELECTOR.finditer(grouped)]


def family(metric: str) -> str:
    """fencepost_request_seconds_bucket -> fencepost_request_seconds."""
    for part in HISTOGRAM_PARTS:
        if metric.endswith(part):
            return metric.removesuffix(part)
    return metric


def filled_in(expr: str, variables: Mapping[str, str]) -> str:
    """With Grafana's variables replaced, `$node` and `${node}` alike."""
    for name, value in sorted(variables.items(), key=lambda each: -len(each[0])):
        expr = expr.replace(f"${{{name}}}", value).replace(f"${name}", value)
    assert "$" not in _STRING.sub("", expr), f"a variable that nobody declares: {expr}"
    return expr


def shown_always(expr: str) -> str:
    """With comparisons that answer 0 or 1 instead of nothing: what a rule says while it does not fire."""
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\0"

    bare = _BRACES.sub(keep, _STRING.sub(keep, expr))
    compared = _COMPARISON.sub(r"\1 bool", bare)
    while "\0" in compared:
        compared = re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], compared)
    return compared


def quicker(duration: str, factor: float) -> str:
    """1m at 20 times the speed: 3000ms."""
    ms = sum(int(count) * _UNITS_MS[unit] for count, unit in _DURATION.findall(duration))
    return f"{max(1, round(ms / factor))}ms"


def quicker_expression(expr: str, factor: float) -> str:
    """Its ranges and offsets; what it compares with stays."""
    return _IN_EXPRESSION.sub(
        lambda found: ":".join(part and quicker(part, factor) for part in found[0].split(":")), expr
    )


def quicker_rules(rules: Any, factor: float) -> Any:
    """A file of rules whose waits and ranges are shorter by the factor."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = quicker_expression(rule["expr"], factor)
            for wait in ("for", "keep_firing_for"):
                if wait in rule:
                    rule[wait] = quicker(rule[wait], factor)
        if "interval" in group:
            group["interval"] = quicker(group["interval"], factor)
    return rules
