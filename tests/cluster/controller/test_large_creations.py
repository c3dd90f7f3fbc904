"""Many topics in one request: what is answered about them takes its share of two nodes' loops."""

import pytest
from controller_scene import Scene
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.command_codec import write_answer
from fencepost.cluster.controller.commands import AutoCreateTopics, CreateTopics, NewTopic
from fencepost.cluster.controller.decision import PARTITIONS_PER_REQUEST_MAX
from fencepost.cluster.controller.topics_policy import TOLD_WITH_SETTINGS_MAX
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.render import render
from fencepost.node.handlers.create_topics import _answer

NAMES = tuple(f"t{number}" for number in range(PARTITIONS_PER_REQUEST_MAX))
TOPICS = tuple(NewTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES)


@pytest.mark.parametrize(
    "command",
    [CreateTopics(topics=TOPICS, validate_only=True), AutoCreateTopics(names=NAMES)],
)
def test_the_answer_about_many_new_topics_is_no_larger_than_a_loop_can_bear(
    command: CreateTopics | AutoCreateTopics,
) -> None:
    """It had 74 MB: 2.4 s to write for the controller, 5 s to read for the node that was asked, whose session is 3 s."""
    results = Scene().when(command)
    assert [each.name for each in results] == list(NAMES)
    assert {each.error_code for each in results} == {ErrorCode.none}
    assert len(write_answer(command, results)) < 4 << 20


def test_the_first_of_many_topics_are_told_with_their_settings_and_of_the_others_it_is_said() -> (
    None
):
    results = Scene().when(CreateTopics(topics=TOPICS, validate_only=True))
    assert all(each.configs for each in results[:TOLD_WITH_SETTINGS_MAX])
    fields = {"topics": [_answer(each) for each in results]}
    for version in range(2, 8):
        told = render(ApiKey.create_topics, version, fields).topics
        assert {each.error_code for each in told} == {ErrorCode.none}
        if version >= 5:
            codes = [each.topic_config_error_code for each in told]
            assert set(codes[:TOLD_WITH_SETTINGS_MAX]) == {ErrorCode.none}
            assert set(codes[TOLD_WITH_SETTINGS_MAX:]) == {ErrorCode.policy_violation}
