"""What can be set about groups, under Kafka's names with dots as underscores; the table of the broker has the rest."""

from dataclasses import dataclass

from fencepost.cluster.metadata.broker_config import BROKER_CONFIGS


def number(name: str) -> int:
    """The default of a broker's setting."""
    default = BROKER_CONFIGS[name].default
    assert isinstance(default, int), f"{name} is no number"
    return default


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """From GroupCoordinatorConfig. Those of the new protocol have their own record beside its machine."""

    group_min_session_timeout_ms: int = number("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = number("group.max.session.timeout.ms")
    group_initial_rebalance_delay_ms: int = number("group.initial.rebalance.delay.ms")
    group_max_size: int = number("group.max.size")
    offset_metadata_max_bytes: int = number("offset.metadata.max.bytes")
    offsets_retention_minutes: int = number("offsets.retention.minutes")
    offsets_retention_check_interval_ms: int = number("offsets.retention.check.interval.ms")
    offsets_commit_timeout_ms: int = number("offsets.commit.timeout.ms")
    # Not settable in Kafka either: how long a member may wait for its first answer to JoinGroup.
    new_member_join_timeout_ms: int = 5 * 60 * 1_000

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
