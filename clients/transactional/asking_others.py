"""A broker that is cut off from its cluster still answers, and does not know what became of it since: others are asked.

INVARIANT  what should be there counts as gone only when nobody has told of it for `GONE_S`, and as many were asked as the caller wants.
PREVENTS   rows that are left out, told as lost, or processed once more, for the word of one that was deposed.
PROVED BY  tests/spark/test_spark_range_bounds.py::test_an_end_that_one_broker_tells_is_asked_of_others
           tests/spark/test_spark_listings.py::test_what_a_broker_comes_to_know_meanwhile_is_there
           tests/clients/test_transactional_going_back.py::test_a_position_behind_one_brokers_end_is_no_reason_to_begin_anew

A new client has its metadata of any broker, and asks whom that takes for the leader.
"""

import time
from collections.abc import Iterator
from typing import Final

GONE_S: Final = 5.0
ASKED_MIN: Final = 8
ASK_AGAIN_S: Final = 0.5


def each_to_ask(asked_min: int) -> Iterator[None]:
    """Once for each that is to be asked, with a pause between them. Whoever has found what is looked for leaves; the end is that
    it is gone."""
    begun_s, asked = time.monotonic(), 0
    while True:
        yield
        asked += 1
        if asked >= asked_min and time.monotonic() - begun_s >= GONE_S:
            return
        time.sleep(ASK_AGAIN_S)
