"""By which connections positions have come, of each producer and of each member, at the coordinator of their group; and members' wishes
to be let in, and what they say they hold.

INVARIANT  positions that come by a connection which who sends them has given up for a newer one, where he has stored others since,
           are not taken at once: who comes again by it is alive, and has two.
PREVENTS   up to EndTxn 4, where one epoch has many transactions: positions of the last transaction, late on a connection that was
           given up, that are taken for the next one's, and set the group back behind what that one commits; and a member's commit
           that is read late, behind one that was acknowledged, which would do the same. And a join that is read late: it says that its
           member holds nothing, so that what that one reads is another's at once, or fences the static member that came after it.
PROVED BY  tests/node/test_late_positions.py::test_positions_of_the_last_transaction_do_not_count_for_the_next_one
           tests/node/test_late_positions.py::test_nor_do_those_that_waited_for_a_word_meanwhile
           tests/node/test_late_commits.py::test_a_late_commit_by_a_connection_that_was_given_up_does_not_set_the_group_back
           tests/node/test_late_joins.py::test_a_late_join_does_not_give_up_what_its_member_has_been_given_since

`txn/transactions/turn.py` does so for what a transaction's coordinator is asked. Kafka does neither.
"""

from collections.abc import Hashable
from typing import Final

from fencepost.txn.runtime.connections import Connections, heard_over

COMMITS_ALIVE_AFTER_S: Final = 5.0  # members commit without waiting for answers
REMEMBERED_MAX: Final = 10_000  # whoever was heard longest ago goes first


class HeardOver:
    """`alive_after_s`: how long after it was refused who comes again by an older connection is believed to be alive. At once where
    nobody asks for more before he is answered; of what is sent one behind the other more may lie in a connection that was given up."""

    def __init__(self, *, alive_after_s: float = 0.0) -> None:
        self._alive_after_s = alive_after_s
        # Of each, and when he was last refused. By the hash: with the names that a stranger may have, it was 1.6 GB.
        self._last: dict[int, tuple[Connections, float]] = {}

    def is_late(self, who: Hashable, connection: int, *, now: float = 0.0) -> bool:
        key = hash(who)
        before, since = self._last.pop(key, (None, now))
        is_late = self._is_late(before, connection, now - since)
        if before is not None and before.has_given_up(connection):
            since = now
        self._last[key] = heard_over(before, connection), since
        if len(self._last) > REMEMBERED_MAX:
            del self._last[next(iter(self._last))]
        return is_late

    def _is_late(self, before: Connections | None, connection: int, refused_s: float) -> bool:
        if before is None or connection >= before.newest:
            return False
        return before.has_given_up(connection) or refused_s < self._alive_after_s

    def is_given_up(self, who: Hashable, connection: int) -> bool:
        """Whether he came by a newer one since; to be asked after a wait, in which that may have stored and ended anything."""
        known = self._last.get(hash(who))
        return known is not None and known[0].has_given_up(connection)
