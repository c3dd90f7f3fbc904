import pytest
from controller_scene import Scene, wish
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.brokers_policy import decide_fence
from fencepost.cluster.controller.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    CreateTopics,
    NewTopic,
    ResourceChange,
)
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import BROKER_DEFAULT, ConfigType

E = ErrorCode
TOPIC, BROKER = ConfigType.TOPIC, ConfigType.BROKER


@pytest.fixture
def scene() -> Scene:
    """Of t-0 only broker 1 is in sync, and 2 is eligible."""
    scene = Scene({"min.insync.replicas": "2"}, brokers=3)
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=((0, (1, 2)),)),)))
    wish(scene, 1)
    assert (scene.partition().isr, scene.partition().elr) == ((1,), (2,))
    return scene


def change(kind: ConfigType, name: str, value: str | None) -> AlterConfigs:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    setting = ConfigChange(name="min.insync.replicas", operation=operation, value=value)
    asked = ResourceChange(resource_type=kind, name=name, changes=(setting,))
    return AlterConfigs(resources=(asked,))


def code(scene: Scene, *asked: AlterConfigs) -> list[E]:
    together = AlterConfigs(resources=tuple(each.resources[0] for each in asked))
    return [each.error_code for each in scene.when(together)]


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, BROKER_DEFAULT)])
def test_nobody_stays_eligible_when_the_isr_is_enough(
    scene: Scene, kind: ConfigType, name: str
) -> None:
    before = scene.partition().partition_epoch
    assert code(scene, change(kind, name, "1")) == [E.none]
    assert scene.partition().elr == ()
    assert scene.partition().partition_epoch == before + 1


def test_both_lowered_at_once_are_one_change(scene: Scene) -> None:
    asked = change(TOPIC, "t", "1"), change(BROKER, BROKER_DEFAULT, "1")
    assert code(scene, *asked) == [E.none, E.none]
    assert scene.partition().elr == ()


def test_a_higher_minimum_leaves_who_is_eligible(scene: Scene) -> None:
    assert code(scene, change(TOPIC, "t", "3")) == [E.none]
    assert scene.partition().elr == (2,)
    # Three of two replicas can't be asked for: two were asked for all the time.
    assert code(scene, change(TOPIC, "t", None)) == [E.none]
    assert scene.partition().elr == (2,)


def test_a_topic_with_its_own_minimum_does_not_care_for_that_of_all(scene: Scene) -> None:
    code(scene, change(TOPIC, "t", "2"))
    code(scene, change(BROKER, BROKER_DEFAULT, "1"))
    assert scene.partition().elr == (2,)
    code(scene, change(TOPIC, "t", None))
    assert scene.partition().elr == ()


def test_a_decision_made_on_the_old_minimum_is_made_anew(scene: Scene) -> None:
    """1. Broker 2 is found silent: it leaves the ISR of 1 and 2, and would be eligible. 2. The minimum is lowered.
    3. Whichever of the two records comes first in the log, the other one is refused, and broker 2 is not eligible."""
    wish(scene, 1, 2)
    fence = decide_fence(scene.controller._scene(), 2, scene.epoch(2))
    assert fence.records[1].changes[0].elr == (2,)
    code(scene, change(TOPIC, "t", "1"))
    refused = scene.quorum.machine.apply(encode(fence.records))
    assert "partition epoch" in refused.message
    again = decide_fence(scene.controller._scene(), 2, scene.epoch(2))
    scene.quorum.machine.apply(encode(again.records))
    assert (scene.partition().isr, scene.partition().elr) == ((1,), ())


def test_a_new_cluster_has_the_minimum_of_the_node_that_formed_it(scene: Scene) -> None:
    """Another node's file can't make it another one; Kafka does so too."""
    assert scene.image.config(BROKER, BROKER_DEFAULT) == {"min.insync.replicas": "2"}
    assert code(scene, change(BROKER, BROKER_DEFAULT, None)) == [E.invalid_config]
    assert code(scene, change(BROKER, "1", "1")) == [E.invalid_config]
