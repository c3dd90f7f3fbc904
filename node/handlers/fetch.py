"""Fetch, api key 1, versions 4-18.

Does      reads batches; waits up to `max_wait` until there are `min_bytes` of them. From version 11 on a follower is
          read from, too, up to its high watermark, and a leader names a better replica (KIP-392).
Versions  7 sessions (KIP-227); 9 leader epochs; 11 racks; 12 divergence; 13 topic ids; 16 where the leader is.
Refuses   OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID, FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
          and what the partition says. Replicas do not fetch at this door.
Keeps     that a position is out of range is told when the quorum has confirmed who leads (`node/out_of_range.py`).
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.metadata.topic_names import TOPIC_NAME_LENGTH_MAX
from fencepost.cluster.wire.api import RecordsValue
from fencepost.replication.fetch_sessions import FINAL_EPOCH, NO_SESSION, Outcome, Wanted
from fencepost.replication.partition import Partition, Read
from fencepost.replication.waits import FetchWait

from .. import out_of_range
from ..judged import Judged
from ..moved import name_new_leaders
from ..read_replica_policy import preferred_read_replica
from ..services import HandlerContext

Key = tuple[str | UUID, int]  # a topic, by name or from v13 on by id; and a partition
SESSIONS_SINCE: Final = 7
RACKS_SINCE: Final = 11
TOPIC_IDS_SINCE: Final = 13
PARTITIONS_A_TURN: Final = 500  # 4 ms


@dataclass(slots=True)
class _Answer:
    """What was read of one partition: the fields of its reply, and what decides whether to wait."""

    fields: dict[str, Any]
    size: int = 0
    worth: int = 0  # of `min_bytes`
    partition: Partition | None = None  # None when the answer is final: an error, a divergence
    judged: Judged | None = None  # an error that another leader may not see


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    services = ctx.services
    if getattr(request, "replica_id", -1) >= 0 or _replica_of(request) >= 0:
        return {"error_code": ErrorCode.invalid_request, "responses": []}
    has_sessions = ctx.api_version >= SESSIONS_SINCE and _may_be_kept(request, ctx.api_version)
    context = services.fetch_sessions.begin(
        session_id=request.session_id if has_sessions else NO_SESSION,
        session_epoch=request.session_epoch if has_sessions else FINAL_EPOCH,
        wanted=_wanted(request, ctx.api_version),
        forgotten=_forgotten(request, ctx.api_version) if has_sessions else (),
        uses_topic_ids=ctx.api_version >= TOPIC_IDS_SINCE,
        now_ms=services.env.clock.now_ms(),
    )
    if isinstance(context, ErrorCode):
        return {"error_code": context, "responses": []}
    partitions: list[tuple[Key, Wanted]] = list(context.partitions())  # type: ignore[arg-type]
    answers = await _read_or_wait(ctx, request, partitions)
    await out_of_range.confirm(services, [each.judged for each in answers if each.judged])
    reply = context.finish(
        [(key, _outcome(answer)) for (key, _), answer in zip(partitions, answers, strict=True)],
        services.env.clock.now_ms(),
    )
    told = [(partitions[place][0], answers[place].fields) for place in reply.told]
    fields: dict[str, Any] = {
        "error_code": reply.error,
        "session_id": reply.session_id,
        "responses": _by_topic(told, ctx.api_version),
    }
    answers_by_topic = [(topic, topic["partitions"]) for topic in fields["responses"]]
    name_new_leaders(ctx, fields, answers_by_topic, index="partition_index")
    return fields


def _replica_of(request: Any) -> int:
    state = getattr(request, "replica_state", None)
    return -1 if state is None else state.replica_id


def _wanted(request: Any, version: int) -> dict[Hashable, Wanted]:
    by_id = version >= TOPIC_IDS_SINCE
    return {
        (topic.topic_id if by_id else topic.topic, each.partition): Wanted(
            each.fetch_offset,
            each.partition_max_bytes,
            getattr(each, "current_leader_epoch", -1),
            getattr(each, "last_fetched_epoch", -1),
            getattr(each, "log_start_offset", -1),
        )
        for topic in request.topics
        for each in topic.partitions
    }


def _may_be_kept(request: Any, version: int) -> bool:
    """Not a name that no topic can have: a session would be as large as the request, and there may be a thousand."""
    by_id = version >= TOPIC_IDS_SINCE
    return by_id or all(len(topic.topic) <= TOPIC_NAME_LENGTH_MAX for topic in request.topics)


def _forgotten(request: Any, version: int) -> list[Key]:
    by_id = version >= TOPIC_IDS_SINCE
    return [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


async def _read_or_wait(
    ctx: HandlerContext, request: Any, partitions: list[tuple[Key, Wanted]]
) -> list[_Answer]:
    """Read once; if that is less than the client wants, wait for more and read once again."""
    answers = await _read_all(ctx, request, partitions)
    wait_s = request.max_wait.total_seconds()
    min_bytes = min(request.min_bytes, _room(ctx, request))
    enough = sum(answer.worth for answer in answers) >= min_bytes
    final = any(answer.partition is None for answer in answers)
    if enough or final or wait_s <= 0 or not partitions:
        return answers
    isolation = request.isolation_level
    with FetchWait(min_bytes) as wait:
        watched = [
            (each, wanted, answer.worth)
            for (_, wanted), answer in zip(partitions, answers, strict=True)
            if (each := answer.partition) is not None
        ]
        for number, (partition, wanted, worth) in enumerate(watched, 1):
            wait.watch(partition, wanted.fetch_offset, wanted.max_bytes, isolation, worth)
            await _give_way(ctx, number)
        for number, (partition, _, _) in enumerate(watched, 1):
            wait.on_change(partition)  # others had their turn while it was read: look once more
            await _give_way(ctx, number)
        await wait.until(wait_s)
    return await _read_all(ctx, request, partitions)


def _room(ctx: HandlerContext, request: Any) -> int:
    """How large the whole answer may be: a consumer is not kept waiting for more than that, whatever it asks for."""
    return int(min(request.max_bytes, ctx.services.config.fetch_max_bytes))


async def _read_all(
    ctx: HandlerContext, request: Any, partitions: list[tuple[Key, Wanted]]
) -> list[_Answer]:
    """In the order of the session, within `max_bytes` in all; the first batch comes whatever its size."""
    room = _room(ctx, request)
    answers = []
    min_one = True
    for number, (key, wanted) in enumerate(partitions, 1):
        answer = await _read(ctx, request, key, wanted, room, min_one=min_one)
        room = max(0, room - answer.size)
        min_one = min_one and answer.size == 0
        answers.append(answer)
        await _give_way(ctx, number)
    return answers


async def _give_way(ctx: HandlerContext, number: int) -> None:
    """An idle consumer of 10,000 partitions would hold everybody up for 0.1 s and more, twice in each long poll."""
    if number % PARTITIONS_A_TURN == 0:
        await ctx.services.env.clock.sleep(0)


async def _read(
    ctx: HandlerContext, request: Any, key: Key, wanted: Wanted, room: int, *, min_one: bool
) -> _Answer:
    services = ctx.services
    topic, index = key
    name = topic if isinstance(topic, str) else services.topic_name(topic)
    if name is None:
        return _refusal(index, ErrorCode.unknown_topic_id)
    partition = services.replicas.partition(TopicPartition(name, index))
    if isinstance(partition, ErrorCode):
        return _refusal(index, partition)
    knows_racks = ctx.api_version >= RACKS_SINCE
    if knows_racks and request.rack_id and services.config.string("replica.selector.class"):
        elsewhere = _read_elsewhere(ctx, request.rack_id, partition, index, wanted)
        if elsewhere is not None:
            return elsewhere
    read = await partition.read_waiting(
        wanted.fetch_offset,
        min(wanted.max_bytes, room),
        isolation=request.isolation_level,
        min_one=min_one,
        current_leader_epoch=wanted.current_leader_epoch,
        last_fetched_epoch=wanted.last_fetched_epoch,
        leader_only=not knows_racks,
    )
    if not isinstance(read, Read):
        if read.error is ErrorCode.offset_out_of_range:
            return _out_of_range(request, index, partition, wanted)
        return _refusal(index, read.error)
    fields: dict[str, Any] = {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "high_watermark": read.high_watermark,
        "last_stable_offset": read.last_stable_offset,
        "log_start_offset": read.log_start_offset,
        "aborted_transactions": None
        if read.aborted is None
        else [{"producer_id": each, "first_offset": first} for each, first in read.aborted],
        "records": RecordsValue(read.records),
    }
    if read.diverging is None:
        return _Answer(fields, read.size, read.worth, partition)
    epoch, end_offset = read.diverging
    fields["diverging_epoch"] = {"epoch": epoch, "end_offset": end_offset}
    return _Answer(fields, judged=Judged.by(partition, fields) if partition.is_leader else None)


def _read_elsewhere(
    ctx: HandlerContext, rack: str, partition: Partition, index: int, wanted: Wanted
) -> _Answer | None:
    """An answer without records that names a replica in the consumer's rack, when there is one to prefer."""
    brokers = ctx.services.image.brokers
    replica = preferred_read_replica(
        partition, wanted.fetch_offset, rack, brokers, ctx.origin.listener
    )
    if replica is None:
        return None
    who = (ctx.origin.host, ctx.origin.port, *partition.topic_partition)
    now = ctx.services.env.clock.steady()
    if not ctx.services.sent_away.may_send(who, wanted.fetch_offset, now):
        return None
    error = partition.check_leader_epoch(wanted.current_leader_epoch)
    if error is not ErrorCode.none:
        return _refusal(index, error)
    return _Answer(
        {
            "partition_index": index,
            "error_code": ErrorCode.none,
            "high_watermark": partition.high_watermark,
            "last_stable_offset": partition.last_stable_offset,
            "log_start_offset": partition.log_start_offset,
            "aborted_transactions": None,
            "preferred_read_replica": replica,
            "records": b"",
        }
    )


def _out_of_range(request: Any, index: int, partition: Partition, wanted: Wanted) -> _Answer:
    """What a leader has not may have been written elsewhere; what it has deleted may be of a topic that was deleted, and made anew.
    At a follower whoever names a rack was sent there, and asks the leader next; others take it for the leader. So may who names no
    leader epoch, and where it is only behind, looking for the leader costs him nothing."""
    if not partition.is_leader:
        knows_who_leads = wanted.current_leader_epoch >= 0  # or had been refused before
        is_behind = wanted.fetch_offset >= partition.log_start_offset
        is_sent = request.rack_id and (knows_who_leads or not is_behind)
        refusal = ErrorCode.offset_out_of_range if is_sent else ErrorCode.not_leader_or_follower
        return _refusal(index, refusal)
    answer = _refusal(index, ErrorCode.offset_out_of_range)
    answer.judged = Judged.by(partition, answer.fields)
    return answer


def _refusal(index: int, error: ErrorCode) -> _Answer:
    return _Answer(
        {
            "partition_index": index,
            "error_code": error,
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": -1,
            "aborted_transactions": None,
            "records": b"",
        }
    )


def _outcome(answer: _Answer) -> Outcome:
    fields = answer.fields
    return Outcome(
        fields["error_code"],
        fields["high_watermark"],
        fields["log_start_offset"],
        answer.size,
        must_tell="diverging_epoch" in fields or "preferred_read_replica" in fields,
    )


def _by_topic(told: list[tuple[Key, dict[str, Any]]], version: int) -> list[dict[str, Any]]:
    name = "topic_id" if version >= TOPIC_IDS_SINCE else "topic"
    topics: list[dict[str, Any]] = []
    for (topic, _), fields in told:
        if not topics or topics[-1][name] != topic:
            topics.append({name: topic, "partitions": []})
        topics[-1]["partitions"].append(fields)
    return topics
