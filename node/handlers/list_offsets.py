"""ListOffsets, api key 2, versions 1-11.

Does      finds the offset of a time, of an end, or of the largest timestamp, on partitions led here.
Versions  2 isolation; 4 leader epochs; 5 OFFSET_NOT_AVAILABLE (KIP-207); 7 max timestamp; 8 local log start; 9, 11 remote tiers (none here).
Refuses   INVALID_REQUEST for a partition asked for twice, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
          NOT_LEADER_OR_FOLLOWER, UNSUPPORTED_VERSION for a special timestamp that the version has not.
"""

from collections import Counter
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER_EPOCH, TopicPartition

from ..services import HandlerContext, Services

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
# Special timestamps and the first version that knows them.
SPECIAL_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
SPECIAL_SINCE |= {EARLIEST_PENDING: 11}
# Older clients know another error for "the new leader does not know yet what was committed" (KIP-207).
OFFSET_NOT_AVAILABLE_SINCE = 5
_UNKNOWN = {"timestamp": -1, "offset": -1, "leader_epoch": NO_LEADER_EPOCH}


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    services = ctx.services
    isolation = getattr(request, "isolation_level", 0)
    asked = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": wanted.partition_index,
                        **(
                            await _find(services, topic.name, wanted, isolation, ctx.api_version)
                            if asked[topic.name, wanted.partition_index] == 1
                            else {"error_code": ErrorCode.invalid_request, **_UNKNOWN}
                        ),
                    }
                    for wanted in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


async def _find(
    services: Services, topic: str, wanted: Any, isolation: int, version: int
) -> dict[str, Any]:
    timestamp = wanted.timestamp
    if timestamp < 0 and SPECIAL_SINCE.get(timestamp, version + 1) > version:
        return {"error_code": ErrorCode.unsupported_version, **_UNKNOWN}
    partition = services.replicas.partition(TopicPartition(topic, wanted.partition_index))
    if isinstance(partition, ErrorCode):
        return {"error_code": partition, **_UNKNOWN}
    refused = partition.check_leader_epoch(getattr(wanted, "current_leader_epoch", NO_LEADER_EPOCH))
    if refused is not ErrorCode.none:
        return {"error_code": refused, **_UNKNOWN}
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return {"error_code": ErrorCode.none, **_UNKNOWN}
    found = await partition.list_offset_waiting(timestamp, isolation)
    if isinstance(found, ErrorCode):
        if found is ErrorCode.offset_not_available and version < OFFSET_NOT_AVAILABLE_SINCE:
            found = ErrorCode.leader_not_available
        return {"error_code": found, **_UNKNOWN}
    offset, at, leader_epoch = found
    return {
        "error_code": ErrorCode.none,
        "timestamp": at,
        "offset": offset,
        "leader_epoch": leader_epoch,
    }
