"""ListOffsets, api key 2, versions 1-11.

Does      finds the offset of a time, of an end, or of the largest timestamp, on partitions led here.
Versions  2 isolation; 4 leader epochs; 5 OFFSET_NOT_AVAILABLE (KIP-207); 7 max timestamp; 8 local log start; 9, 11 remote tiers (none here).
Keeps     an end is never behind what had been acknowledged when it was asked for, nor is it said that there is no record of
          a time, or which is the latest: a leader that slept or was cut off asks the quorum first whether it leads still. So it
          does before it says that a partition begins later than at 0: its topic may have been made anew meanwhile.
          Kafka's tells what it knows, however long ago that was.
Refuses   INVALID_REQUEST for a partition asked for twice, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
          NOT_LEADER_OR_FOLLOWER, UNSUPPORTED_VERSION for a special timestamp that the version has not,
          OFFSET_NOT_AVAILABLE for an end, a time that is not found, or a beginning that is not 0, while there is no majority
          of the voters.
"""

from collections import Counter
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER_EPOCH, TopicPartition

from ..fresh_image import ANSWER_S
from ..services import HandlerContext, Services

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
# Special timestamps and the first version that knows them.
SPECIAL_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
SPECIAL_SINCE |= {EARLIEST_PENDING: 11}
# Older clients know another error for "the new leader does not know yet what was committed" (KIP-207).
OFFSET_NOT_AVAILABLE_SINCE = 5
# 1 ms where an end is asked for, 10 and more for a time: whoever watches the lag of all groups asks for 10,000.
PARTITIONS_A_TURN = 200
LOOKS_A_TURN = 1000  # 3 ms: what is asked for is looked over before anything is found
# What more records behind them do not change.
OF_THE_BEGINNING = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING)
NOT_FOUND = (-1, -1, -1)
_UNKNOWN = {"timestamp": -1, "offset": -1, "leader_epoch": NO_LEADER_EPOCH}


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    services = ctx.services
    isolation = getattr(request, "isolation_level", 0)
    asked, must_ask = await _look_over(services, request)
    is_of_now = must_ask and await services.confirm_image(ANSWER_S)
    topics: list[dict[str, Any]] = []
    told = 0
    for topic in request.topics:
        topics.append({"name": topic.name, "partitions": []})
        for wanted in topic.partitions:
            index = wanted.partition_index
            if asked[topic.name, index] == 1:
                found = await _find(ctx, topic.name, wanted, isolation, is_of_now=is_of_now)
            else:
                found = {"error_code": ErrorCode.invalid_request, **_UNKNOWN}
            topics[-1]["partitions"].append({"partition_index": index, **found})
            told += 1
            if told % PARTITIONS_A_TURN == 0:
                await services.env.clock.sleep(0)
    return {"topics": topics}


async def _look_over(services: Services, request: Any) -> tuple[Counter[tuple[str, int]], bool]:
    """How often each is asked for, and whether what is found may have to be confirmed."""
    asked: Counter[tuple[str, int]] = Counter()
    must_ask, looks = False, 0
    for topic in request.topics:
        for wanted in topic.partitions:
            asked[topic.name, wanted.partition_index] += 1
            must_ask = must_ask or _may_differ_elsewhere(services, topic.name, wanted)
            looks += 1
            if looks % LOOKS_A_TURN == 0:
                await services.env.clock.sleep(0)
    return asked, must_ask


def _may_differ_elsewhere(services: Services, topic: str, wanted: Any) -> bool:
    if wanted.timestamp not in OF_THE_BEGINNING:
        return True
    partition = services.replicas.partition(TopicPartition(topic, wanted.partition_index))
    return not isinstance(partition, ErrorCode) and partition.log_start_offset > 0


def _is_in_doubt(timestamp: int, found: Any) -> bool:
    """What another leader, or that of the next topic of this name, may tell otherwise: a client would pass records by."""
    if isinstance(found, ErrorCode):
        return False
    return found == NOT_FOUND or (timestamp in OF_THE_BEGINNING and found[0] > 0)


async def _find(
    ctx: HandlerContext, topic: str, wanted: Any, isolation: int, *, is_of_now: bool
) -> dict[str, Any]:
    services, version, timestamp = ctx.services, ctx.api_version, wanted.timestamp
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
    found: Any = ErrorCode.offset_not_available
    if is_of_now or timestamp not in (LATEST, MAX_TIMESTAMP):
        found = await partition.list_offset_waiting(timestamp, isolation)
        if not is_of_now and _is_in_doubt(timestamp, found):
            found = ErrorCode.offset_not_available
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
