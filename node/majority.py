"""Why nobody leads the metadata quorum, in a sentence: who votes, whom of them this node reaches, and what helps. Pure."""

from collections.abc import Collection, Sequence
from typing import Final

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.quorum.voters import majority

_WORDS: Final = {1: "one", 2: "two", 3: "three"}


def why_nobody_leads(
    node_id: BrokerId,
    voters: Collection[BrokerId],
    connected: Collection[BrokerId],
    waits_for: Sequence[BrokerId] = (),
) -> str:
    """`connected` are the nodes that this one reaches, `waits_for` who has not agreed where all voters have to; without a full
    stop, as it ends other sentences."""
    others = sorted(set(voters) - {node_id})
    missing = [each for each in others if each not in connected]
    reached = len(others) - len(missing)
    needed = majority(len(voters))
    lacks = needed - reached - (node_id in voters)
    all_of_them = ", ".join(map(str, sorted(voters)))
    if node_id in voters:
        said = f"node {node_id} of voters {all_of_them} reaches {reached} of the others"
    else:
        said = f"node {node_id} reaches {reached} of the voters {all_of_them}"
    if missing:
        said += f" ({_names(missing)} can't be reached)"
    if waits_for:
        why = "a first election, or one after a disk was replaced, needs every voter"
        return f"{said}; {why}: start {_names(waits_for)}"
    if lacks > 0:
        return f"{said}; a majority is {needed}: start {_WORDS.get(lacks, lacks)} of them"
    return f"{said}; a majority is {needed}: one is elected in a moment"


def why_not_taken_in(node_id: BrokerId, others: Sequence[BrokerId]) -> str:
    """Of a node whose disk was lost, with the settings of the day on which it began the cluster (`first_day`)."""
    who = f"node {others[0]} belongs" if len(others) == 1 else f"nodes {_names(others)} belong"
    return (
        f"node {node_id} has an empty folder and settings that name no other voter, and {who} to a cluster:"
        " it waits until a leader of that sends its log; start all of its voters"
    )


def _names(node_ids: Sequence[BrokerId]) -> str:
    *first, last = map(str, node_ids)
    return f"{', '.join(first)} and {last}" if first else last
