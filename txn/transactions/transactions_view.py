"""Showing transactions: DescribeTransactions, ListTransactions."""

from collections.abc import Mapping

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import Fields
from .commands import DescribeTransactions, ListTransactions
from .transaction import Transaction


def describe_transactions(
    transactions: Mapping[str, Transaction], command: DescribeTransactions
) -> list[Fields]:
    return [_described(transactions.get(each), each) for each in command.transactional_ids]


def _described(transaction: Transaction | None, transactional_id: str) -> Fields:
    if transaction is None:
        return refused(transactional_id, ErrorCode.transactional_id_not_found)
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    return {
        "error_code": ErrorCode.none,
        "transactional_id": transactional_id,
        "transaction_state": transaction.phase.word,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_start_time_ms": transaction.start_timestamp,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": tuple(partitions)}
            for topic, partitions in topics.items()
        ],
    }


def refused(transactional_id: str, error: ErrorCode) -> Fields:
    return {
        "error_code": error,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time_ms": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": (),
    }


def list_transactions(
    transactions: Mapping[str, Transaction], command: ListTransactions, now_ms: int
) -> list[Fields]:
    rows: list[Fields] = []
    for transactional_id, transaction in transactions.items():
        word = transaction.phase.word
        if command.states and word not in command.states:
            continue
        if command.producer_ids and transaction.producer_id not in command.producer_ids:
            continue
        # As Kafka: what has never begun has been open since the beginning of time.
        if command.duration_ms >= 0 and now_ms - transaction.start_timestamp <= command.duration_ms:
            continue
        rows.append(
            {
                "transactional_id": transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": word,
            }
        )
    return rows
