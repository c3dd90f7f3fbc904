"""Whether somebody leads the metadata quorum: without that, what a node says of the cluster is only what it last knew.

INVARIANT  a command that shows the cluster says so, and ends with 1, while nobody leads the quorum.
PREVENTS   "Every partition has a leader" from the last node that runs: nobody was there to take the dead off the list.
PROVED BY  tests/node/test_cli_leading.py::test_what_a_node_last_knew_is_not_told_as_what_is
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey

from .cluster import Failed, say

if TYPE_CHECKING:
    from .wire import Wire

METADATA: Final = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
# An election takes less: a leader that was just killed is no lost majority.
LOOK_S, ELECTED_S = 0.2, 3.0
LOOKS_MAX: Final = 3  # at leaders that change meanwhile
# Whoever answers so can't say who leads.
NOBODY: Final = (ErrorCode.not_controller, ErrorCode.request_timed_out)

T = TypeVar("T")


class NotTold(Failed):
    """Whoever is asked does not tell who leads: another kind of cluster, or one that asks who we are."""


def described(wire: "Wire") -> tuple[Any, str]:
    """What the quorum's leader says of it; or None, and why nobody leads, as the node sees it that is asked next."""
    deadline = time.monotonic() + ELECTED_S
    while True:
        reply = wire.ask(ApiKey.describe_quorum, topics=METADATA)
        if reply.error_code is ErrorCode.none:
            return reply.topics[0].partitions[0], ""
        why = reply.error_message or reply.error_code.name
        if reply.error_code not in NOBODY:
            raise NotTold(f"the cluster does not tell who votes: {why}")
        if time.monotonic() >= deadline:
            if reply.error_code is ErrorCode.request_timed_out:
                why = f"The leader of the metadata quorum does not answer: {why}"
            return None, why
        wire.turn()  # that one may be cut off alone
        wire.sleep(LOOK_S)


def look_for_leader(wire: "Wire") -> None:
    """Once a command. What is shown is shown all the same, as what was last known."""
    if not wire.is_looked_at:
        wire.is_looked_at = True
        wire.nobody_leads = why_nobody_leads(wire)
        if wire.nobody_leads is not None:
            say(f"{wire.nobody_leads} What follows is what that node last knew.")


def need_leader(wire: "Wire") -> None:
    """Before an order that only the quorum's leader can carry out."""
    why = why_nobody_leads(wire)
    if why is not None:
        raise Failed(f"{why} Nothing can be changed before.")
    wire.is_looked_at = True


def why_nobody_leads(wire: "Wire") -> str | None:
    try:
        told, why = described(wire)
    except NotTold:
        return None
    return None if told is not None else why


def of_now(wire: "Wire", look: Callable[[], T]) -> T:
    """What the quorum's leader sees: nothing that was decided is hidden from it. Any other node may not know it yet.

    Failed when it can't be asked.
    """
    where = ""
    for _ in range(LOOKS_MAX):
        try:
            leader, where = _turn_to_leader(wire)
        except NotTold:
            return look()
        turns = wire.turns
        found = look()
        if wire.turns == turns and _turn_to_leader(wire)[0] == leader:
            return found  # nobody else has answered, and it has led all the time
        wire.sleep(LOOK_S)
    raise Failed(
        f"what is so now only the leader of the metadata quorum can tell, and it does not answer at {where}."
        " Try again from where that address can be reached."
    )


def _turn_to_leader(wire: "Wire") -> tuple[int, str]:
    """Its id and address; it is asked first from now on."""
    told, why = described(wire)
    if told is None:
        raise Failed(why)
    brokers = wire.ask(ApiKey.describe_cluster, include_fenced_brokers=True).brokers
    for each in brokers:
        if each.broker_id == told.leader_id:
            wire.turn_to(each.host, each.port)
            return told.leader_id, f"{each.host}:{each.port}"
    raise Failed(
        f"node {told.leader_id} leads the metadata quorum, and is not on the list of nodes yet."
    )
