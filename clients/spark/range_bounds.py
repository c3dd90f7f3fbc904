"""Where a partition begins and ends, as one client after another is told: a leader that was deposed, and has not heard of it, answers.

INVARIANT  what a range lacks at its end is told as lost only when no client was told of it for `GONE_S`.
PREVENTS   rows that are there and are left out (failOnDataLoss=false), or told as lost, for the word of one broker that was cut off.
PROVED BY  tests/spark/test_spark_range_bounds.py::test_an_end_that_one_broker_tells_is_asked_of_others

A partition's beginning only moves on, and so does its end. So of several answers the one that is furthest is the newest, and of
a beginning nobody knows one that is too far: what is gone there is believed at once.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from .c_consumer import PartitionConsumer
from .cluster import GONE_S

TOLD_BY_MIN: Final = 8
NEW_CLIENT_S: Final = 0.5
ASK_S: Final = 20.0

log = logging.getLogger("fencepost.clients")


class Bounds(NamedTuple):
    first: int
    last: int


def told_by_many(make: Callable[[], PartitionConsumer], wanted_end: int) -> Bounds | None:
    """The furthest that were told; asks no longer when `wanted_end` is there. None: nobody has said anything.

    A new client has its metadata of any broker, and asks whom that takes for the leader.
    """
    found: Bounds | None = None
    begun_s, asked = time.monotonic(), 0
    while found is None or found.last < wanted_end:
        if asked >= TOLD_BY_MIN and time.monotonic() - begun_s >= GONE_S:
            break
        time.sleep(NEW_CLIENT_S)
        asked += 1
        client = make()
        try:
            told = Bounds(*client.watermarks(ASK_S))
        except KafkaException as trouble:
            log.warning("where a partition ends now can't be asked for: %s", trouble)
            continue
        finally:
            client.close()
        found = told if found is None else Bounds(*map(max, found, told))
    return found
