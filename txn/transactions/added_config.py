"""What can be set of transaction groups and checks: the fields are the settings' names with underscores."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedConfig:
    transaction_check_max: int = 15  # as RocketMQ
    transaction_check_interval_ms: int = 10_000
    transaction_check_interval_max_ms: int = 600_000
    # How long a checker may be silent between two polls and still count as alive.
    transaction_check_session_timeout_ms: int = 45_000
    # How long a check that was offered may take to reach its checker; then it is offered to another.
    transaction_check_delivery_timeout_ms: int = 5_000
    transaction_group_decisions_max: int = 1_000
    transaction_group_expiration_ms: int = 7_776_000_000
    transactional_id_expiration_ms: int = 604_800_000

    def interval_ms(self, checks: int) -> int:
        """The pause after so many delivered checks: each is twice the one before."""
        doubled = self.transaction_check_interval_ms << min(checks, 40)
        return min(doubled, max(self.transaction_check_interval_max_ms, 1))
