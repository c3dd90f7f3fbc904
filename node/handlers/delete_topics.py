"""DeleteTopics, api key 20, versions 1-6.

Does      has the controller delete topics, by name or by id.
Versions  5 error messages; 6 topic ids.
Refuses   TOPIC_DELETION_DISABLED, and what the controller says, topic by topic.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.commands import DeleteTopics, TopicRef

from ..controller_calls import ask_controller, trouble_code
from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    if ctx.api_version >= 6:
        topics = tuple(TopicRef(name=t.name, topic_id=t.topic_id) for t in request.topics)
    else:
        topics = tuple(TopicRef(name=name) for name in request.topic_names)
    if not ctx.services.config.flag("delete.topic.enable"):
        error: dict[str, Any] = {
            "error_code": ErrorCode.topic_deletion_disabled,
            "error_message": None,
        }
        return {"responses": [_named(topic, error) for topic in topics]}
    command = DeleteTopics(topics=topics)
    results, trouble = await ask_controller(ctx.services, command, request.timeout)
    if results is None:
        error = {"error_code": trouble_code(trouble), "error_message": str(trouble)}
        return {"responses": [_named(topic, error) for topic in topics]}
    return {
        "responses": [
            {
                "name": result.name,
                "topic_id": result.topic_id,
                "error_code": result.error_code,
                "error_message": result.error_message,
            }
            for result in results
        ]
    }


def _named(topic: TopicRef, error: dict[str, Any]) -> dict[str, Any]:
    return {"name": topic.name, "topic_id": topic.topic_id, **error}
