"""Raft's four properties over what nodes of a quorum did, event by event, and on what a commit rests.

INVARIANT  one leader a term; logs that agree on an entry agree on all before it; a leader has all that was
           committed before its term; no two nodes apply different entries at one index; what a leader commits
           is on the disks of a majority of those who vote.
PREVENTS   a metadata log that is two logs, of which the next failover picks one.
PROVED BY  tests/chaos/test_raft_properties.py::test_a_leader_that_lacks_what_was_committed_is_incomplete

Events are plain data, in the order in which they happened. `digest` stands for an entry's bytes.

    {"f": "add",     "node": 2, "index": 7, "term": 3, "digest": "…", "before": 2}    to its log; `before` is
                                                                                      the term of entry 6
    {"f": "lead",    "node": 2, "term": 3, "first": 4, "log": [[2, "…"], [3, "…"]]}   elected with that log
    {"f": "apply",   "node": 2, "index": 7, "term": 3, "digest": "…", "during": 4}    so it is committed, in
                                                                                      term 4 at the latest
    {"f": "restore", "node": 2, "index": 40}                                          start or snapshot
    {"f": "durable", "node": 2, "index": 7}                                           its log is synced so far
    {"f": "commit",  "node": 2, "index": 7, "term": 3, "voters": [1, 2, 3]}           decided by a leader
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from .history import Anomaly

Event = Mapping[str, Any]


class RaftProperties:
    """Sees one event after the other; `anomalies` grows when something is wrong."""

    def __init__(self) -> None:
        self.anomalies: list[Anomaly] = []
        self.committed: dict[int, tuple[int, str]] = {}
        self._during: dict[int, int] = {}
        self.leaders: dict[int, Any] = {}
        self._added: dict[tuple[int, int], tuple[str, int]] = {}
        self._applied: dict[Any, int] = {}
        self._logs: dict[
            Any, dict[int, int]
        ] = {}  # node -> index -> term, of what is not known to be durable
        self._holders: dict[tuple[int, int], set[Any]] = {}

    def see(self, event: Event) -> None:
        match event["f"]:
            case "add":
                self._see_add(event)
            case "lead":
                self._see_lead(event)
            case "apply":
                self._see_apply(event)
            case "restore":
                self._applied[event["node"]] = event["index"]
            case "durable":
                self._see_durable(event)
            case "commit":
                self._see_commit(event)
            case unknown:
                raise ValueError(f"no event is called {unknown!r}")

    def _wrong(self, rule: str, event: Event, what: str) -> None:
        self.anomalies.append(Anomaly(rule, f"node {event['node']}", what))

    def _see_add(self, event: Event) -> None:
        """Log matching: by induction, as each entry has the same one before it wherever it is."""
        key, value = (event["index"], event["term"]), (event["digest"], event["before"])
        self._logs.setdefault(event["node"], {})[event["index"]] = event["term"]
        known = self._added.setdefault(key, value)
        if known != value:
            what = f"entry {key[0]} of term {key[1]} is {value} here and {known} elsewhere"
            self._wrong("log-matching", event, what)

    def _see_durable(self, event: Event) -> None:
        log = self._logs.get(event["node"], {})
        for index in [each for each in log if each <= event["index"]]:
            self._holders.setdefault((index, log.pop(index)), set()).add(event["node"])

    def _see_commit(self, event: Event) -> None:
        """Who held it once counts, whatever became of its disk. One who votes alone commits its first entry unsynced."""
        voters, place = event["voters"], (event["index"], event["term"])
        holders = [each for each in voters if each in self._holders.get(place, ())]
        if len(voters) > 1 and 2 * len(holders) <= len(voters):
            what = f"it committed {place[0]} of term {place[1]}, which {holders} of the voters {voters} hold"
            self._wrong("commit-majority", event, what)

    def _see_lead(self, event: Event) -> None:
        term, log, first = event["term"], event["log"], event["first"]
        known = self.leaders.setdefault(term, event["node"])
        if known != event["node"]:
            self._wrong("election-safety", event, f"it leads term {term}, and so does node {known}")
        for index, entry in self.committed.items():
            # In its snapshot (what it applied says what that holds), or committed in a later term: a vote may be late.
            if index < first or self._during[index] >= term:
                continue
            place = index - first
            here = tuple(log[place]) if place < len(log) else None
            if here != entry:
                what = f"it leads term {term} and has {here} at {index}, where {entry} is committed"
                self._wrong("leader-completeness", event, what)

    def _see_apply(self, event: Event) -> None:
        index, entry = event["index"], (event["term"], event["digest"])
        known = self.committed.setdefault(index, entry)
        if known != entry:
            what = f"it applied {entry} at {index}, where {known} was applied"
            self._wrong("state-machine-safety", event, what)
        self._during[index] = min(self._during.get(index, event["during"]), event["during"])
        last = self._applied.get(event["node"], 0)
        if index != last + 1:
            self._wrong("order", event, f"it applied {index} after {last}")
        self._applied[event["node"]] = index


def check(history: Iterable[Event]) -> list[Anomaly]:
    properties = RaftProperties()
    for event in history:
        properties.see(event)
    return properties.anomalies


def main() -> None:
    """`python -m fencepost.chaos.checkers.raft_properties < events.jsonl`"""
    anomalies = check(json.loads(line) for line in sys.stdin if line.strip())
    for anomaly in anomalies:
        sys.stdout.write(f"{anomaly}\n")
    sys.exit(1 if anomalies else 0)


if __name__ == "__main__":
    main()
