"""What all transactional workloads of a run share: the history, and numbers that rise in it."""

from collections.abc import Sequence

from ..checkers.txn_history import Sent, Txn, Txns
from .txn_answers import Partition
from .txn_client import TransactionalProducer
from .txn_keys import key_of, payload


class Book:
    """`open` a transaction before it begins, `close` it when all is known of it that ever will be."""

    def __init__(self) -> None:
        self.history: Txns = []
        self._number = 0
        self._value = 0

    def open(self, process: str) -> Txn:
        self._number += 1
        return Txn("txn", "fail", process, self._number, why="not ended")

    def close(self, op: Txn) -> None:
        """Histories are in the order of ends."""
        self.history.append(op)

    async def send(
        self,
        producer: TransactionalProducer,
        op: Txn,
        place: Partition,
        extras: Sequence[int] = (0,),
    ) -> None:
        """One batch of values; they are in `op` before anybody has heard of them."""
        first = len(op.sends)
        for extra in extras:
            self._value += 1
            op.sends.append(Sent(key_of(*place), self._value, None, extra))
        mine = op.sends[first:]
        payloads = [payload(op.number, sent.value, sent.extra) for sent in mine]
        offset = await producer.send(*place, payloads)
        if offset is not None:
            # Others may have been added meanwhile, but only behind.
            op.sends[first : first + len(mine)] = [
                sent._replace(offset=offset + at) for at, sent in enumerate(mine)
            ]
