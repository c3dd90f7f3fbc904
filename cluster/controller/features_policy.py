"""What becomes of requests to change the levels of features: all of them or none, in Kafka's words (KIP-584)."""

import enum
from collections.abc import Mapping
from typing import Final

from ..base.errors import ErrorCode
from ..metadata import levels
from ..metadata.image import ClusterImage
from ..metadata.records import FeatureChanged
from .commands import FeatureUpdate, ItemResult, UpdateFeatures
from .decision import CommandRefused, Decision, Scene

_FAILED: Final = (
    "The update failed for all features since the following feature had an error: Invalid update"
    " version {level} for feature {name}. {why}"
)


class UpgradeType(enum.IntEnum):
    """Kafka's FeatureUpdate.UpgradeType."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def decide_update_features(scene: Scene, command: UpdateFeatures) -> Decision[ItemResult]:
    records: list[FeatureChanged] = []
    # Of two updates of one feature the later one counts, as in Kafka.
    for update in {each.name: each for each in command.updates}.values():
        now = levels_now(scene.image).get(update.name, 0)
        try:
            _check(scene, update, now)
        except CommandRefused as refused:
            why = _FAILED.format(level=update.level, name=update.name, why=refused.message)
            return _answer(ItemResult(error_code=refused.error_code, error_message=why))
        if update.level != now:
            records.append(FeatureChanged(name=update.name, level=update.level, expects_level=now))
    kept = [] if command.validate_only else records
    return Decision(records=list(kept), reply=lambda _version: ItemResult())


def levels_now(image: ClusterImage) -> dict[str, int]:
    """Of all features; how the metadata is written is not set by anybody."""
    return {**image.features, levels.NAME: levels.level_of(image)}


def _answer(result: ItemResult) -> Decision[ItemResult]:
    return Decision(reply=lambda _version: result)


def _check(scene: Scene, update: FeatureUpdate, now: int) -> None:
    why = None
    if update.upgrade_type not in set(UpgradeType):
        why = "The controller does not support the given upgrade type."
    elif update.level < 0:
        why = "A feature version cannot be less than 0."
    else:
        why = _why_not_supported(scene, update)
        if why is None and update.name == levels.NAME and update.level < now:
            why = "It can't be lowered: what is written at its level would be unreadable."
        if why is None and update.level > now:
            why = _who_is_unknown(scene)
        if why is None and update.level < now and update.upgrade_type == UpgradeType.UPGRADE:
            why = "Can't downgrade the version of this feature without setting the upgrade type to"
            why += " either safe or unsafe downgrade."
        if why is None and update.level > now and update.upgrade_type != UpgradeType.UPGRADE:
            why = "Can't downgrade to a newer version."
    if why is not None:
        raise CommandRefused(ErrorCode.invalid_update_version, why)


def _why_not_supported(scene: Scene, update: FeatureUpdate) -> str | None:
    """This node first, then all that are registered: the level must be one that each of them has."""
    mine = scene.image.brokers.get(scene.node_id)
    why = _why_not_at(
        f"Local controller {scene.node_id}", {} if mine is None else mine.features, update
    )
    for broker_id in sorted(scene.image.brokers):
        if why is None:
            features = scene.image.brokers[broker_id].features
            why = _why_not_at(f"Broker {broker_id}", features, update)
    return why


def _who_is_unknown(scene: Scene) -> str | None:
    """A voter tells what it has when it registers, and some vote before: of the first set, which nobody adds one by one."""
    unknown = sorted(set(scene.voters) - scene.image.brokers.keys())
    if not unknown:
        return None
    return (
        f"Voter {unknown[0]} is not registered, and nobody knows which versions it supports. Start it, or have it vote no"
        f" more: `fencepost node voters remove {unknown[0]}`."
    )


def _why_not_at(
    who: str, features: Mapping[str, tuple[int, int]], update: FeatureUpdate
) -> str | None:
    known = features.get(update.name)
    if known is None:
        if update.level == 0:
            return f"Feature {update.name} not found."
        return f"{who} does not support this feature."
    low, high = known
    if low <= update.level <= high:
        return None
    return f"{who} only supports versions {low}-{high}"


def why_not_here(
    finalized: Mapping[str, int], features: Mapping[str, tuple[int, int]]
) -> str | None:
    """Why a broker with these levels can't be one of a cluster with those; None when it can."""
    for name in sorted(finalized):
        level = finalized[name]
        low, high = features.get(name, (0, 0))
        if not low <= level <= high:
            return (
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive."
            )
    return None
