"""From this node's settings to what the coordinators work by: their fields are Kafka's names with underscores."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from fencepost.cluster.metadata.broker_config import BROKER_CONFIGS
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.consumer_config import ConsumerConfig, MigrationPolicy
from fencepost.txn.transactions.added_config import AddedConfig
from fencepost.txn.transactions.additions import Addition
from fencepost.txn.transactions.check_back_machine import CheckBackMachine
from fencepost.txn.transactions.config import TransactionConfig
from fencepost.txn.transactions.group_commit_machine import GroupCommitMachine
from fencepost.txn.transactions.ids import transactional_partition_key
from fencepost.txn.transactions.transactions_machine import TransactionsMachine

from .config import NodeConfig


def group_config(config: NodeConfig) -> GroupConfig:
    return GroupConfig(**_values(config, GroupConfig))


def consumer_config(config: NodeConfig) -> ConsumerConfig:
    """ConfigRefused for settings that contradict each other."""
    made = ConsumerConfig(**_values(config, ConsumerConfig))
    made.check()
    return made


def transaction_config(config: NodeConfig) -> TransactionConfig:
    return TransactionConfig(**_values(config, TransactionConfig))


def additions(
    config: NodeConfig,
) -> tuple[Callable[[TransactionsMachine], Addition], ...]:
    """What the machine of transactions has beside Kafka's: groups, and checks of half messages."""
    added = AddedConfig(**_values(config, AddedConfig))
    return (
        lambda machine: GroupCommitMachine(added, machine),
        lambda machine: CheckBackMachine(added, machine, transactional_partition_key),
    )


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
