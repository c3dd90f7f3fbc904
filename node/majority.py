"""Why nobody leads the metadata quorum, in a sentence: who votes, whom of them this node reaches, and what helps. Pure."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.quorum.voters import majority

# Stands in what is said where it is not the same (`peer_handshake.py`).
SETTING: Final = "peer.secret"
_WORDS: Final = {1: "one", 2: "two", 3: "three"}


def why_nobody_leads(
    node_id: BrokerId,
    voters: Collection[BrokerId],
    connected: Collection[BrokerId],
    waits_for: Sequence[BrokerId] = (),
    refusals: Mapping[BrokerId, str] = MappingProxyType({}),
    *,
    has_secret: bool = True,
) -> str:
    """`connected` are the nodes that this one reaches, `waits_for` who has not agreed where all voters have to, `refusals` what was
    said by those that answer and are no peers of this one; without a full stop, as it ends other sentences."""
    others = sorted(set(voters) - {node_id})
    away = [each for each in others if each not in connected]
    refused = {each: refusals[each] for each in away if each in refusals}
    silent = [each for each in away if each not in refused]
    reached = len(others) - len(away)
    needed = majority(len(voters))
    lacks = needed - reached - (node_id in voters)
    all_of_them = ", ".join(map(str, sorted(voters)))
    if node_id in voters:
        said = f"node {node_id} of voters {all_of_them} reaches {reached} of the others"
    else:
        said = f"node {node_id} reaches {reached} of the voters {all_of_them}"
    if away:
        said += f" ({'; '.join(_who_is_away(silent, refused, has_secret=has_secret))})"
    if waits_for:
        why = "a first election, or one after a disk was replaced, needs every voter"
        down = [each for each in waits_for if each not in refused]
        helps = [f"start {_names(down)}"] if down else []
        helps += _what_lets_in([refused[each] for each in waits_for if each in refused])
        return f"{said}; {why}: {', and '.join(helps)}"
    if lacks > 0 and refused:
        helps = [f"start {_names(silent)}"] if silent else []
        helps += _what_lets_in(refused.values())
        return f"{said}; a majority is {needed}: {', or '.join(helps)}"
    if lacks > 0:
        return f"{said}; a majority is {needed}: start {_WORDS.get(lacks, lacks)} of them"
    return f"{said}; a majority is {needed}: one is elected in a moment"


def _who_is_away(
    silent: Sequence[BrokerId], refused: Mapping[BrokerId, str], *, has_secret: bool
) -> list[str]:
    said = [f"{_names(silent)} can't be reached"] if silent else []
    strange = [each for each, why in refused.items() if SETTING in why]
    if strange:
        runs, its, has = ("runs", "its", "has") if len(strange) == 1 else ("run", "their", "have")
        if has_secret:
            said.append(f"{_names(strange)} {runs}, and {its} {SETTING} is not this node's")
        else:
            said.append(f"{_names(strange)} {runs}, and {has} a {SETTING}, which is not set here")
    return said + [f"{each}: {why}" for each, why in refused.items() if each not in strange]


def _what_lets_in(refusals: Collection[str]) -> list[str]:
    helps = []
    if any(SETTING in why for why in refusals):
        helps.append(f"give all nodes the same {SETTING}, and restart those that had another")
    if not all(SETTING in why for why in refusals):
        helps.append("mend why this node and those that answer are apart")
    return helps


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
