"""Batches of rows that their topic takes: asked once, by the driver, before tasks write.

INVARIANT  rows that a topic takes one by one are not refused for how many of them were sent together.
PREVENTS   a job of small rows that fails at a topic whose max.message.bytes is below our own batch.size.
PROVED BY  tests/spark/test_spark_sizes.py::test_small_rows_go_to_a_topic_whose_batches_must_be_smaller_than_ours

Where rows name their topics nobody knows which these are before they have come: what a broker refuses then is told with what to say.
"""

import time
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ..transactional import topic_limits
from .client_settings import SINKS
from .options import WriteOptions

BATCH_SIZE: Final = "batch.size"
# Spark has a stream's writer made twice for each batch, by Pythons that it keeps.
KEPT_S: Final = 60.0
ASK_S: Final = 5.0


def fitted(options: WriteOptions) -> WriteOptions:
    """What the user has said stays."""
    if options.topic is None or BATCH_SIZE in options.client:
        return options
    client = tuple(sorted(options.client.items()))
    limit = _limit(client, options.topic, int(time.monotonic() // KEPT_S))
    if limit is None or limit >= int(SINKS[BATCH_SIZE]):
        return options
    return replace(options, client={**options.client, BATCH_SIZE: str(limit)})


@lru_cache(maxsize=64)
def _limit(client: tuple[tuple[str, str], ...], topic: str, _when: int) -> int | None:
    return topic_limits.bytes_max(dict(client), topic, ask_s=ASK_S)
