"""Nodes of an older build among newer ones: they know fewer features, or not the newest commands, or not the newest versions of them.

A build is a property of a node's start (`ClusterNodes.builds`). What it lacks is hidden from that node alone: the tables
of the product are looked up by whose code is running.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fencepost.cluster.controller import brokers_policy, command_codec
from fencepost.cluster.controller.commands import (
    AlterReassignments,
    CreatePartitions,
    FeatureUpdate,
    UpdateFeatures,
)
from fencepost.cluster.controller.features_policy import UpgradeType
from fencepost.cluster.metadata import codec, levels, records
from fencepost.cluster.metadata.image import NO_DISK

from .loop import INCARNATION

if TYPE_CHECKING:
    from fencepost.node.session import BrokerSession

    from .cluster_nodes import ClusterNodes

GROUPS, TRANSACTIONS = "group.version", "transaction.version"
NEWEST: Final = {GROUPS: 1, TRANSACTIONS: 2}
UPGRADE: Final = "upgrade"  # the fault


@dataclass(frozen=True, slots=True)
class Build:
    """What it does not know: feature -> the highest level that it has, numbers of metadata commands, requests to the controller;
    and up to which level it reads what is known of commands and snapshots (`cluster/metadata/levels.py`)."""

    features: tuple[tuple[str, int], ...] = ()
    commands: frozenset[int] = frozenset()
    requests: frozenset[str] = frozenset()
    reads: int = levels.NEWEST


NEW: Final = Build()
# Before KIP-848 and KIP-890: it forms a cluster whose levels can be raised when all nodes are newer. And of before disks had names.
OLD: Final = Build(features=tuple((name, 0) for name in NEWEST), reads=levels.OLDEST)
# As if these had come with the build of today. (The first two may not even register, where a cluster has these levels.)
WITHOUT: Final = (
    Build(features=((TRANSACTIONS, 1),)),
    Build(features=((GROUPS, 0),)),
    Build(commands=frozenset({records.PartitionsCreated.TYPE})),
    Build(commands=frozenset({records.TopicDeleted.TYPE})),
    Build(commands=frozenset({records.ConfigsChanged.TYPE})),
    Build(requests=frozenset({CreatePartitions.__name__})),
    Build(requests=frozenset({AlterReassignments.__name__})),
)


class _Known(dict[Any, Any]):
    """A table in which code of an older build does not find what came later."""

    def __init__(self, table: Mapping[Any, Any], nodes: "ClusterNodes", what: str) -> None:
        super().__init__(table)
        self._nodes = nodes
        self._what = what

    def get(self, key: Any, default: Any = None) -> Any:
        running = INCARNATION.get()
        if running is not None and running.name in self._nodes.running:
            lacks: Collection[Any] = getattr(self._nodes.running[running.name], self._what)
            if key in lacks:
                return default
        return super().get(key, default)


@contextlib.contextmanager
def builds_of(nodes: "ClusterNodes") -> Iterator[None]:
    """What the nodes' builds lack is hidden from them, as long as this lasts."""
    places = ((codec, "COMMANDS", "commands"), (command_codec, "_COMMANDS", "requests"))
    before = [vars(module)[name] for module, name, _ in places]
    newest = levels.reads

    def reads() -> int:
        running = INCARNATION.get()
        build = nodes.running.get(running.name, NEW) if running is not None else NEW
        return build.reads

    for (module, name, what), table in zip(places, before, strict=True):
        setattr(module, name, _Known(table, nodes, what))
    levels.__dict__["reads"] = reads
    try:
        yield
    finally:
        levels.__dict__["reads"] = newest
        for (module, name, _), table in zip(places, before, strict=True):
            setattr(module, name, table)


def tells(build: Build, session: "BrokerSession") -> None:
    """What a node of this build says of itself when it registers."""
    for feature, level in build.features:
        session._features[feature] = (0, level)
    session._features[levels.NAME] = (levels.OLDEST, build.reads)
    if build.reads < levels.DISKS:
        session._disk = lambda: NO_DISK


@contextlib.contextmanager
def old_features() -> Iterator[None]:
    """A cluster that is formed now is one of before KIP-848 and KIP-890."""
    before = brokers_policy.FEATURES
    brokers_policy.__dict__["FEATURES"] = {**before, **dict.fromkeys(NEWEST, 0)}
    try:
        yield
    finally:
        brokers_policy.__dict__["FEATURES"] = before


def to_level(name: str, level: int, now: int) -> UpdateFeatures:
    kind = UpgradeType.UPGRADE if level > now else UpgradeType.SAFE_DOWNGRADE
    return UpdateFeatures(updates=(FeatureUpdate(name=name, level=level, upgrade_type=kind),))
