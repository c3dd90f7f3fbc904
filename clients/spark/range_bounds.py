"""Where a partition begins and ends, as one client after another is told: a leader that was deposed, and has not heard of it, answers.

INVARIANT  what a range lacks at its end is told as lost only when no client was told of it (`asking_others.py`).
PREVENTS   rows that are there and are left out (failOnDataLoss=false), or told as lost, for the word of one broker that was cut off.
PROVED BY  tests/spark/test_spark_range_bounds.py::test_an_end_that_one_broker_tells_is_asked_of_others

A partition's beginning only moves on, and so does its end. So of several answers the one that is furthest is the newest, and of
a beginning nobody knows one that is too far: what is gone there is believed at once.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from ..transactional.asking_others import ASKED_MIN, each_to_ask
from .c_consumer import PartitionConsumer

ASK_S: Final = 20.0

log = logging.getLogger("fencepost.clients")


class Bounds(NamedTuple):
    first: int
    last: int


def told_by_many(make: Callable[[], PartitionConsumer], wanted_end: int) -> Bounds | None:
    """The furthest that were told; asks no longer when `wanted_end` is there. None: nobody has said anything."""
    found: Bounds | None = None
    for _ in each_to_ask(ASKED_MIN):
        client = make()
        try:
            told = Bounds(*client.watermarks(ASK_S))
        except KafkaException as trouble:
            log.warning("where a partition ends now can't be asked for: %s", trouble)
            continue
        finally:
            client.close()
        found = told if found is None else Bounds(*map(max, found, told))
        if found.last >= wanted_end:
            break
    return found
