"""What can be set about transactions, under Kafka's names with dots as underscores; the table of the broker has the rest."""

from dataclasses import dataclass

from fencepost.cluster.metadata.broker_config import BROKER_CONFIGS


def _number(name: str) -> int:
    default = BROKER_CONFIGS[name].default
    assert isinstance(default, int), f"{name} is no number"
    return default


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    transaction_max_timeout_ms: int = _number("transaction.max.timeout.ms")
    transactional_id_expiration_ms: int = _number("transactional.id.expiration.ms")
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _number(
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    )
    transaction_two_phase_commit_enable: bool = False
    # Not settable in Kafka either. A record that takes longer to commit answers COORDINATOR_NOT_AVAILABLE.
    commit_timeout_ms: int = 5_000
    # How long a request waits for the markers of the transaction before, where Kafka answers CONCURRENT_TRANSACTIONS
    # at once. Well below any client's request timeout.
    wait_ms_max: int = 5_000
