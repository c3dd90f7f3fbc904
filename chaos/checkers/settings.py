"""A setting whose change was acknowledged is what every node has in the end.

INVARIANT  of each setting of each resource every node shows, and works by, what was acknowledged last, or what was asked for
           without an answer.
PREVENTS   a node that was away when a setting changed and never hears of it; a change that is in the image and not in the log.
PROVED BY  tests/chaos/test_settings_checker.py::test_a_node_that_has_another_value_than_was_acknowledged_is_seen

A change without an answer may come any time, also behind one that was asked for later: whoever allows it once allows it for ever.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .history import Anomaly, Kind

Name = tuple[str, str]  # resource, setting


@dataclass(slots=True)
class Asked:
    """`value` is None where the setting was taken back to its default."""

    resource: str
    setting: str
    value: str | None
    type: Kind


def allowed(asked: Sequence[Asked]) -> dict[Name, set[str | None]]:
    unknown: dict[Name, set[str | None]] = defaultdict(set)
    newest: dict[Name, str | None] = {}
    for each in asked:
        name = each.resource, each.setting
        newest.setdefault(name, None)
        if each.type == "ok":
            newest[name] = each.value
        elif each.type == "info":
            unknown[name].add(each.value)
    return {name: {value} | unknown[name] for name, value in newest.items()}


def check(asked: Sequence[Asked], found: Mapping[str, Mapping[Name, str | None]]) -> list[Anomaly]:
    """`found`: what each node has; None where it has the default."""
    anomalies = []
    for name, values in sorted(allowed(asked).items()):
        for node, has in sorted(found.items()):
            if name in has and has[name] not in values:
                words = " or ".join(sorted(map(str, values)))
                what = f"{node} has {name[1]}={has[name]}, and it was set to {words}"
                anomalies.append(Anomaly("setting-lost", name[0], what))
    return anomalies
