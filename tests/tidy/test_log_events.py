"""Every line that a node logs has a name, an area and a sentence (cluster/base/log_events.py)."""

import ast
import string

from fencepost.cluster.base.log import AREAS
from fencepost.cluster.base.log_events import EVENTS
from tree import Source, parse, sources

LEVELS = ("debug", "info", "warn", "error")
# Of a call by a name that is a variable, or with fields that are handed on, nothing can be said here.
NODE = ("cluster", "replication", "txn", "node")
# The log adds these itself: `partition="orders-3"` is a topic and a number.
ADDED = {"topic", "partition", "left_out", "of", "node_id"}


def _calls(source: Source) -> list[tuple[int, str, set[str] | None]]:
    """Line, event and fields of what is logged; no fields where they are handed on as `**`."""
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        words = [each.value for each in node.args if isinstance(each, ast.Constant)]
        events = [each for each in words if isinstance(each, str) and each in EVENTS]
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        logs = name == "_warn" or (name in LEVELS and "log" in ast.unparse(node.func))
        if logs and not events and words and isinstance(words[0], str):
            events = words[:1]
        if not (logs or name in ("say", "tell", "warn", "_warn")):
            continue
        fields = {each.arg for each in node.keywords}
        known = None if None in fields else {each for each in fields if each is not None}
        found += [(node.lineno, event, known) for event in events]
    return found


def _fields_of(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


def problems_of(source: Source) -> list[str]:
    found = []
    for line, event, fields in _calls(source):
        where = f"{source.path}:{line} {event}"
        if event not in EVENTS:
            found.append(f"{where}: has no row in cluster/base/log_events.py")
        elif fields is not None:
            missing = _fields_of(EVENTS[event][1]) - fields - ADDED
            found += [f"{where}: its sentence wants {name}" for name in sorted(missing)]
            if fields & {"reason", "why", "error"}:
                found.append(f"{where}: the field that says why is `cause`")
    return found


def test_every_event_that_is_logged_has_a_sentence_whose_fields_it_is_given() -> None:
    node = [source for source in sources() if source.top in NODE]
    assert len(node) > 100
    assert not [problem for source in node for problem in problems_of(source)]


def test_every_event_with_a_sentence_is_logged_somewhere() -> None:
    said = {
        each.value
        for source in sources()
        if source.top in NODE and "log_events" not in str(source.path)
        for each in ast.walk(source.tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    assert not sorted(set(EVENTS) - said - {"lines_left_out"})


def test_areas_are_those_that_a_level_can_be_set_for() -> None:
    assert {area for area, _ in EVENTS.values()} <= set(AREAS)


def test_a_line_without_a_sentence_or_with_a_hole_in_it_is_found() -> None:
    text = 'self._env.log.info("nobody_knows_it", x=1)\nlog.warn("peer_lost", node=1)\n'
    assert problems_of(parse("node/x.py", text)) == [
        "node/x.py:1 nobody_knows_it: has no row in cluster/base/log_events.py",
        "node/x.py:2 peer_lost: its sentence wants cause",
    ]
