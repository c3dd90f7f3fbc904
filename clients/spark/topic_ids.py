"""Which topic an offset is of: a name may be given again, an id is not.

INVARIANT  the two ends of what is read of a topic are of one topic, and not of two that had its name one after the other.
PREVENTS   a topic that was made anew and has outgrown its old offset being read from the middle, and nobody being told.
PROVED BY  tests/spark/test_spark_topic_ids.py::test_a_topic_made_anew_that_has_outgrown_its_offset_is_told
"""

from collections.abc import Mapping
from typing import Final

from . import data_loss

ADVICE: Final = "Start a new query (with a new checkpoint), or say failOnDataLoss=false to read the new topic from its beginning."


def made_anew(noted: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One without an id on either side is taken for the same: it is of an older checkpoint, or of old brokers."""
    return [topic for topic in sorted(now) if noted.get(topic, now[topic]) != now[topic]]


def report(
    noted: Mapping[str, str], now: Mapping[str, str], *, fails: bool, going_on: str
) -> list[str]:
    """Those that were made anew, each named; raises for the first one."""
    anew = made_anew(noted, now)
    for topic in anew:
        data_loss.report(
            f"the topic {topic} was deleted and created again: this query has offsets of the one with the id "
            f"{noted[topic]}, and {topic} has the id {now[topic]} now. They mean nothing there.",
            fails=fails,
            advice=ADVICE,
            going_on=going_on,
        )
    return anew
