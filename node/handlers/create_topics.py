"""CreateTopics, api key 19, versions 2-7.

Does      has the controller create topics; answers when they are in the metadata log and known here. Of many at once
          the first 200 are told with their settings; the others say POLICY_VIOLATION for these alone.
Versions  5 tells what was created; 7 topic ids.
Refuses   what the controller says, topic by topic; REQUEST_TIMED_OUT when the quorum did not answer.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.commands import CreateTopics, NewTopic, TopicResult
from fencepost.cluster.metadata.describe import DescribedConfig

from ..controller_calls import ask_controller, trouble_code
from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    command = CreateTopics(
        topics=tuple(_new_topic(topic) for topic in request.topics),
        validate_only=request.validate_only,
    )
    results, trouble = await ask_controller(ctx.services, command, request.timeout)
    if results is None:
        error = {"error_code": trouble_code(trouble), "error_message": str(trouble)}
        return {"topics": [{"name": topic.name, **error} for topic in request.topics]}
    return {"topics": [_answer(result) for result in results]}


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            (each.partition_index, tuple(each.broker_ids)) for each in topic.assignments
        ),
        configs=tuple((each.name, each.value) for each in topic.configs),
    )


def _answer(result: TopicResult) -> dict[str, Any]:
    untold = result.error_code is ErrorCode.none and not result.configs  # of so many not all are
    return {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": result.error_code,
        "error_message": result.error_message,
        "num_partitions": result.num_partitions,
        "replication_factor": result.replication_factor,
        "configs": [_config(each) for each in result.configs],
        "topic_config_error_code": ErrorCode.policy_violation if untold else ErrorCode.none,
    }


def _config(config: DescribedConfig) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "read_only": config.read_only,
        "config_source": config.source,
        "is_sensitive": config.sensitive,
    }
