"""By which connection each producer's positions came last, at the coordinator of its group.

INVARIANT  positions that come by a connection which their producer has given up for a newer one, where it has stored others since,
           are not taken at once: who comes again by it is alive, and has two.
PREVENTS   up to EndTxn 4, where one epoch has many transactions: positions of the last transaction, late on a connection that was
           given up, that are taken for the next one's, and set the group back behind what that one commits.
PROVED BY  tests/node/test_late_positions.py::test_positions_of_the_last_transaction_do_not_count_for_the_next_one
           tests/node/test_late_positions.py::test_nor_do_those_that_waited_for_a_word_meanwhile

`txn/transactions/turn.py` does so for what a transaction's coordinator is asked. Kafka does neither.
"""

from typing import Final

PRODUCERS_MAX: Final = 10_000  # remembered a node; whoever was heard longest ago goes first


class HeardOver:
    def __init__(self) -> None:
        self._last: dict[tuple[int, int], int] = {}  # producer id and epoch -> a connection

    def is_late(self, producer_id: int, producer_epoch: int, connection: int) -> bool:
        who = producer_id, producer_epoch
        last = self._last.pop(who, connection)
        self._last[who] = connection
        if len(self._last) > PRODUCERS_MAX:
            del self._last[next(iter(self._last))]
        return connection < last

    def is_given_up(self, producer_id: int, producer_epoch: int, connection: int) -> bool:
        """Whether it came by a newer one since; to be asked after a wait, in which that may have stored and ended anything."""
        return connection < self._last.get((producer_id, producer_epoch), connection)
