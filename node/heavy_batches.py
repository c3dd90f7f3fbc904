"""Which batches of one Produce request are checked away from the loop, and how much their refusals may say together.

A request is bounded by its bytes, and what is in these is not: a few KB of zstd are millions of headers or a thousand
refused records. So the parts of one request share what the loop may spend on them, and what they may be answered."""

from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.appends import HEAVY_BYTES, light_steps, may_be_heavy
from fencepost.replication.partition import Partition

from .services import HandlerContext

# What one request may have checked on the loop: 5 ms. A record's length is a step, a header of the first record six.
LIGHT_STEPS_MAX: Final = 50_000
RECORD_ERRORS_MAX: Final = 1_000  # of one request: some 100 KB; clients show the first few


class RecordErrors:
    """The sentences on single records that one request may still be told."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = RECORD_ERRORS_MAX

    def keep(self, errors: list[Any]) -> None:
        """Of these as many as there is room for, the first ones: what is beyond is thrown away."""
        del errors[self._left :]
        self._left -= len(errors)


def partition_of(ctx: HandlerContext, topic: Any, wanted: Any) -> Partition | None:
    services = ctx.services
    name = services.topic_name(topic.topic_id) if ctx.api_version >= 13 else topic.name
    if name is None:
        return None
    found = services.replicas.partition(TopicPartition(name, wanted.index))
    return None if isinstance(found, ErrorCode) else found


def heavy_batches(ctx: HandlerContext, request: Any) -> list[tuple[Any, Partition]]:
    """Each batch that takes long, and those that would with the others of the request: 5,000 of 20,000 empty records
    each are 100 MB, and 10 s. A large record alone is light, and so are 1,000 records."""
    now_ms = ctx.services.env.clock.now_ms()
    left, found = LIGHT_STEPS_MAX, []
    unseen = HEAVY_BYTES  # of batches whose records may all be looked into: headers may be in any of them
    for topic in request.topic_data:
        for wanted in topic.partition_data:
            records = wanted.records
            if records is None:
                continue
            steps = light_steps(records)
            if steps <= left and len(records) <= unseen and not may_be_heavy(records):
                left -= steps
                unseen -= len(records)
                continue
            partition = partition_of(ctx, topic, wanted)
            if partition is None:
                continue
            looked_into = len(records) > unseen and partition.looks_into(records, now_ms)
            if steps > left or looked_into or partition.is_heavy(records, now_ms):
                found.append((wanted, partition))
            else:
                left -= steps
    return found
