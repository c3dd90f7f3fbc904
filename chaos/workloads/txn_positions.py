"""What groups have committed, asked place by place when all is over: each with the number of its transaction.

INVARIANT  a place at which brokers know of nothing is noted as such, at -1; one of which they did not tell is not noted, and
           is named, with the reason.
PREVENTS   a group's position that is lost as a whole passing for one that nobody had asked for; one place without an answer
           taking what is known of the others with it.
PROVED BY  tests/chaos/test_txn_positions.py::test_a_place_without_a_position_is_noted_and_its_loss_is_found
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, KafkaException

from ..checkers.history import FINAL
from ..checkers.txn_history import NO_NUMBER, Txn
from .txn_keys import key_of
from .txn_process import place_of

COMMITTED_S: Final = 30.0  # a transaction that holds a position open has to time out first
AGAIN_S: Final = 5.0  # for each group behind one that was not told of
PAUSE_S: Final = 0.2
NOTHING: Final = -1  # the position of a place at which nothing was committed

Untold = dict[str, str]  # group|key -> why its position is not known


def all_positions(
    consumer_of: Callable[[str], Consumer], groups: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Txn, Untold]]:
    """Of each group what it has committed, and of which of its places that is not known."""
    patience_s = COMMITTED_S
    for group, keys in groups.items():
        with closing(consumer_of(group)) as consumer:
            op, untold = positions_of(consumer, group, keys, patience_s)
        patience_s = AGAIN_S if untold else patience_s
        yield op, untold


def positions_of(
    consumer: Consumer, group: str, keys: Sequence[str], seconds: float
) -> tuple[Txn, Untold]:
    """Asks again for what has no answer, or an error, until the time is over."""
    op = Txn("position", "ok", FINAL, began_s=time.monotonic())
    deadline = op.began_s + seconds
    untold = dict.fromkeys(keys, "there was no time to ask")
    while untold and (left := deadline - time.monotonic()) > 0:
        try:
            found = consumer.committed([place_of(key) for key in untold], timeout=left)
        except KafkaException as failed:
            found, untold = [], dict.fromkeys(untold, str(failed))
        for there in found:
            key = key_of(there.topic, there.partition)
            if there.error is not None:
                untold[key] = str(there.error)
                continue
            del untold[key]
            place, is_there = f"{group}|{key}", there.offset >= 0
            op.offsets[place] = there.offset if is_there else NOTHING
            op.writers[place] = int(there.metadata or NO_NUMBER) if is_there else NO_NUMBER
        if untold:
            time.sleep(PAUSE_S)
    op.ended_s = time.monotonic()
    return op, {f"{group}|{key}": why for key, why in untold.items()}
