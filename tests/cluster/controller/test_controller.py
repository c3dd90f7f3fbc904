"""The shell around the policies: what it proposes, what it does when others were faster."""

import asyncio
from uuid import UUID

import pytest
from controller_scene import Scene
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.controller import commands, service
from fencepost.cluster.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AutoCreateTopics,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    FormCluster,
    MorePartitions,
    NewTopic,
    ResourceChange,
    TopicRef,
)
from fencepost.cluster.controller.service import DECIDE, NotController
from fencepost.cluster.metadata.codec import BATCH_BYTES_MAX, decode, encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.records import ConfigsChanged, NewPartition, TopicCreated
from fencepost.cluster.metadata.topic_config import TopicConfig
from fencepost.cluster.metadata.topic_names import RESERVED_TOPICS

ONE = CreateTopics(topics=(NewTopic(name="t", num_partitions=1, replication_factor=1),))


def test_an_answer_comes_after_the_record_is_applied() -> None:
    scene = Scene()
    (result,) = scene.when(ONE)
    assert result.error_code is ErrorCode.none
    assert scene.image.topics["t"].topic_id == result.topic_id


def test_every_command_of_the_controller_has_a_policy() -> None:
    defined = {
        name
        for name, each in vars(commands).items()
        if isinstance(each, type) and issubclass(each, commands.ControllerCommand)
    }
    assert defined - {"ControllerCommand"} == {each.__name__ for each in DECIDE}


def test_a_node_that_does_not_lead_decides_nothing() -> None:
    scene = Scene()
    scene.quorum.is_leader, scene.quorum.leader_id = False, 2
    with pytest.raises(NotController, match="The active controller is 2") as refused:
        scene.when(ONE)
    assert (refused.value.outcome, refused.value.leader_id) == (Outcome.REFUSED, 2)
    scene.quorum.leader_id = None
    with pytest.raises(NotController, match="Nobody leads the metadata quorum: a majority of its"):
        scene.when(ONE)


def test_a_decision_that_came_too_late_is_made_again_on_the_new_image() -> None:
    """Two clients create the same topic at once: one of them is told that it exists."""
    scene = Scene()
    theirs = TopicCreated(name="t", topic_id=UUID(int=5), partitions=(NewPartition((1,), (1,), 1),))
    scene.quorum.before_apply = lambda: scene.quorum.machine.apply(encode([theirs]))
    (result,) = scene.when(ONE)
    assert result.error_code is ErrorCode.topic_already_exists
    assert scene.image.topics["t"].topic_id == UUID(int=5)
    assert [event for event, _ in scene.log][-1] == "controller_decides_again"


@pytest.mark.parametrize(
    "name", [" 1", "01", "+1", "1_0", "\N{ARABIC-INDIC DIGIT ONE}", "1" * 5000]
)
def test_settings_of_a_broker_whose_name_is_no_number_are_refused(name: str) -> None:
    """They were answered as done, and kept under a name that is nobody's."""
    scene = Scene()
    change = ConfigChange(name="log.retention.ms", value="1000")
    node = ResourceChange(resource_type=4, name=name, changes=(change,))
    (result,) = scene.when(AlterConfigs(resources=(node,)))
    said = f"Node id must be an integer, but it is: {name}"
    assert (result.error_code, result.error_message) == (ErrorCode.invalid_request, said)


def test_an_append_that_met_another_appends_to_what_the_other_made() -> None:
    scene = Scene()
    scene.when(ONE)

    def append(value: str) -> AlterConfigs:
        change = ConfigChange(name="cleanup.policy", operation=ConfigOperation.APPEND, value=value)
        return AlterConfigs(
            resources=(ResourceChange(resource_type=2, name="t", changes=(change,)),)
        )

    theirs = ConfigsChanged(
        resource_type=ConfigType.TOPIC, name="t", changes={"cleanup.policy": "delete"}
    )
    scene.quorum.before_apply = lambda: scene.quorum.machine.apply(encode([theirs]))
    scene.when(append("compact"))
    assert scene.image.config(ConfigType.TOPIC, "t") == {"cleanup.policy": "delete,compact"}


def test_whoever_is_always_too_late_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ATTEMPTS_MAX", 3)
    scene, number = Scene(), [0]

    def overtake() -> None:
        number[0] += 1
        theirs = ConfigsChanged(
            resource_type=ConfigType.BROKER, name="", changes={"a": str(number[0])}
        )
        scene.quorum.machine.apply(encode([theirs]))
        scene.quorum.before_apply = overtake

    scene.quorum.before_apply = overtake
    change = ConfigChange(name="b", value="1")
    with pytest.raises(Trouble, match="Others were always faster") as trouble:
        scene.when(
            AlterConfigs(resources=(ResourceChange(resource_type=4, name="", changes=(change,)),))
        )
    assert trouble.value.outcome is Outcome.REFUSED


def test_what_needs_no_record_is_answered_without_the_quorum() -> None:
    scene = Scene()
    scene.when(ONE)
    before = len(scene.quorum.proposed)
    scene.when(ONE)
    scene.when(FormCluster())
    scene.when(CreateTopics(topics=(NewTopic(name="u"),), validate_only=True))
    assert len(scene.quorum.proposed) == before


def test_a_topic_of_ten_thousand_partitions_is_one_small_record() -> None:
    scene = Scene()
    topic = NewTopic(name="t", num_partitions=10_000, replication_factor=1)
    (result,) = scene.when(CreateTopics(topics=(topic,)))
    assert (result.error_code, result.num_partitions) == (ErrorCode.none, 10_000)
    assert len(scene.quorum.proposed[-1]) < 200 < BATCH_BYTES_MAX
    assert scene.image.partition_count() == 10_000


def test_more_than_a_batch_may_hold_is_refused_and_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client must not be able to end the controller with a long value."""
    scene = Scene()
    scene.when(ONE)
    value = ",".join(["0:1"] * 3_000_000)
    change = ConfigChange(name="leader.replication.throttled.replicas", value=value)
    resource = ResourceChange(resource_type=2, name="t", changes=(change,))
    (refused,) = scene.when(AlterConfigs(resources=(resource,)))
    assert refused.error_code is ErrorCode.policy_violation
    assert refused.error_message == "Unable to perform excessively large batch operation."
    topic = NewTopic(name="u", configs=((change.name, value),))
    (refused,) = scene.when(CreateTopics(topics=(topic,)))
    assert refused.error_code is ErrorCode.policy_violation
    assert "u" not in scene.image.topics
    # Each of them short enough, all together not.
    monkeypatch.setattr(service, "BATCH_BYTES_MAX", 1000)
    many = tuple(NewTopic(name=f"t{number}") for number in range(100))
    results = scene.when(CreateTopics(topics=many))
    assert {each.error_code for each in results} == {ErrorCode.policy_violation}
    assert list(scene.image.topics) == ["t"]


def test_requests_of_many_clients_do_not_wait_for_each_other() -> None:
    """So that they share one sync of the journal."""
    scene, under_way, most = Scene(), [0], [0]
    apply_at_once = scene.quorum.propose

    async def slow(record: bytes) -> object:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.sleep(0)
        under_way[0] -= 1
        return await apply_at_once(record)

    scene.quorum.propose = slow

    async def ask() -> None:
        names = [f"t{number}" for number in range(20)]
        commands = [CreateTopics(topics=(NewTopic(name=name),)) for name in names]
        await asyncio.gather(*(scene.controller.execute(command) for command in commands))

    asyncio.run(ask())
    assert len(scene.image.topics) == 20
    assert most == [20]


# --- single policies that Kafka's answers do not show ------------------------------------------------


def test_a_new_cluster_gets_an_id_that_it_keeps() -> None:
    scene = Scene()
    assert len(scene.cluster_id) == 22 and not scene.cluster_id.startswith("-")
    assert scene.when(FormCluster(cluster_id="another")) == scene.cluster_id


def test_producer_ids_come_in_blocks_of_a_thousand_each_given_once() -> None:
    scene = Scene()
    ask = AllocateProducerIds(broker_id=1, broker_epoch=scene.epoch())
    blocks = [scene.when(ask) for _ in range(3)]
    assert [(each.first_producer_id, each.count) for each in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]
    scene.register(1)
    stale = scene.when(ask)
    assert stale.error_code is ErrorCode.stale_broker_epoch
    assert "Expected broker epoch" in stale.error_message
    unknown = scene.when(AllocateProducerIds(broker_id=9, broker_epoch=1))
    assert unknown.error_code is ErrorCode.stale_broker_epoch


def test_more_topics_than_one_request_may_make_are_not_made_by_looking_for_them_either() -> None:
    """A Metadata request of 30,000 new names ended the controller, and the next one."""
    scene = Scene({"default.replication.factor": "1"})
    names = tuple(f"{i:05}-{'x' * 240}" for i in range(30_500))
    results = scene.when(AutoCreateTopics(names=names))
    assert {each.error_code for each in results} == {ErrorCode.policy_violation}
    assert not scene.image.topics


@pytest.mark.parametrize("name", sorted(RESERVED_TOPICS))
def test_a_topic_named_by_a_word_of_the_log_is_refused_and_no_controller_ends_of_it(
    name: str,
) -> None:
    """The log refused the batch as one that touches a name twice, which no decision may be: the controller ended, and with a
    topic that is made by looking for it the next one did, by the same request."""
    scene = Scene()
    (made,) = scene.when(CreateTopics(topics=(NewTopic(name=name),)))
    (found,) = scene.when(AutoCreateTopics(names=(name,)))
    for result in (made, found):
        assert result.error_code is ErrorCode.invalid_topic_exception
        assert result.error_message == (
            f"Topic name is invalid: '{name}' is a word of the metadata log itself. Choose another one, such as '{name}s'."
        )
    assert name not in scene.image.topics


def test_internal_topics_take_no_more_partitions() -> None:
    """Which of them a group is kept in goes by their number: positions would be gone at once, with no error."""
    one = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
    }
    scene = Scene(one)
    scene.when(AutoCreateTopics(names=("__consumer_offsets", "t")))
    more = [MorePartitions(name=name, count=60) for name in ("__consumer_offsets", "t")]
    refused, done = scene.when(CreatePartitions(topics=tuple(more)))
    assert refused.error_code is ErrorCode.invalid_topic_exception
    assert "more partitions" in (refused.error_message or "")
    assert done.error_code is ErrorCode.none
    assert len(scene.image.topics["__consumer_offsets"].partitions) == 50


def test_internal_topics_are_made_with_the_settings_of_their_coordinators() -> None:
    node = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
    }
    scene = Scene(node)
    results = scene.when(AutoCreateTopics(names=("__consumer_offsets", "__transaction_state", "t")))
    assert {each.error_code for each in results} == {ErrorCode.none}
    counts = {name: len(topic.partitions) for name, topic in scene.image.topics.items()}
    assert counts == {"__consumer_offsets": 50, "__transaction_state": 50, "t": 1}
    offsets = TopicConfig.resolve(scene.image, "__consumer_offsets", node)
    assert (offsets.cleanup_policy, offsets.segment_bytes) == (("compact",), 104_857_600)
    assert offsets.compression_type == "producer"
    transactions = TopicConfig.resolve(scene.image, "__transaction_state", node)
    assert (transactions.cleanup_policy, transactions.min_insync_replicas) == (("compact",), 2)
    assert transactions.compression_type == "uncompressed"


def test_a_topic_that_others_made_meanwhile_is_made() -> None:
    scene = Scene()
    (first,) = scene.when(AutoCreateTopics(names=("t", "t")))
    (again,) = scene.when(AutoCreateTopics(names=("t",)))
    assert again.topic_id == first.topic_id
    (refused,) = scene.when(AutoCreateTopics(names=("bad name",)))
    assert refused.error_code is ErrorCode.invalid_topic_exception


def test_a_topic_is_deleted_by_its_id_and_its_name_is_told() -> None:
    scene = Scene()
    (made,) = scene.when(ONE)
    by_id = TopicRef(topic_id=made.topic_id)
    both = TopicRef(name="t", topic_id=made.topic_id)
    again, same, gone = scene.when(DeleteTopics(topics=(both, by_id, TopicRef(name="t"))))
    assert again.error_message == "You may not specify both topic name and topic id."
    assert (same.error_code, same.name) == (ErrorCode.none, "t")
    assert gone.error_message == "The provided topic name maps to an ID that was already supplied."
    assert scene.image.topics == {}


def test_topics_can_not_be_deleted_where_that_is_switched_off() -> None:
    scene = Scene({"delete.topic.enable": "false"})
    scene.when(ONE)
    (refused,) = scene.when(DeleteTopics(topics=(TopicRef(name="t"),)))
    assert refused.error_code is ErrorCode.topic_deletion_disabled


def test_a_created_topic_is_shown_with_its_settings_sorted() -> None:
    scene = Scene({"log.retention.hours": "1"})
    topic = NewTopic(name="t", configs=(("flush.ms", "7"),))
    (made,) = scene.when(CreateTopics(topics=(topic,)))
    names = [config.name for config in made.configs]
    assert names == sorted(names)
    shown = {config.name: (config.value, config.source) for config in made.configs}
    assert shown["flush.ms"] == ("7", 1)
    assert shown["retention.ms"][0] == "3600000"


def test_what_is_proposed_can_be_read() -> None:
    scene = Scene()
    scene.when(ONE)
    assert all(decode(entry) for entry in scene.quorum.proposed)
