"""Requests about transactions in any version, as the commands of the machine, and its outcomes as rows of an answer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import (
    INTERNAL_TOPICS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
)
from fencepost.cluster.base.ports import Clock
from fencepost.cluster.metadata.image import ClusterImage

from ..runtime.decision import Fields
from ..runtime.regex import NAMES_A_TURN, WORK_A_TURN, Pause, Regex
from .commands import (
    NO_CONNECTION,
    AddPartitions,
    Ended,
    EndTransaction,
    Initialised,
    InitProducerId,
    ListTransactions,
    VerifyPartitions,
)
from .config import TransactionConfig
from .transaction import EPOCH_BUMP_VERSION, NO_TIMEOUT, Phase

E = ErrorCode
_MS: Final = timedelta(milliseconds=1)
# Since these versions clients know PRODUCER_FENCED; before, it is INVALID_PRODUCER_EPOCH (KIP-360, KIP-588).
_INIT_FENCED_SINCE: Final = 4
_FENCED_SINCE: Final = 2
BATCHED_ADD_SINCE: Final = 4
_BUMPS_EPOCH_SINCE: Final = 5
_STATES: Final = frozenset(phase.word for phase in Phase)
# Beyond ASCII the expressions know no characters; one that no expression names stands for all of them.
_ANY: Final = "\1"


class Caller(Protocol):
    """Who asks: as much of a handler's context as the coordinators need."""

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...


def connection_of(ctx: Caller) -> int:
    """The serial number of the connection, where the caller has one."""
    serial: int = getattr(ctx, "connection", NO_CONNECTION)
    return serial


def init_producer_id(
    ctx: Caller, body: Any, config: TransactionConfig, ticket: int
) -> InitProducerId | ErrorCode:
    had_id = getattr(body, "producer_id", NO_PRODUCER_ID)
    had_epoch = getattr(body, "producer_epoch", NO_PRODUCER_EPOCH)
    if (had_id == NO_PRODUCER_ID) != (had_epoch == NO_PRODUCER_EPOCH):
        return E.invalid_request
    if not body.transactional_id:
        return E.invalid_request
    two_phase = getattr(body, "enable2_pc", False)
    keep_prepared = getattr(body, "keep_prepared_txn", False)
    if (two_phase or keep_prepared) and not config.transaction_two_phase_commit_enable:
        return E.transactional_id_authorization_failed
    timeout_ms = milliseconds(body.transaction_timeout)
    if timeout_ms <= 0 or (not two_phase and timeout_ms > config.transaction_max_timeout_ms):
        return E.invalid_transaction_timeout
    return InitProducerId(
        transactional_id=body.transactional_id,
        timeout_ms=NO_TIMEOUT if two_phase else timeout_ms,
        producer_id=had_id,
        producer_epoch=had_epoch,
        keep_prepared=keep_prepared,
        ticket=ticket,
    )


def initialised(ctx: Caller, reply: Initialised | ErrorCode) -> Fields:
    if isinstance(reply, ErrorCode):
        if ctx.api_version < _INIT_FENCED_SINCE:
            reply = _old_word(reply)
        return {"error_code": reply, "producer_id": NO_PRODUCER_ID, "producer_epoch": -1}
    return {
        "error_code": E.none,
        "producer_id": reply.producer_id,
        "producer_epoch": reply.producer_epoch,
        "ongoing_txn_producer_id": reply.ongoing_producer_id,
        "ongoing_txn_producer_epoch": reply.ongoing_producer_epoch,
    }


def end_transaction(ctx: Caller, body: Any, ticket: int) -> EndTransaction | ErrorCode:
    if not body.transactional_id:
        return E.invalid_request
    return EndTransaction(
        transactional_id=body.transactional_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        commit=body.committed,
        bumps_epoch=ctx.api_version >= _BUMPS_EPOCH_SINCE,
        connection=connection_of(ctx),
        ticket=ticket,
    )


def ended(ctx: Caller, reply: Ended | ErrorCode) -> Fields:
    if isinstance(reply, ErrorCode):
        return {"error_code": word_for(ctx, reply), "producer_id": -1, "producer_epoch": -1}
    return {
        "error_code": E.none,
        "producer_id": reply.producer_id,
        "producer_epoch": reply.producer_epoch,
    }


def word_for(ctx: Caller, code: ErrorCode) -> ErrorCode:
    """The same in this version, for all but InitProducerId."""
    return _old_word(code) if ctx.api_version < _FENCED_SINCE else code


def _old_word(code: ErrorCode) -> ErrorCode:
    return E.invalid_producer_epoch if code is E.producer_fenced else code


# -- AddPartitionsToTxn ----------------------------------------------------------------------------


def add_partitions(
    ctx: Caller, body: Any, tickets: Iterator[int]
) -> list[AddPartitions | VerifyPartitions]:
    if ctx.api_version < BATCHED_ADD_SINCE:
        return [
            AddPartitions(
                transactional_id=body.v3_and_below_transactional_id,
                producer_id=body.v3_and_below_producer_id,
                producer_epoch=body.v3_and_below_producer_epoch,
                partitions=_partitions(body.v3_and_below_topics),
                connection=connection_of(ctx),
                ticket=next(tickets),
            )
        ]
    return [_of_batch(row, next(tickets)) for row in body.transactions]


def _of_batch(row: Any, ticket: int) -> AddPartitions | VerifyPartitions:
    if row.verify_only:
        return VerifyPartitions(
            transactional_id=row.transactional_id,
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            partitions=_partitions(row.topics),
            ticket=ticket,
        )
    return AddPartitions(
        transactional_id=row.transactional_id,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        partitions=_partitions(row.topics),
        client_transaction_version=EPOCH_BUMP_VERSION,
        ticket=ticket,
    )


def _partitions(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.name, index) for topic in topics for index in topic.partitions
    )


def refused_partitions(
    image: ClusterImage, command: AddPartitions | VerifyPartitions, *, by_client: bool
) -> dict[TopicPartition, ErrorCode]:
    """All or nothing: one partition that can't be added, and no other is either. Empty when all can.

    A client adds no internal topic: a marker in `__transaction_state` would be written behind its coordinator's back.
    """
    codes: dict[TopicPartition, ErrorCode] = {}
    for each in command.partitions:
        if by_client and each.topic in INTERNAL_TOPICS:
            codes[each] = E.topic_authorization_failed
        elif image.partition(*each) is None:
            codes[each] = E.unknown_topic_or_partition
    if not codes:
        return {}
    return {each: codes.get(each, E.operation_not_attempted) for each in command.partitions}


def added(ctx: Caller, body: Any, results: Sequence[Mapping[TopicPartition, ErrorCode]]) -> Fields:
    """A row for each topic of the request, also for one of which it names no partition."""
    if ctx.api_version < BATCHED_ADD_SINCE:
        rows = _by_topic(ctx, body.v3_and_below_topics, results[0])
        return {"results_by_topic_v3_and_below": rows}
    transactions = [
        {
            "transactional_id": row.transactional_id,
            "topic_results": _by_topic(ctx, row.topics, result),
        }
        for row, result in zip(body.transactions, results, strict=True)
    ]
    return {"error_code": E.none, "results_by_transaction": transactions}


def _by_topic(
    ctx: Caller, topics: Iterable[Any], result: Mapping[TopicPartition, ErrorCode]
) -> list[Fields]:
    by_topic: dict[str, list[Fields]] = {topic.name: [] for topic in topics}
    for (topic, partition), code in result.items():
        row = {"partition_index": partition, "partition_error_code": word_for(ctx, code)}
        by_topic[topic].append(row)
    return [{"name": topic, "results_by_partition": rows} for topic, rows in by_topic.items()]


# -- ListTransactions ------------------------------------------------------------------------------


def list_transactions(body: Any) -> tuple[ListTransactions | None, tuple[str, ...]]:
    """The command, None when no state that is asked for exists; and the states that don't."""
    states = tuple(dict.fromkeys(body.state_filters))
    unknown = tuple(state for state in states if state not in _STATES)
    command = ListTransactions(
        states=frozenset(states) - frozenset(unknown),
        producer_ids=frozenset(body.producer_id_filters),
        duration_ms=milliseconds(getattr(body, "duration_filter", -1)),
    )
    return (None if states and not command.states else command), unknown


def pattern_of(body: Any) -> Regex | None:
    """RegexRefused."""
    pattern = getattr(body, "transactional_id_pattern", None)
    return Regex(pattern) if pattern else None


async def named_like(regex: Regex, rows: list[Fields], clock: Clock) -> list[Fields]:
    """Those whose transactional id matches, with pauses: an expression may be slow, and ids many."""
    kept, turn_began = list[Fields](), 0
    for number, row in enumerate(rows, 1):
        text = "".join(char if char.isascii() else _ANY for char in row["transactional_id"])
        answer = regex.match(text, work_max=WORK_A_TURN)
        while isinstance(answer, Pause):
            await clock.sleep(0)
            answer = regex.match(text, answer, WORK_A_TURN)
        if answer:
            kept.append(row)
        if number % NAMES_A_TURN == 0 or regex.work - turn_began >= WORK_A_TURN:
            await clock.sleep(0)
            turn_began = regex.work
    return kept


def milliseconds(value: timedelta | int) -> int:
    return value // _MS if isinstance(value, timedelta) else value
