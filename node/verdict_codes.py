"""What a coordinator's word on a transaction means to the leader that asked for it, and to the producer that it is for."""

from typing import Final

from fencepost.cluster.base.errors import ErrorCode

E = ErrorCode
# The coordinator is another by now, or will be in a moment; or it has not heard of a new topic yet.
ASK_AGAIN: Final = frozenset(
    {
        E.coordinator_load_in_progress,
        E.coordinator_not_available,
        E.network_exception,
        E.not_coordinator,
        E.operation_not_attempted,
        E.unknown_topic_or_partition,
    }
)
PASSING: Final = ASK_AGAIN | {E.concurrent_transactions}

# Versions of Produce.
ABORTABLE_SINCE: Final = 11
ADDS_ITSELF_SINCE: Final = 12


def produce_word(code: ErrorCode, *, version: int) -> ErrorCode:
    """As ReplicaManager.handleProduceAppend and AddPartitionsToTxnManager translate it for producers."""
    if code in ASK_AGAIN or (code is E.concurrent_transactions and version < ADDS_ITSELF_SINCE):
        # What old clients, too, just send again, without asking who leads.
        return E.not_enough_replicas
    if code is E.producer_fenced:
        return E.invalid_producer_epoch
    if code is E.transaction_abortable and version < ABORTABLE_SINCE:
        return E.invalid_txn_state
    return code
