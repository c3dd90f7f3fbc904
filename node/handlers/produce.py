"""Produce, api key 0, versions 3-13.

Does      appends batches to the partitions led here; answers when they are as durable as `acks` asks for. Before the
          first batch of a transaction it asks the transaction's coordinator, and the quorum before it calls one out of order.
Versions  5 log start offset; 8 errors by record; 9 flexible; 10 where the leader is; 11 TRANSACTION_ABORTABLE;
          12 a batch makes its partition part of its transaction (KIP-890); 13 topic ids.
Refuses   TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transaction without its name, INVALID_REQUIRED_ACKS,
          INVALID_REQUEST for a null batch, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, what the coordinator says,
          REQUEST_TIMED_OUT when it is appended but not committed in time, and what the partition says.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import INTERNAL_TOPICS, NO_LEADER_EPOCH, TopicPartition
from fencepost.cluster.base.ports import Clock
from fencepost.cluster.wire.api import RequestRefused
from fencepost.cluster.wire.batch import (
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    BatchRefused,
    parse_header,
)
from fencepost.replication import sent_back
from fencepost.replication.appends import Checked
from fencepost.replication.partition import Appended, Partition
from fencepost.replication.waits import OffsetWait

from ..heavy_batches import RecordErrors, heavy_batches, partition_of
from ..moved import name_new_leaders
from ..out_of_order import OUT_OF_ORDER, OutOfOrder
from ..server.dispatch import Answer, Cancel, Fields
from ..server.overtaking import TRIED_AGAIN, Place
from ..services import HandlerContext
from ..transaction_doors import FirstWrite
from ..verdict_codes import ADDS_ITSELF_SINCE, produce_word

# One batch that is appended: where its answer goes, and what it waits for.
_Appended = tuple[Fields, Partition, int]
# A batch that begins a transaction somewhere: its part of the request, and what must be asked.
_First = tuple[Any, FirstWrite]

# Which transactional id it belongs to is not said, so nobody may write it.
NAMELESS: Final = ErrorCode.transactional_id_authorization_failed
CUT_OFF_LOOK_S: Final = 0.5  # how long a write waits at most at a leader that no controller hears
LENGTH_AT, MAGIC_AT, ATTRIBUTES_AT = (
    8,
    16,
    22,
)  # in a batch's header; of the attributes the low byte


@dataclass(slots=True)
class _Prepared:
    """What is known of a request's batches, by their place in memory, before the request begins."""

    checked: dict[int, Checked | BatchRefused] = field(default_factory=dict)
    refused: dict[int, ErrorCode] = field(
        default_factory=dict
    )  # by their transaction's coordinator
    allowed: set[int] = field(
        default_factory=set
    )  # by the same, or because a transaction of that producer was open there already
    # Of transactions: the leader epoch that a partition had when it was said whether its coordinator must be asked.
    led_in: dict[int, int] = field(default_factory=dict)


_NOTHING: Final = _Prepared()


def prepare(ctx: HandlerContext, request: Any) -> Awaitable[None] | None:
    """What takes long is done before the request begins, and away from everybody else: large batches are checked, and
    coordinators asked about the first batches of transactions. What the connection sends next waits behind it."""
    heavy = heavy_batches(ctx, request)
    first: list[_First] = []
    if request.transactional_id is not None:
        ctx.prepared = _Prepared()
        first = _first_writes(ctx, request, ctx.prepared)
    return _prepare(ctx, request.transactional_id, heavy, first) if heavy or first else None


def _first_writes(ctx: HandlerContext, request: Any, prepared: _Prepared) -> list[_First]:
    """The batches that the coordinator must be asked about. Those that need no asking to be refused are `prepared`."""
    add = ctx.api_version >= ADDS_ITSELF_SINCE
    batches = list(_of_transactions(request))
    if len({(header.producer_id, header.producer_epoch) for _, _, header in batches}) > 1:
        # Kafka finds no word for which of them is in the wrong, and refuses all. Before any partition waits for a word on one.
        rows = [wanted for topic in request.topic_data for wanted in topic.partition_data]
        prepared.refused = {id(wanted): ErrorCode.invalid_producer_id_mapping for wanted in rows}
        return []
    found: list[_First] = []
    for topic, wanted, header in batches:
        partition = partition_of(ctx, topic, wanted)
        if partition is None or not partition.is_leader:
            prepared.led_in[id(wanted)] = NO_LEADER_EPOCH
            continue
        prepared.led_in[id(wanted)] = partition.leader_epoch
        if add and partition.topic_partition.topic in INTERNAL_TOPICS:
            continue  # it is refused, and must not become part of the transaction
        write = ctx.services.verifier.first_write(partition, header, add=add)
        if isinstance(write, ErrorCode):
            prepared.refused[id(wanted)] = write
        elif write is not None:
            found.append((wanted, write))
        else:
            prepared.allowed.add(id(wanted))
    return found


def _of_transactions(request: Any) -> Iterator[tuple[Any, Any, BatchHeader]]:
    """Topic, part of the request, and header. Of batches with a wrong header appending says what is wrong."""
    for topic in request.topic_data:
        for wanted in topic.partition_data:
            if wanted.records is not None and _is_transactional(wanted.records):
                header = parse_header(wanted.records)
                if header.producer_id >= 0 and header.base_sequence >= 0:
                    yield topic, wanted, header


async def _prepare(
    ctx: HandlerContext,
    transactional_id: str,
    heavy: list[tuple[Any, Partition]],
    first: list[_First],
) -> None:
    if ctx.prepared is None:
        ctx.prepared = _Prepared()
    prepared: _Prepared = ctx.prepared
    if first:
        codes = await ctx.services.verifier.verify(
            transactional_id,
            [write for _, write in first],
            add=ctx.api_version >= ADDS_ITSELF_SINCE,
        )
        for (wanted, _), code in zip(first, codes, strict=True):
            if code is ErrorCode.none:
                prepared.allowed.add(id(wanted))
            else:
                prepared.refused[id(wanted)] = produce_word(code, version=ctx.api_version)
    now_ms = ctx.services.env.clock.now_ms()
    said = RecordErrors()
    for wanted, partition in heavy:
        checked = await partition.check_off_loop(
            wanted.records, produce_version=ctx.api_version, now_ms=now_ms
        )
        if isinstance(checked, BatchRefused):
            said.keep(checked.record_errors)
            # Its frames hold what was unpacked.
            checked = checked.with_traceback(None)
        prepared.checked[id(wanted)] = checked


def begin(ctx: HandlerContext, request: Any, answer: Answer) -> Cancel | None:
    services, acks = ctx.services, request.acks
    appended: list[_Appended] = []
    by_id = ctx.api_version >= 13
    nameless = request.transactional_id is None and _has_transactional(request)
    responses: list[Fields] = []
    said = RecordErrors()

    def complete() -> None:
        reply: Fields = {"responses": responses}
        if ctx.api_version >= 10:
            by_topic = [(topic, topic["partition_responses"]) for topic in responses]
            name_new_leaders(ctx, reply, by_topic, index="index")
        answer(reply)

    doubted = OutOfOrder(services, complete)
    for topic in request.topic_data:
        name = services.topic_name(topic.topic_id) if by_id else topic.name
        answers = []
        for wanted in topic.partition_data:
            if nameless:
                answers.append(_refused(wanted.index, NAMELESS))
                continue
            place = (topic.topic_id if by_id else topic.name, wanted.index)
            part, wait = _append(ctx, name, place, wanted, acks)
            if part["error_code"] in TRIED_AGAIN and wanted.records is not None:
                judge = partition_of(ctx, topic, wanted)
                if judge is None or not judge.remembers:
                    ctx.origin.refused.note(place, wanted.records)
            elif part["error_code"] is OUT_OF_ORDER:
                judge = partition_of(ctx, topic, wanted)
                assert judge is not None, "it has judged just now"
                doubted.note(part, judge)
            if errors := part.get("record_errors"):
                said.keep(errors)
            answers.append(part)
            if wait is not None:
                appended.append((part, *wait))
        key = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
        responses.append({**key, "partition_responses": answers})
    if acks == 0:
        _refuse_unanswered(responses)
        answer(None)
        return None
    timeout_s = request.timeout.total_seconds()
    clock, is_cut_off = services.env.clock, services.is_cut_off
    waiting = _Acknowledgements(appended, acks, doubted.tell, is_cut_off, clock, timeout_s)
    cancel = waiting.start()
    if not doubted:
        return cancel

    def cancel_both() -> None:
        if cancel is not None:
            cancel()
        doubted.cancel()

    return cancel_both


class _Acknowledgements:
    """What one request waits for. No task and no future: the reply leaves in the call that commits the last batch."""

    __slots__ = (
        "_acks", "_appended", "_clock", "_complete", "_deadline", "_is_cut_off", "_timer", "_waits",
    )  # fmt: skip

    def __init__(
        self,
        appended: list[_Appended],
        acks: int,
        complete: Callable[[], None],
        is_cut_off: Callable[[], bool],
        clock: Clock,
        timeout_s: float,
    ) -> None:
        self._clock = clock
        self._deadline = clock.steady() + timeout_s
        self._appended = appended
        self._acks = acks
        self._complete = complete
        self._is_cut_off = is_cut_off
        self._waits: dict[int, OffsetWait] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Cancel | None:
        for place, (part, partition, offset) in enumerate(self._appended):
            wait = partition.when_acknowledged(offset, self._acks, partial(self._decided, place))
            if isinstance(wait, ErrorCode):
                _put(part, wait)
            else:
                self._waits[place] = wait
        if not self._waits:
            self._complete()
            return None
        self._look_later()
        return self.cancel

    def _look_later(self) -> None:
        left_s = max(self._deadline - self._clock.steady(), 0.0)
        self._timer = self._clock.call_later(min(left_s, CUT_OFF_LOOK_S), self._look)

    def _decided(self, place: int, outcome: ErrorCode) -> None:
        del self._waits[place]
        _put(self._appended[place][0], outcome)
        if not self._waits:
            self.cancel()
            self._complete()

    def _look(self) -> None:
        """What is not committed in time is answered REQUEST_TIMED_OUT, and may still be.

        Java's and librdkafka's clients look for no other leader on that for five minutes. So a node that is cut off
        says NOT_LEADER_OR_FOLLOWER, which makes them: it promises no more about the batch. It does not wait for the
        client's time, half a minute mostly, to be over: somebody else may lead by now. (While the others still
        acknowledge to a leader that no controller hears, nothing waits for so long as to be looked at.)
        """
        if self._is_cut_off():
            late = ErrorCode.not_leader_or_follower
        elif self._clock.steady() < self._deadline:
            self._look_later()
            return
        else:
            late = ErrorCode.request_timed_out
        for place in self._waits:
            _put(self._appended[place][0], late)
        self.cancel()
        self._complete()

    def cancel(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        waits, self._waits = self._waits, {}
        for wait in waits.values():
            wait.cancel()


def _put(part: Fields, outcome: ErrorCode) -> None:
    if outcome is not ErrorCode.none:
        part.update(error_code=outcome, base_offset=-1, log_append_time=-1)


def _append(
    ctx: HandlerContext, topic: str | None, place: Place, wanted: Any, acks: int
) -> tuple[Fields, tuple[Partition, int] | None]:
    index, services = wanted.index, ctx.services
    if topic is None:
        return _refused(index, ErrorCode.unknown_topic_id), None
    if acks not in (-1, 0, 1):
        return _refused(index, ErrorCode.invalid_required_acks), None
    prepared: _Prepared = ctx.prepared or _NOTHING
    partition = services.replicas.partition(TopicPartition(topic, index))
    if (error := prepared.refused.get(id(wanted))) is not None:
        if wanted.records is not None and error in sent_back.TRIED_AGAIN:
            _remember(ctx, partition, place, wanted.records, error)
        return _refused(index, error), None
    if topic in INTERNAL_TOPICS:
        return _refused(index, ErrorCode.invalid_topic_exception), None
    if isinstance(partition, ErrorCode):
        return _refused(index, partition), None
    if wanted.records is None:
        return _refused(index, ErrorCode.invalid_record), None
    if prepared.led_in.get(id(wanted), partition.leader_epoch) != partition.leader_epoch:
        # It came, or came back, while others were asked about: what was said of it then does not hold.
        _remember(ctx, partition, place, wanted.records, ErrorCode.not_leader_or_follower)
        return _refused(index, ErrorCode.not_leader_or_follower), None
    refused = ctx.origin.refused
    behind = refused.before(place, wanted.records) if refused else None
    appended = partition.append_as_leader(
        wanted.records,
        required_acks=acks,
        now_ms=services.env.clock.now_ms(),
        produce_version=ctx.api_version,
        checked=prepared.checked.get(id(wanted)),
        behind=behind,
    )
    if not isinstance(appended, Appended):
        error = appended.error
        if error is ErrorCode.invalid_txn_state and id(wanted) in prepared.allowed:
            # A marker was written here since, of the transaction before, and voids all words. That one may have been open
            # here yet: old clients have one epoch for all of theirs, and who has been deposed may not know how it ended.
            error = ErrorCode.not_enough_replicas
            partition.note_sent_back(wanted.records, error)
        return {
            **_refused(index, error),
            "error_message": appended.message,
            "record_errors": [
                {"batch_index": place, "batch_index_error_message": why}
                for place, why in appended.record_errors
            ],
            "log_start_offset": partition.log_start_offset,
        }, None
    if behind is not None:
        refused.forget(place, wanted.records)
    answer = {
        "index": index,
        "error_code": ErrorCode.none,
        "base_offset": appended.first_offset,
        "log_append_time": appended.append_time_ms,
        "log_start_offset": appended.log_start_offset,
    }
    return answer, (partition, appended.last_offset)


def _remember(
    ctx: HandlerContext, found: Any, place: Place, records: Any, error: ErrorCode
) -> None:
    """Refused by its coordinator: by who leads now, or, where the partition has gone meanwhile, by its connection."""
    if isinstance(found, ErrorCode) or not found.note_sent_back(records, error):
        ctx.origin.refused.note(place, records)


def _refused(index: int, error: ErrorCode) -> Fields:
    return {"index": index, "error_code": error, "base_offset": -1, "log_start_offset": -1}


def _is_transactional(records: memoryview) -> bool:
    """What the first header says. Where it is none, appending says what is wrong."""
    return (
        len(records) >= HEADER_SIZE
        and records[MAGIC_AT] == MAGIC
        and records[ATTRIBUTES_AT] & TRANSACTIONAL_FLAG != 0
        and int.from_bytes(records[LENGTH_AT : LENGTH_AT + 4]) + LENGTH_PREFIX >= HEADER_SIZE
    )


def _has_transactional(request: Any) -> bool:
    return any(
        wanted.records is not None and _is_transactional(wanted.records)
        for topic in request.topic_data
        for wanted in topic.partition_data
    )


def _refuse_unanswered(responses: list[Fields]) -> None:
    """acks=0 has no reply. A client that can't be told of an error is told by a closed connection, as by Kafka."""
    for topic in responses:
        for answer in topic["partition_responses"]:
            if answer["error_code"] is not ErrorCode.none:
                raise RequestRefused(
                    f"a batch sent with acks=0 was refused: {answer['error_code'].name}"
                )
