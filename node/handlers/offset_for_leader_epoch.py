"""OffsetForLeaderEpoch, api key 23, versions 2-4.

Does      tells a consumer where a leader epoch ended, so that it sees whether what it read was truncated.
Versions  3 replica id; 4 flexible.
Keeps     that an epoch is not known, or where it ended, is told when the quorum has confirmed who leads (`node/out_of_range.py`).
Refuses   FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER_EPOCH, TopicPartition

from .. import out_of_range
from ..judged import Judged
from ..services import HandlerContext, Services


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    judged: list[Judged] = []
    topics = [
        {
            "topic": topic.topic,
            "partitions": [
                _find(ctx.services, topic.topic, each, judged) for each in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    await out_of_range.confirm(ctx.services, judged)
    return {"topics": topics}


def _find(services: Services, topic: str, wanted: Any, judged: list[Judged]) -> dict[str, Any]:
    answer = {"partition": wanted.partition, "leader_epoch": NO_LEADER_EPOCH, "end_offset": -1}
    partition = services.replicas.partition(TopicPartition(topic, wanted.partition))
    if isinstance(partition, ErrorCode):
        return {"error_code": partition, **answer}
    refused = partition.check_leader_epoch(wanted.current_leader_epoch)
    if refused is not ErrorCode.none:
        return {"error_code": refused, **answer}
    if not partition.is_leader:  # its log may lack what is committed, or still have what is not
        return {"error_code": ErrorCode.not_leader_or_follower, **answer}
    leader_epoch, end_offset = partition.end_offset_for(wanted.leader_epoch)
    answer |= {
        "error_code": ErrorCode.none,
        "leader_epoch": leader_epoch,
        "end_offset": end_offset,
    }
    # One that is newer than all may be a successor's; one that ended sooner, of the topic that had this name before.
    judged.append(Judged.by(partition, answer))
    return answer
