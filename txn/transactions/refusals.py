"""Which answers rest on memory alone, so that only who coordinates for certain may give them: those that end a producer,
and those that say that all is done already.

INVARIANT  a producer is told that it is fenced, that its transaction is not what it thinks, or (up to EndTxn 4, where one epoch
           has many transactions) that it has ended or begun before, only by a node that was its coordinator, without a
           break, from before it decided so until after the cluster was asked.
PREVENTS   a coordinator that was deposed, and has not heard so, refusing from memory what its successor has in its log: the
           partitions of a transaction were added there, and the client, which asks here, may not commit it. Or, worse, it
           takes that commit for the last one's, sent again: the client hears that it is committed, and it never will be.
PROVED BY  tests/txn/test_transaction_service.py::test_a_coordinator_that_was_deposed_ends_no_producer,
           tests/txn/test_transaction_service.py::test_a_coordinator_that_was_deposed_takes_no_commit_for_the_last_one_s,
           tests/sim/test_cluster_coordinators.py::test_a_coordinator_that_slept_refuses_no_commit_of_a_transaction_it_knows_nothing_of,
           tests/txn/test_transaction_service.py::test_only_what_ends_a_producer_is_confirmed_first
"""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode

from .commands import ADDED_BEFORE, EndedBefore

FINAL: Final = frozenset(
    {
        ErrorCode.invalid_txn_state,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
    }
)


def is_from_memory(reply: Any) -> bool:
    """`reply` is an answer, or one for each partition."""
    if reply == ADDED_BEFORE or isinstance(reply, EndedBefore):
        return True
    words = reply.values() if isinstance(reply, Mapping) else (reply,)
    return any(isinstance(each, ErrorCode) and each in FINAL for each in words)
