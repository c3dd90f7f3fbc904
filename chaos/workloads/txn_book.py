"""What all transactional workloads of a run share: the history, and numbers that rise in it."""

from collections.abc import Callable, Sequence
from typing import Final

from ..checkers.txn_history import NO_NUMBER, Sent, Txn, Txns
from .txn_answers import Partition
from .txn_client import TransactionalProducer
from .txn_keys import Written, key_of, payload

NOT_ENDED: Final = "not ended"


class Book:
    """`open` a transaction before it begins, `close` it when all is known of it that ever will be."""

    def __init__(self) -> None:
        self.history: Txns = []
        self._number = 0
        self._value = 0

    def open(self, process: str) -> Txn:
        return Txn("txn", "fail", process, self.next_number(), why=NOT_ENDED)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def next_value(self) -> int:
        self._value += 1
        return self._value

    def begun(self, op: Txn) -> None:
        """What it sends is known, and nobody has heard of it yet: who may be killed writes it down here."""

    def dawdles(self, op: Txn, seconds: float) -> None:
        """From now on, of its client's own accord: nobody else is to blame for that time."""
        op.slept_s += seconds

    def close(self, op: Txn) -> None:
        """Histories are in the order of ends."""
        self.history.append(op)

    def given(
        self, process: str, group: str, places: Sequence[Partition], generation: int = NO_NUMBER
    ) -> None:
        """By its group, in this generation; or they are its id's own. What it was given before is nothing of its any more."""
        op = Txn("join", "ok", process, rebalanced=[key_of(*place) for place in places])
        op.positions = {group: generation}
        self.close(op)

    async def send(
        self,
        producer: TransactionalProducer,
        op: Txn,
        place: Partition,
        extras: Sequence[int] = (0,),
        made: Callable[[int, int, int], bytes | Written] = payload,
    ) -> None:
        """One batch of values; they are in `op` before anybody has heard of them."""
        first = len(op.sends)
        for extra in extras:
            op.sends.append(Sent(key_of(*place), self.next_value(), None, extra))
        mine = op.sends[first:]
        self.begun(op)
        payloads = [made(op.number, sent.value, sent.extra) for sent in mine]
        offset = await producer.send(*place, payloads)
        if offset is None:
            op.untold += [sent.value for sent in mine]
        else:
            # Others may have been added meanwhile, but only behind.
            op.sends[first : first + len(mine)] = [
                sent._replace(offset=offset + at) for at, sent in enumerate(mine)
            ]
