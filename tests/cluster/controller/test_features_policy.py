from controller_scene import LEVELS, Scene
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.commands import FeatureUpdate, UpdateFeatures
from fencepost.cluster.controller.features_policy import UpgradeType

UP, DOWN = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE


def code(scene: Scene, *updates: tuple[str, int, int], validate_only: bool = False) -> ErrorCode:
    asked = tuple(
        FeatureUpdate(name=n, level=level, upgrade_type=kind) for n, level, kind in updates
    )
    return scene.when(UpdateFeatures(updates=asked, validate_only=validate_only)).error_code


def test_a_level_is_taken_only_when_every_node_has_it() -> None:
    """An older node would not know what to make of what the others write."""
    scene = Scene(brokers=1)
    scene.register(1, features={**LEVELS, "new.feature": (0, 2)})
    assert code(scene, ("new.feature", 1, UP)) is ErrorCode.none
    scene.register(2, features={**LEVELS, "new.feature": (0, 1)})
    refused = scene.when(
        UpdateFeatures(updates=(FeatureUpdate(name="new.feature", level=2, upgrade_type=UP),))
    )
    assert refused.error_code is ErrorCode.invalid_update_version
    assert refused.error_message.endswith("Broker 2 only supports versions 0-1")
    scene.register(2, features={**LEVELS, "new.feature": (0, 2)})
    assert code(scene, ("new.feature", 2, UP)) is ErrorCode.none
    assert scene.image.features["new.feature"] == 2
    assert code(scene, ("new.feature", 1, DOWN)) is ErrorCode.none


def test_a_level_is_not_raised_while_nobody_knows_what_a_voter_has() -> None:
    """It may be of an older build: it votes before it has registered, and may be refused when it does."""
    scene = Scene(brokers=0)
    for broker_id in (1, 2):
        scene.register(broker_id, features={**LEVELS, "new.feature": (0, 2)})
    scene.quorum.voters = frozenset({1, 2})
    assert code(scene, ("new.feature", 1, UP)) is ErrorCode.none
    scene.quorum.voters = frozenset({1, 2, 3})
    refused = scene.when(
        UpdateFeatures(updates=(FeatureUpdate(name="new.feature", level=2, upgrade_type=UP),))
    )
    assert refused.error_code is ErrorCode.invalid_update_version
    assert refused.error_message.endswith(
        "Voter 3 is not registered, and nobody knows which versions it supports. Start it, or have it vote no"
        " more: `fencepost node voters remove 3`."
    )
    assert scene.image.features["new.feature"] == 1
    assert code(scene, ("new.feature", 1, UP)) is ErrorCode.none, "it is there already"
    assert code(scene, ("new.feature", 0, DOWN)) is ErrorCode.none
    scene.register(3, features={**LEVELS, "new.feature": (0, 1)})
    assert code(scene, ("new.feature", 2, UP)) is ErrorCode.invalid_update_version
    assert code(scene, ("new.feature", 1, UP)) is ErrorCode.none


def test_one_bad_update_leaves_the_others_undone() -> None:
    scene = Scene(brokers=0)
    scene.register(1, features={**LEVELS, "one": (0, 1)})
    assert code(scene, ("one", 1, UP), ("two", 1, UP)) is ErrorCode.invalid_update_version
    assert "one" not in scene.image.features
    assert code(scene, ("one", 1, UP), validate_only=True) is ErrorCode.none
    assert "one" not in scene.image.features


def test_of_two_updates_of_one_feature_the_later_one_counts() -> None:
    scene = Scene(brokers=0)
    scene.register(1, features={**LEVELS, "one": (0, 3)})
    assert code(scene, ("one", 1, UP), ("one", 3, UP)) is ErrorCode.none
    assert scene.image.features["one"] == 3


def test_a_feature_that_is_taken_away_is_gone() -> None:
    scene = Scene(brokers=0)
    scene.register(1, features={**LEVELS, "one": (0, 1)})
    code(scene, ("one", 1, UP))
    assert code(scene, ("one", 0, UP)) is ErrorCode.invalid_update_version
    assert code(scene, ("one", 0, DOWN)) is ErrorCode.none
    assert "one" not in scene.image.features
