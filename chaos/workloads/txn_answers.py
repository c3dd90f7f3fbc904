"""What brokers answer to transactional clients, and what that means to them."""

from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode

from .coordinator_client import BUSY, MOVED

Partition = tuple[str, int]

FENCED: Final = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        # Its id was given up: only a new InitProducerId helps.
        ErrorCode.invalid_producer_id_mapping,
    }
)
ABORTABLE: Final = frozenset(
    {
        ErrorCode.transaction_abortable,
        ErrorCode.invalid_txn_state,
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.unknown_producer_id,
    }
)
WRITE_AGAIN: Final = (
    BUSY | MOVED | {ErrorCode.not_enough_replicas_after_append, ErrorCode.corrupt_message}
)


class Abortable(Exception):
    """This transaction can only be aborted; the producer goes on."""


class Fenced(Exception):
    """This producer is at its end: somebody else has its id, or its transaction was ended for it."""


class BrokenPromise(AssertionError):
    """The cluster said what it must never say."""


def asks_again(who: str, what: str, error: ErrorCode, again: frozenset[ErrorCode]) -> None:
    """BrokenPromise where `error` is none of those that another try may mend: whoever asks on would never hear of it."""
    if error not in again:
        raise BrokenPromise(f"{who}: {what}: {error.name}")


def error_of(reply: Any) -> ErrorCode:
    """The first error of any of the replies that coordinators give."""
    code: ErrorCode = getattr(reply, "error_code", ErrorCode.none)
    if code is not ErrorCode.none:
        return code
    for topic in getattr(reply, "results_by_topic_v3_and_below", ()):
        for each in topic.results_by_partition:
            if each.partition_error_code is not ErrorCode.none:
                return ErrorCode(each.partition_error_code)
    for topic in getattr(reply, "topics", ()):
        for each in topic.partitions:
            if each.error_code is not ErrorCode.none:
                return ErrorCode(each.error_code)
    return ErrorCode.none
