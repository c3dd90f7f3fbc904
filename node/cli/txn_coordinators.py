"""Whose transaction it is, by all coordinators: said only of a transaction log that moved nowhere meanwhile.

INVARIANT  "no coordinator knows it" is said when each part of the log had one leader, which spoke for it, all the while.
PREVENTS   1. node 1 is asked, which has not the id   2. that part of the log moves from node 3 to node 1   3. node 3 is
           asked: nobody knows the id, so it is aborted in one partition, and its producer commits it in the others
PROVED BY  tests/node/test_cli_txn_moves.py::test_a_transaction_that_moves_while_it_is_looked_for_is_not_torn
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import NO_LEADER, TRANSACTION_STATE_TOPIC, BrokerId
from fencepost.cluster.metadata.image import BrokerState, ClusterImage
from fencepost.cluster.wire.api import ApiKey

from ..few import few
from .cluster import Failed
from .leading import of_now
from .txn_reading import AGAIN_S, PAUSE_S, ask_to_describe, list_ids, undescribed
from .txn_sentences import Transaction
from .wire import Wire, described_topics

Leaders = Mapping[int, tuple[BrokerId, int]]  # partition -> node, leader epoch
# What is said of an id by whoever has read the part of the log that it belongs to.
_SPEAKS: Final = (ErrorCode.none, ErrorCode.transactional_id_not_found)


def known_by_producer(
    wire: Wire, image: ClusterImage, producer_ids: Iterable[int]
) -> tuple[dict[int, Transaction], list[str]]:
    """The transactions of these producers, as far as a coordinator knows them; and why there may be more, in sentences."""
    wanted = sorted(set(producer_ids))
    if not wanted:
        return {}, []
    deadline = time.monotonic() + AGAIN_S
    while True:
        try:
            known, silent = _look(wire, image, wanted)
        except Failed as untold:
            known, silent = {}, [str(untold)]
        if not silent or time.monotonic() >= deadline:
            return known, silent
        wire.sleep(PAUSE_S)


def _look(
    wire: Wire, image: ClusterImage, producer_ids: Sequence[int]
) -> tuple[dict[int, Transaction], list[str]]:
    leaders = of_now(wire, lambda: _leaders_of_log(wire))
    nodes, silent = _who_speaks(wire, image, leaders)
    listed, unlisted = list_ids(wire, nodes, producer_id_filters=producer_ids)
    found, why = ask_to_describe(wire, nodes, [name for name, _ in listed])
    # One that is no more has ended since it was listed; or somebody has listed what was not his any more.
    missing = {name: why.get(name, "it is gone") for name, _ in listed if found.get(name) is None}
    silent += unlisted + undescribed(missing)
    silent += _who_speaks(wire, image, leaders)[1]
    if of_now(wire, lambda: _leaders_of_log(wire)) != leaders:
        silent.append("the transaction log has just moved to other nodes")
    known = [each for each in found.values() if each is not None]
    return {each.producer_id: each for each in known}, list(dict.fromkeys(silent))


def _leaders_of_log(wire: Wire) -> Leaders:
    found: dict[int, tuple[BrokerId, int]] = {}
    for topic in described_topics(wire, [TRANSACTION_STATE_TOPIC]):
        if topic.error_code not in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
            why = topic.error_code.name.upper()
            raise Failed(f"nobody tells who leads {TRANSACTION_STATE_TOPIC} ({why})")
        if topic.name == TRANSACTION_STATE_TOPIC:
            found |= {e.partition_index: (e.leader_id, e.leader_epoch) for e in topic.partitions}
    return found


def _who_speaks(
    wire: Wire, image: ClusterImage, leaders: Leaders
) -> tuple[list[BrokerState], list[str]]:
    """Those that lead part of the log and speak for just what they lead; and of the others, why not.

    A list does not tell what its node has not read, or does not know yet to be its own. So each node is asked about an
    id of each part: of its own it knows, or knows that there is none; of others it has to say that they are not its.
    """
    nodes, silent = [], []
    asked = _an_id_of_each(len(leaders))
    for node in sorted({leader for leader, _ in leaders.values()} - {NO_LEADER}):
        broker = image.brokers.get(node)
        if broker is None:
            silent.append(f"node {node}, which coordinates transactions, has just been added")
            continue
        try:
            reply = wire.ask_node(
                broker.endpoints[0], ApiKey.describe_transactions, transactional_ids=sorted(asked)
            )
        except Trouble as trouble:
            silent.append(
                f"node {node}, which coordinates transactions, does not answer ({trouble})"
            )
            continue
        said = {asked[row.transactional_id]: row.error_code for row in reply.transaction_states}
        wrong = [
            f"{TRANSACTION_STATE_TOPIC}-{each}: {said[each].name.upper()}"
            for each in sorted(leaders)
            if (said[each] in _SPEAKS) is not (leaders[each][0] == node)
        ]
        if wrong:
            silent.append(
                f"node {node} does not speak for the transactions that it leads ({few(wrong)})"
            )
        else:
            nodes.append(broker)
    return nodes, silent


def _an_id_of_each(count: int) -> dict[str, int]:
    """Id -> the part of the log that it belongs to, one for each part. Nobody need have begun it."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        name = f"fencepost-cli-{number}"
        found.setdefault(_partition_for(name, count), name)
        number += 1
    return {name: partition for partition, name in found.items()}


def _partition_for(ascii_name: str, count: int) -> int:
    """Kafka's Utils.abs of Java's String.hashCode. (Commands import no coordinators, which have it too.)"""
    value = 0
    for each in ascii_name.encode():
        value = (31 * value + each) & 0xFFFFFFFF
    value = value - (1 << 32) if value & 0x80000000 else value
    return (0 if value == -(1 << 31) else abs(value)) % count
