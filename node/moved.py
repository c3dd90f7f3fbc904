"""Telling a client that asked the wrong node which one is right, in the reply that refuses it (KIP-951)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId

from .services import HandlerContext

MOVED: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})


def name_new_leaders(
    ctx: HandlerContext,
    reply: dict[str, Any],
    by_topic: Iterable[tuple[Mapping[str, Any], list[dict[str, Any]]]],
    *,
    index: str,
) -> None:
    """Adds `current_leader` to the refused partitions of `by_topic` and `node_endpoints` to `reply`."""
    leaders: set[BrokerId] = set()
    for topic, answers in by_topic:
        for answer in answers:
            if answer["error_code"] in MOVED:
                state = ctx.services.partition_state(topic, answer[index])
                # Who is told to try again here is named nobody: clients take a leader that is named for one that has moved, and
                # don't wait before they ask it.
                here = state is not None and state.leader == ctx.services.config.node_id
                if here and answer["error_code"] is ErrorCode.not_leader_or_follower:
                    continue
                if state is not None:
                    answer["current_leader"] = {
                        "leader_id": state.leader,
                        "leader_epoch": state.leader_epoch,
                    }
                    leaders.add(state.leader)
    if leaders:
        endpoints = ctx.services.node_endpoints(sorted(leaders), ctx.origin.listener)
        reply["node_endpoints"] = endpoints
