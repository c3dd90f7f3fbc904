"""What the cluster says of its transactions: coordinators, partitions and what is open there."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import (
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    TopicPartition,
)
from fencepost.cluster.metadata.image import BrokerState, ClusterImage, Endpoint
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.batch import HEADER_SIZE, parse_header

from ..few import few
from .cluster import Failed
from .txn_sentences import Open, Stable, Transaction
from .wire import PAGE, Wire

TRANSACTION_KIND: Final = 1
LATEST: Final = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
# Kafka's tool asks for as many at once.
AT_ONCE: Final = 500
# What a coordinator says while it can't speak for its ids yet, or for an id that has just moved.
NOT_NOW: Final = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
TRIES, PAUSE_S = 25, 0.2
AGAIN_S: Final = TRIES * PAUSE_S
_NEXT_STEP: Final = "`fencepost txn list` shows those there are."


def list_ids(
    wire: Wire, nodes: Iterable[BrokerState], **filters: Any
) -> tuple[list[tuple[str, int]], list[str]]:
    """(transactional id, producer id) of all that match; and who could not be asked, in sentences."""
    asked = {"state_filters": [], "producer_id_filters": [], **filters}
    found: list[tuple[str, int]] = []
    silent = _nobodys(wire)
    for broker in nodes:
        try:
            reply = wire.ask_node(broker.endpoints[0], ApiKey.list_transactions, **asked)
        except Trouble as trouble:
            silent.append(_missing(broker, str(trouble)))
            continue
        if reply.unknown_state_filters:
            raise Failed(
                f"there is no state {reply.unknown_state_filters[0]}; there are Empty, Ongoing, PrepareCommit, "
                "PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence, Prepared and Dead"
            )
        if reply.error_code is ErrorCode.invalid_regular_expression:
            raise Failed(
                f"--pattern {filters['transactional_id_pattern']!r} is no regular expression of RE2's language"
            )
        if reply.error_code is not ErrorCode.none:
            silent.append(_missing(broker, reply.error_code.name.upper()))
        found += [(each.transactional_id, each.producer_id) for each in reply.transaction_states]
    return sorted(set(found)), silent


def _nobodys(wire: Wire) -> list[str]:
    """Parts of the transaction log that no node leads: nobody tells what is in them."""
    reply = wire.ask(
        ApiKey.describe_topic_partitions,
        topics=[{"name": TRANSACTION_STATE_TOPIC}],
        response_partition_limit=PAGE,
        cursor=None,
    )
    return [
        f"{TRANSACTION_STATE_TOPIC}-{each.partition_index} has no leader: its transactions are missing here"
        for topic in reply.topics
        for each in topic.partitions
        if each.leader_id == NO_LEADER
    ]


def _missing(broker: BrokerState, why: str) -> str:
    return f"node {broker.broker_id} does not tell its transactions ({why}): they are missing here"


def coordinator_of(wire: Wire, image: ClusterImage, transactional_id: str) -> BrokerState:
    keys = {"key_type": TRANSACTION_KIND, "coordinator_keys": [transactional_id]}
    for _ in range(TRIES):
        (row,) = wire.ask(ApiKey.find_coordinator, **keys).coordinators
        if row.error_code is ErrorCode.none:
            node = image.brokers.get(BrokerId(row.node_id))
            endpoint = Endpoint("CLIENT", row.host, row.port, "PLAINTEXT")
            if node is not None:
                return replace(node, endpoints=(endpoint,))
        elif row.error_code not in NOT_NOW:
            break
        wire.sleep(PAUSE_S)
    raise Failed(
        f"nobody coordinates {transactional_id} ({row.error_code.name.upper()}). `fencepost partition list "
        "__transaction_state --offline` shows whether a part of the transaction log is offline."
    )


def describe(wire: Wire, image: ClusterImage, transactional_id: str) -> Transaction:
    """Failed when there is no such id."""
    for _ in range(TRIES):
        node = coordinator_of(wire, image, transactional_id)
        try:
            reply = wire.ask_node(
                node.endpoints[0],
                ApiKey.describe_transactions,
                transactional_ids=[transactional_id],
            )
        except Trouble as trouble:
            raise Failed(
                f"node {node.broker_id}, which coordinates {transactional_id}, does not answer ({trouble})"
            ) from trouble
        (row,) = reply.transaction_states
        if row.error_code is ErrorCode.none:
            return _transaction(row, node.broker_id)
        if row.error_code not in NOT_NOW:
            break
        wire.sleep(PAUSE_S)
    if row.error_code is ErrorCode.transactional_id_not_found:
        raise Failed(f"there is no transactional id {transactional_id}. {_NEXT_STEP}")
    raise Failed(f"can't describe {transactional_id}: {row.error_code.name.upper()}. {_NEXT_STEP}")


def describe_all(
    wire: Wire, image: ClusterImage, transactional_ids: Iterable[str]
) -> tuple[dict[str, Transaction | None], list[str]]:
    """Each from the node that coordinates it now, None if it is no more; and of whom nobody tells, in sentences."""
    wanted = sorted(set(transactional_ids))
    found, why = ask_to_describe(wire, image.alive_brokers(), wanted)
    deadline = time.monotonic() + AGAIN_S
    while (left := [each for each in wanted if each not in found]) and time.monotonic() < deadline:
        wire.sleep(PAUSE_S)
        more, reasons = ask_to_describe(wire, _coordinators(wire, image, left), left)
        found |= more
        why |= reasons
    missing = {each: why.get(each, "nobody coordinates it") for each in left}
    return found, [f"{each}: they are missing here" for each in undescribed(missing)]


def _coordinators(
    wire: Wire, image: ClusterImage, transactional_ids: Sequence[str]
) -> list[BrokerState]:
    keys = {"key_type": TRANSACTION_KIND, "coordinator_keys": transactional_ids}
    rows = wire.ask(ApiKey.find_coordinator, **keys).coordinators
    nodes = {row.node_id for row in rows if row.error_code is ErrorCode.none}
    return [image.brokers[each] for each in sorted(nodes) if each in image.brokers]


def ask_to_describe(
    wire: Wire, nodes: Iterable[BrokerState], transactional_ids: Sequence[str]
) -> tuple[dict[str, Transaction | None], dict[str, str]]:
    """What these nodes say of them, None for one that its coordinator has not any more; and of the others, why not."""
    found: dict[str, Transaction | None] = {}
    why: dict[str, str] = {}
    left = list(transactional_ids)
    for broker in nodes:
        for at in range(0, len(left), AT_ONCE):
            try:
                reply = wire.ask_node(
                    broker.endpoints[0],
                    ApiKey.describe_transactions,
                    transactional_ids=left[at : at + AT_ONCE],
                )
            except Trouble as trouble:
                why |= dict.fromkeys(left[at:], f"node {broker.broker_id}: {trouble}")
                break
            for row in reply.transaction_states:
                name, error = row.transactional_id, row.error_code
                if error is ErrorCode.none:
                    found[name] = _transaction(row, broker.broker_id)
                elif error is ErrorCode.transactional_id_not_found:
                    found[name] = None
                elif error is not ErrorCode.not_coordinator:
                    why[name] = f"node {broker.broker_id}: {error.name.upper()}"
        left = [each for each in left if each not in found]
    return found, why


def undescribed(why: Mapping[str, str]) -> list[str]:
    """A sentence on those that were listed and that nobody described, if there are any."""
    if not why:
        return []
    reasons = few(sorted(set(why.values())))
    return [f"nobody describes {few(sorted(why))}, listed a moment ago ({reasons})"]


def _transaction(row: Any, coordinator: BrokerId) -> Transaction:
    started = row.transaction_start_time
    return Transaction(
        transactional_id=row.transactional_id,
        state=row.transaction_state,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_ms=round(row.transaction_timeout.total_seconds() * 1000),
        started_ms=None if started < 0 else started,
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic, each)
                for topic in row.topics
                for each in topic.partitions
            )
        ),
        coordinator=coordinator,
    )


# --- partitions -----------------------------------------------------------------------------------


def _by_leader(
    image: ClusterImage, places: Iterable[TopicPartition]
) -> list[tuple[Endpoint, list[TopicPartition]]]:
    found: dict[BrokerId, list[TopicPartition]] = {}
    for place in places:
        state = image.partition(*place)
        if state is not None and state.leader != NO_LEADER and state.leader in image.brokers:
            found.setdefault(state.leader, []).append(place)
    return [(image.brokers[leader].endpoints[0], found[leader]) for leader in sorted(found)]


def _topics(places: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return topics


def read_open(
    wire: Wire, image: ClusterImage, places: Sequence[TopicPartition]
) -> dict[TopicPartition, list[Open]]:
    """What is open in each partition, as its leader says. One that does not answer is left out."""
    found: dict[TopicPartition, list[Open]] = {}
    for endpoint, there in _by_leader(image, places):
        for at in range(0, len(there), AT_ONCE):
            topics = [
                {"name": name, "partition_indexes": indexes}
                for name, indexes in _topics(there[at : at + AT_ONCE]).items()
            ]
            try:
                reply = wire.ask_node(endpoint, ApiKey.describe_producers, topics=topics)
            except Trouble:
                break
            for topic in reply.topics:
                for each in topic.partitions:
                    if each.error_code is ErrorCode.none:
                        place = TopicPartition(topic.name, each.partition_index)
                        found[place] = [
                            _open(place, row)
                            for row in each.active_producers
                            if row.current_txn_start_offset >= 0
                        ]
    return found


def still_open(
    wire: Wire, image: ClusterImage, found: Sequence[Open]
) -> tuple[list[Open], set[TopicPartition]]:
    """Those that are open yet, and where nobody tells. What was open before and after the coordinators were asked was so
    meanwhile.

    1. a partition says that a transaction is open   2. it is committed, and its marker written   3. its coordinator
    says that it has nothing open there. That is not one that hangs, and a marker might hit the next one.
    """
    places = dict.fromkeys(each.place for each in found)
    now = read_open(wire, image, list(places))
    open_now = {
        (each.place, each.producer_id, each.producer_epoch, each.first_offset)
        for there in now.values()
        for each in there
    }
    still = [
        each
        for each in found
        if (each.place, each.producer_id, each.producer_epoch, each.first_offset) in open_now
    ]
    return still, places.keys() - now.keys()


def _open(place: TopicPartition, row: Any) -> Open:
    return Open(
        place=place,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        coordinator_epoch=row.coordinator_epoch,
        first_offset=row.current_txn_start_offset,
        last_write_ms=row.last_timestamp,
    )


def read_stable(
    wire: Wire, image: ClusterImage, places: Sequence[TopicPartition]
) -> dict[TopicPartition, Stable]:
    found: dict[TopicPartition, Stable] = {}
    for endpoint, there in _by_leader(image, places):
        ends = []
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            try:
                reply = wire.ask_node(
                    endpoint,
                    ApiKey.list_offsets,
                    replica_id=-1,
                    isolation_level=isolation,
                    topics=[
                        {
                            "name": name,
                            "partitions": [
                                {"partition_index": index, "timestamp": LATEST} for index in indexes
                            ],
                        }
                        for name, indexes in _topics(there).items()
                    ],
                )
            except Trouble:
                break
            ends.append(
                {
                    TopicPartition(topic.name, each.partition_index): each.offset
                    for topic in reply.topics
                    for each in topic.partitions
                    if each.error_code is ErrorCode.none
                }
            )
        if len(ends) == 2:
            found |= {
                place: Stable(
                    last_stable_offset=ends[0][place],
                    high_watermark=max(ends[0][place], ends[1][place]),
                )
                for place in ends[0]
                if place in ends[1]
            }
    return found


def with_since(wire: Wire, image: ClusterImage, first: Open) -> Open:
    """With the time of its first record, read from the log itself. Unknown where it can't be read."""
    for endpoint, _ in _by_leader(image, [first.place]):
        topic = image.topics[first.place.topic]
        part = {
            "partition": first.place.partition,
            "fetch_offset": first.first_offset,
            "partition_max_bytes": 1,
        }
        try:
            reply = wire.ask_node(
                endpoint,
                ApiKey.fetch,
                max_wait=0,
                min_bytes=0,
                max_bytes=1,
                session_epoch=-1,
                isolation_level=READ_UNCOMMITTED,
                topics=[{"topic_id": topic.topic_id, "partitions": [part]}],
            )
        except Trouble:
            continue
        for answered in reply.responses:
            records = answered.partitions[0].records
            if records is not None and len(records) >= HEADER_SIZE:
                header = parse_header(memoryview(bytes(records)))
                if header.producer_id == first.producer_id:
                    return replace(first, since_ms=header.base_timestamp)
    return first


def choose_places(
    image: ClusterImage, topics: Sequence[str], partition: int | None, node: int | None
) -> list[TopicPartition]:
    """The partitions of these topics, or of all; or one of one; or those with a replica on a node."""
    names = topics or sorted(image.topics)
    places = [
        TopicPartition(name, each.partition)
        for name in names
        for each in image.topics[name].partitions
    ]
    if partition is not None:
        places = [each for each in places if each.partition == partition]
        if not places:
            raise Failed(
                f"{names[0]} has no partition {partition}; it has 0 to {len(image.topics[names[0]].partitions) - 1}"
            )
    if node is not None:
        if node not in image.brokers:
            known = ", ".join(map(str, sorted(image.brokers)))
            raise Failed(f"there is no node {node}; there are {known}")
        places = [each for each in places if node in _replicas(image, each)]
    return places


def _replicas(image: ClusterImage, place: TopicPartition) -> tuple[BrokerId, ...]:
    state = image.partition(*place)
    return () if state is None else state.replicas
