"""Arithmetic of offsets: what a micro-batch takes, and how it is shared out over tasks. Nothing here asks anybody.

INVARIANT  the ranges of a plan cover what lies between its start and its end once, and nothing else.
PREVENTS   a record that is read by two tasks, or by none, because a large range was split.
PROVED BY  tests/spark/test_spark_offsets.py::test_ranges_that_are_split_cover_the_same_offsets_once
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

EARLIEST: Final = -2
LATEST: Final = -1
# In the JSON of a checkpoint, beside the topics: none can have such a name.
CLUSTER_KEY: Final = "@cluster"
TOPICS_KEY: Final = "@topics"
BEGUN_KEY: Final = "@begun"
NOT_TOPICS: Final = (CLUSTER_KEY, TOPICS_KEY, BEGUN_KEY)
UNRESOLVED_KEY: Final = "@unresolved"  # of a start, which is in no checkpoint: why there is none
TOLD_MAX: Final = 200  # of an offset that can't be read
# Kafka's Topic.INTERNAL_TOPICS: no pattern means them, in its consumers neither.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})

Place = tuple[str, int]  # topic, partition
Offsets = dict[Place, int]
TopicIds = dict[str, str]  # by topic


class NotOurs(ValueError):
    """An offset in a checkpoint: what it is, and what it should be."""


class Range(NamedTuple):
    """Of one partition: from `start` on, without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start},{self.end})"


def to_json(
    offsets: Mapping[Place, int],
    cluster_id: str = "",
    topic_ids: Mapping[str, str] | None = None,
    begun: Mapping[Place, int] | None = None,
) -> dict[str, Any]:
    """As Spark's Kafka connector writes them: `{"topic": {"0": 23}}`; and whose they are. `begun`: see `begun_of`."""
    table: dict[str, Any] = {CLUSTER_KEY: cluster_id} if cluster_id else {}
    topics = {topic for topic, _ in offsets}
    known = topic_ids or {}
    if ids := {topic: known[topic] for topic in sorted(known) if topic in topics}:
        table[TOPICS_KEY] = ids
    if begun:
        table[BEGUN_KEY] = _by_topic(begun)
    return {**table, **_by_topic(offsets)}


def _by_topic(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        table.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return table


def from_json(table: Mapping[str, Any]) -> Offsets:
    return {
        (topic, int(partition)): table[topic][partition]
        for topic in table
        if topic not in NOT_TOPICS
        for partition in table[topic]
    }


def is_unresolved(start: Any) -> bool:
    return isinstance(start, dict) and UNRESOLVED_KEY in start


def check_noted(noted: Any) -> None:
    """Spark hands over what stands in the checkpoint, whoever wrote it."""
    if not _is_ours(noted):
        raise NotOurs(
            f"the checkpoint has the offset {json.dumps(noted)[:TOLD_MAX]} for this source, which is none of fencepost's, such as "
            '{"orders": {"0": 23}}: it is another source\'s, a newer build\'s, or damaged. Start with a new '
            "checkpointLocation, or put the checkpoint back as it was"
        )


def _is_ours(noted: Any) -> bool:
    if not isinstance(noted, dict):
        return False
    tables = [noted[key] for key in noted if not key.startswith("@")]
    begun = noted.get(BEGUN_KEY, {})
    return (
        all(not key.startswith("@") or key in NOT_TOPICS for key in noted)
        and isinstance(noted.get(CLUSTER_KEY, ""), str)
        and isinstance(noted.get(TOPICS_KEY, {}), dict)
        and isinstance(begun, dict)
        and all(_is_by_partition(each) for each in (*tables, *begun.values()))
    )


def _is_by_partition(table: Any) -> bool:
    return isinstance(table, dict) and all(
        key.isascii() and key.isdigit() and isinstance(table[key], int) and table[key] >= 0
        for key in table
    )


def begun_of(end: Mapping[str, Any]) -> Offsets:
    """Where the batch that ends here began, as far as the end of the one before does not say it: Spark keeps ends alone, and of
    the first batch it asks for the start again. Builds before 2026-11-23 noted none."""
    return from_json(end.get(BEGUN_KEY, {}))


def cluster_of(table: Mapping[str, Any]) -> str:
    return str(table.get(CLUSTER_KEY, ""))


def topic_ids_of(table: Mapping[str, Any], cluster_id: str) -> TopicIds:
    """None where there are none yet, nor those of another cluster: a copy of a topic has an id of its own."""
    if cluster_of(table) not in ("", cluster_id):
        return {}
    return dict(table.get(TOPICS_KEY, {}))


def as_text(table: Mapping[str, Any]) -> str:
    return json.dumps(table, sort_keys=True, separators=(",", ":"))


def admitted(start: Mapping[Place, int], end: Mapping[Place, int], most: int) -> Offsets:
    """An end that is no more than about `most` offsets away; each partition's share is as large as what it has.

    As Spark's Kafka connector does it: shares below one are rounded up, so that no partition starves.
    """
    sizes = {place: max(end[place] - start.get(place, end[place]), 0) for place in sorted(end)}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    until: Offsets = {}
    for place, size in sizes.items():
        share = most * size / total
        taken = int(share) if share >= 1 else (1 if share > 0 else 0)
        # A partition that went backwards has no size: it goes on where it ends.
        until[place] = min(start[place] + taken, end[place]) if size else end[place]
    return until


def distance(start: Mapping[Place, int], end: Mapping[Place, int]) -> int:
    return sum(max(end[place] - start.get(place, end[place]), 0) for place in end)


def ranges_between(start: Mapping[Place, int], end: Mapping[Place, int]) -> list[Range]:
    """Without those that are empty."""
    found = [Range(*place, start[place], end[place]) for place in sorted(end) if place in start]
    return [each for each in found if each.size > 0]


def split(
    ranges: Sequence[Range], least: int | None = None, records_max: int | None = None
) -> list[Range]:
    """In pieces of at most `records_max`, and in about `least` pieces in all, the large ones first."""
    pieces = [piece for each in ranges for piece in _cut(each, _count_of(each, records_max))]
    if least is None or len(pieces) >= least or not pieces:
        return pieces
    total = sum(each.size for each in pieces)
    # Small ranges keep one task; what is left of the wish is shared out by size.
    small = [each for each in pieces if each.size * least < total]
    large_total = total - sum(each.size for each in small)
    left = max(least - len(small), 1)
    found: list[Range] = []
    for each in pieces:
        is_small = each.size * least < total
        found += [each] if is_small else _cut(each, max(round(each.size / large_total * left), 1))
    return found


def _count_of(each: Range, records_max: int | None) -> int:
    return 1 if records_max is None else -(-each.size // records_max)


def _cut(each: Range, count: int) -> list[Range]:
    count = max(min(count, each.size), 1)
    edges = [each.start + each.size * n // count for n in range(count + 1)]
    return [Range(each.topic, each.partition, edges[n], edges[n + 1]) for n in range(count)]
