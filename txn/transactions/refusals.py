"""Which answers end a producer, so that only who coordinates it for certain may give them.

INVARIANT  a producer is told that it is fenced, or that its transaction is not what it thinks, only by a node that was its
           coordinator, without a break, from before it decided so until after the cluster was asked.
PREVENTS   a coordinator that was deposed, and has not heard so, refusing from memory what its successor has in its log: the
           partitions of a transaction were added there, and the client, which asks here, may not commit it.
PROVED BY  tests/txn/test_transaction_service.py::test_a_coordinator_that_was_deposed_ends_no_producer
           tests/sim/test_cluster_coordinators.py::test_a_coordinator_that_slept_refuses_no_commit_of_a_transaction_it_knows_nothing_of
"""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode

FINAL: Final = frozenset(
    {
        ErrorCode.invalid_txn_state,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
    }
)


def is_final(reply: Any) -> bool:
    """`reply` is an answer, or one for each partition."""
    words = reply.values() if isinstance(reply, Mapping) else (reply,)
    return any(isinstance(each, ErrorCode) and each in FINAL for each in words)
