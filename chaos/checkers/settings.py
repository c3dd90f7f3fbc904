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
from .txn_history import Txns

Name = tuple[str, str]  # resource, setting
Found = Mapping[str, Mapping[Name, str | None]]


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


def key_of(name: Name) -> str:
    """As a history has it."""
    return "|".join(name)


def noted(history: Txns) -> tuple[list[Asked], Found]:
    """What was asked for, in the order of ends, and what each node has, of a history that has both: that of a real run."""
    asked: list[Asked] = []
    found: dict[str, dict[Name, str | None]] = {}
    for op in history:
        named = {(key.partition("|")[0], key.partition("|")[2]): op.named[key] for key in op.named}
        if op.f == "alter":
            asked += [Asked(*name, value, op.type) for name, value in named.items()]
        elif op.f == "shows":
            found[op.process] = named
    return asked, found


def check_noted(history: Txns) -> list[Anomaly]:
    return check(*noted(history))


def check(asked: Sequence[Asked], found: Found) -> list[Anomaly]:
    """`found`: what each node has; None where it has the default."""
    anomalies = []
    for name, values in sorted(allowed(asked).items()):
        for node, has in sorted(found.items()):
            if name in has and has[name] not in values:
                words = " or ".join(sorted(map(str, values)))
                what = f"{node} has {name[1]}={has[name]}, and it was set to {words}"
                anomalies.append(Anomaly("setting-lost", name[0], what))
    return anomalies
