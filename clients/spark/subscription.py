"""What a query asks for: topics by name, by a pattern, or partitions; and what its checkpoint has besides.

INVARIANT  what the options do not name any more is told as that, with what they say now.
PREVENTS   `subscribe` being changed under a checkpoint, and its user looking for who deleted a topic that is there.
PROVED BY  tests/spark/test_spark_gone.py::test_what_a_checkpoint_has_and_is_not_asked_for_any_more_is_told_as_that

Spark's own Kafka connector (4.2.0) says of these, too, that they have been deleted, and goes on without them with failOnDataLoss=false.
"""

import json
import re

from .offsets import TOLD_MAX, Place
from .options import ReadOptions


def asks_for(options: ReadOptions, place: Place) -> bool:
    if options.places:
        return place in options.places
    topic = place[0]
    return topic in options.topics or bool(options.pattern and re.fullmatch(options.pattern, topic))


def not_asked_for(options: ReadOptions, place: Place, offset: int) -> str:
    """Of a place that the checkpoint has."""
    return (
        f"{place[0]}-{place[1]} was read up to {offset} by the query of this checkpoint, and {_as_said(options)} does not ask for it "
        "any more: what has come to it since is not read."
    )


def keeps_its_place(place: Place) -> str:
    """What is done, with failOnDataLoss=false."""
    return f"going on without it; {place[0]}-{place[1]} keeps its place in the checkpoint, and goes on there when it is asked for again"


def _as_said(options: ReadOptions) -> str:
    if options.pattern:
        return f"subscribePattern={options.pattern[:TOLD_MAX]}"
    if options.topics:
        return f"subscribe={','.join(options.topics)[:TOLD_MAX]}"
    return f"assign={json.dumps(_by_topic(options.places))[:TOLD_MAX]}"


def _by_topic(places: tuple[Place, ...]) -> dict[str, list[int]]:
    table: dict[str, list[int]] = {}
    for topic, partition in places:
        table.setdefault(topic, []).append(partition)
    return table
