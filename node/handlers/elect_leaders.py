"""ElectLeaders, api key 43, versions 0-2.

Does      makes preferred replicas leaders; or, where a person says so, whoever is alive (unclean).
Versions  1 has the election's type; 2 flexible.
Refuses   ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.commands import ElectionType, ElectLeaders

from ..controller_calls import ask_controller, trouble_code
from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    asked = request.topic_partitions
    partitions = (
        None
        if asked is None
        else tuple((topic.topic, index) for topic in asked for index in topic.partitions)
    )
    kind = int(getattr(request, "election_type", ElectionType.PREFERRED))
    if kind not in set(ElectionType):
        why = f"Unknown election type {kind}"
        return _all_refused(partitions, ErrorCode.invalid_request, why)
    command = ElectLeaders(election=ElectionType(kind), partitions=partitions)
    results, trouble = await ask_controller(ctx.services, command, request.timeout)
    if results is None:
        return _all_refused(partitions, trouble_code(trouble), str(trouble))
    return _reply(
        ErrorCode.none,
        [(each.topic, each.partition, each.error_code, each.error_message) for each in results],
    )


def _all_refused(
    partitions: tuple[tuple[str, int], ...] | None, code: ErrorCode, why: str
) -> dict[str, Any]:
    return _reply(code, [(topic, index, code, why) for topic, index in partitions or ()])


def _reply(
    code: ErrorCode, results: list[tuple[str, int, ErrorCode, str | None]]
) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, index, error_code, message in results:
        topics.setdefault(topic, []).append(
            {"partition_id": index, "error_code": error_code, "error_message": message}
        )
    return {
        "error_code": code,
        "replica_election_results": [
            {"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()
        ],
    }
