"""What can be set about consumer groups (KIP-848): Kafka 4.3's names and bounds; the defaults are the broker table's.

A broker's own settings stand in `ConsumerConfig`. A group may override some of them (ConfigType.GROUP; table and
checks in `cluster/metadata/group_config.py`): `for_group` is what is in force. What was set and is no longer
within the broker's bounds is not forgotten, it is held to the nearest bound (Kafka's GroupConfig.evaluate).
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.broker_config import BrokerValues
from fencepost.cluster.metadata.group_config import GROUP_CONFIGS
from fencepost.cluster.metadata.image import ClusterImage, ConfigType

from .config import number

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
KNOWN_ASSIGNORS: Final = ("uniform", "range")


class MigrationPolicy(enum.Enum):
    """Which way a group with members may change its protocol."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"  # from classic to consumer
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Names are Kafka's with dots as underscores (GroupCoordinatorConfig)."""

    group_consumer_session_timeout_ms: int = number("group.consumer.session.timeout.ms")
    group_consumer_min_session_timeout_ms: int = number("group.consumer.min.session.timeout.ms")
    group_consumer_max_session_timeout_ms: int = number("group.consumer.max.session.timeout.ms")
    group_consumer_heartbeat_interval_ms: int = number("group.consumer.heartbeat.interval.ms")
    group_consumer_min_heartbeat_interval_ms: int = number(
        "group.consumer.min.heartbeat.interval.ms"
    )
    group_consumer_max_heartbeat_interval_ms: int = number(
        "group.consumer.max.heartbeat.interval.ms"
    )
    group_consumer_assignment_interval_ms: int = number("group.consumer.assignment.interval.ms")
    group_consumer_min_assignment_interval_ms: int = number(
        "group.consumer.min.assignment.interval.ms"
    )
    group_consumer_max_assignment_interval_ms: int = number(
        "group.consumer.max.assignment.interval.ms"
    )
    group_consumer_max_size: int = number("group.consumer.max.size")
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_consumer_regex_refresh_interval_ms: int = 600_000  # internal in Kafka: not to be set

    def check(self) -> None:
        """ConfigRefused with Kafka's sentence for settings that contradict each other."""
        for name in ("session_timeout", "heartbeat_interval", "assignment_interval"):
            least, most = self._of(f"min_{name}"), self._of(f"max_{name}")
            value, dotted = self._of(name), f"{name.replace('_', '.')}.ms"
            if most < least:
                raise _not(
                    f"group.consumer.max.{dotted}", "greater", f"group.consumer.min.{dotted}"
                )
            if value < least:
                raise _not(f"group.consumer.{dotted}", "greater", f"group.consumer.min.{dotted}")
            if value > most:
                raise _not(f"group.consumer.{dotted}", "less", f"group.consumer.max.{dotted}")
        if not self.group_consumer_assignors:
            raise ConfigRefused("group.consumer.assignors must name at least one assignor")
        for assignor in self.group_consumer_assignors:
            if assignor not in KNOWN_ASSIGNORS:
                allowed = ", ".join(KNOWN_ASSIGNORS)
                raise ConfigRefused(
                    f"Invalid value {assignor} for configuration group.consumer.assignors: "
                    f"there are {allowed}"
                )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigRefused(
                "group.consumer.heartbeat.interval.ms must be less than "
                "group.consumer.session.timeout.ms"
            )

    def _of(self, name: str) -> int:
        value = getattr(self, f"group_consumer_{name}_ms")
        assert isinstance(value, int)
        return value

    def for_group(self, overrides: Mapping[str, str]) -> "GroupTimes":
        """What is in force for a group with these configs of its own."""

        def value(name: str, key: str) -> int:
            text = overrides.get(name)
            if text is None:
                return self._of(key)
            parsed = GROUP_CONFIGS[name].parse(text)
            assert isinstance(parsed, int), "the table has numbers only"
            return min(max(parsed, self._of(f"min_{key}")), self._of(f"max_{key}"))

        return GroupTimes(
            session_timeout_ms=value(SESSION_TIMEOUT, "session_timeout"),
            heartbeat_interval_ms=value(HEARTBEAT_INTERVAL, "heartbeat_interval"),
            assignment_interval_ms=value(ASSIGNMENT_INTERVAL, "assignment_interval"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """The times in force for one group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def times_set_while_running(
    image: ClusterImage, node_id: BrokerId, group_id: str
) -> Mapping[str, str]:
    """What was set for the group; and the one of the brokers' settings that can be changed while they run, where it was."""
    own = image.config(ConfigType.GROUP, group_id)
    set_by = BrokerValues(image, {}, node_id).set_by(f"group.{ASSIGNMENT_INTERVAL}")
    return {ASSIGNMENT_INTERVAL: set_by[0][1], **own} if set_by else own


def _not(name: str, what: str, other: str) -> ConfigRefused:
    return ConfigRefused(f"{name} must be {what} than or equal to {other}")
