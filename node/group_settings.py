"""From this node's settings to what the group coordinator works by: its fields are Kafka's names with underscores."""

from dataclasses import fields
from typing import Any

from fencepost.cluster.metadata.broker_config import BROKER_CONFIGS
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.consumer_config import ConsumerConfig, MigrationPolicy

from .config import NodeConfig


def group_config(config: NodeConfig) -> GroupConfig:
    return GroupConfig(**_values(config, GroupConfig))


def consumer_config(config: NodeConfig) -> ConsumerConfig:
    """ConfigRefused for settings that contradict each other."""
    made = ConsumerConfig(**_values(config, ConsumerConfig))
    made.check()
    return made


def _values(config: NodeConfig, kind: type[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(kind):
        name = field.name.replace("_", ".")
        if name in BROKER_CONFIGS:
            value = config.value(name)
            if isinstance(value, list):
                found[field.name] = tuple(value)
            elif field.name == "group_consumer_migration_policy":
                found[field.name] = MigrationPolicy(str(value).lower())
            else:
                found[field.name] = value
    return found
