"""Produce, api key 0, versions 3-13.

Does      appends batches to the partitions led here; answers when they are as durable as `acks` asks for.
Versions  5 log start offset; 8 errors by record; 9 flexible; 10 where the leader is; 13 topic ids.
Refuses   INVALID_REQUIRED_ACKS, INVALID_REQUEST for a null batch, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER,
          REQUEST_TIMED_OUT when it is appended but not committed in time, and what the partition says.
"""

import asyncio
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import INTERNAL_TOPICS, TopicPartition
from fencepost.cluster.wire.api import RequestRefused
from fencepost.cluster.wire.batch import HEADER_SIZE, BatchRefused, parse_header
from fencepost.replication.partition import Appended, Partition

from ..moved import name_new_leaders
from ..services import HandlerContext, Services

# One partition on its way to a reply: where its answer goes, and what to wait for.
_Waiting = tuple[dict[str, Any], Partition, int]


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any] | None:
    services, acks = ctx.services, request.acks
    waiting: list[_Waiting] = []
    by_id = ctx.api_version >= 13
    # from here, no await: what one connection pipelines is appended in the order it was sent
    responses = []
    for topic in request.topic_data:
        name = services.topic_name(topic.topic_id) if by_id else topic.name
        answers = []
        for wanted in topic.partition_data:
            answer, wait = _append(services, name, wanted, acks, ctx.api_version)
            answers.append(answer)
            if wait is not None:
                waiting.append((answer, *wait))
        key = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
        responses.append({**key, "partition_responses": answers})
    # to here no await
    ctx.reach_stage()
    if acks != 0 and waiting:
        await _wait_acknowledged(waiting, acks, request.timeout.total_seconds())
    if acks == 0:
        _refuse_unanswered(responses)
        return None
    reply: dict[str, Any] = {"responses": responses}
    if ctx.api_version >= 10:
        by_topic = [(topic, topic["partition_responses"]) for topic in responses]
        name_new_leaders(ctx, reply, by_topic, index="index")
    return reply


def _append(
    services: Services, topic: str | None, wanted: Any, acks: int, version: int
) -> tuple[dict[str, Any], tuple[Partition, int] | None]:
    index = wanted.index
    refusal = {"index": index, "base_offset": -1, "log_start_offset": -1}
    if topic is None:
        return {**refusal, "error_code": ErrorCode.unknown_topic_id}, None
    if acks not in (-1, 0, 1):
        return {**refusal, "error_code": ErrorCode.invalid_required_acks}, None
    if topic in INTERNAL_TOPICS:
        return {**refusal, "error_code": ErrorCode.invalid_topic_exception}, None
    partition = services.replicas.partition(TopicPartition(topic, index))
    if isinstance(partition, ErrorCode):
        return {**refusal, "error_code": partition}, None
    if wanted.records is None:
        return {**refusal, "error_code": ErrorCode.invalid_record}, None
    if _is_transactional(wanted.records):
        # As Kafka's verification with the coordinator (KIP-890): there is none, so no transaction is open.
        return {**refusal, "error_code": ErrorCode.invalid_txn_state}, None
    appended = partition.append_as_leader(
        wanted.records,
        required_acks=acks,
        now_ms=services.env.clock.now_ms(),
        produce_version=version,
    )
    if not isinstance(appended, Appended):
        return {
            **refusal,
            "error_code": appended.error,
            "error_message": appended.message,
            "record_errors": [
                {"batch_index": place, "batch_index_error_message": why}
                for place, why in appended.record_errors
            ],
            "log_start_offset": partition.log_start_offset,
        }, None
    answer = {
        "index": index,
        "error_code": ErrorCode.none,
        "base_offset": appended.first_offset,
        "log_append_time": appended.append_time_ms,
        "log_start_offset": appended.log_start_offset,
    }
    return answer, (partition, appended.last_offset)


def _is_transactional(records: memoryview) -> bool:
    """What the first header says. Where it is none, appending says what is wrong."""
    try:
        return len(records) >= HEADER_SIZE and parse_header(records).is_transactional
    except BatchRefused:
        return False


async def _wait_acknowledged(waiting: list[_Waiting], acks: int, timeout_s: float) -> None:
    """Wait for every batch; what is not committed in time is answered REQUEST_TIMED_OUT, and may still be."""
    late = [each for each in waiting if not each[1].is_acknowledged(each[2], acks)]
    if not late:
        return
    outcomes: list[ErrorCode | None] = [None] * len(late)

    async def wait(place: int) -> None:
        _, partition, offset = late[place]
        outcomes[place] = await partition.acknowledged(offset, acks)

    try:
        async with asyncio.timeout(timeout_s):
            if len(late) == 1:
                await wait(0)
            else:
                async with asyncio.TaskGroup() as group:
                    for place in range(len(late)):
                        group.create_task(wait(place), name="produce: wait for commit")
    except TimeoutError:
        pass  # said in the reply, partition by partition
    for (answer, _, _), outcome in zip(late, outcomes, strict=True):
        error = ErrorCode.request_timed_out if outcome is None else outcome
        if error is not ErrorCode.none:
            answer.update(error_code=error, base_offset=-1, log_append_time=-1)


def _refuse_unanswered(responses: list[dict[str, Any]]) -> None:
    """acks=0 has no reply. A client that can't be told of an error is told by a closed connection, as by Kafka."""
    for topic in responses:
        for answer in topic["partition_responses"]:
            if answer["error_code"] is not ErrorCode.none:
                raise RequestRefused(
                    f"a batch sent with acks=0 was refused: {answer['error_code'].name}"
                )
