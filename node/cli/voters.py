"""`fencepost node voters`: who votes on the metadata; one more, or one less."""

import argparse
import sys
from collections.abc import Collection
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.quorum.voters import majority
from fencepost.cluster.wire.api import ApiKey

from ..peer_settings import VOTER_COUNTS
from .checked import NODE_MAX, Failed, number, whole
from .cluster import EXIT_OK, add_cluster_arguments, goes_on, say
from .leading import NotTold, described, need_leader
from .output import show, show_json
from .wire import Wire, check_known, read_image, state_of

SETTING: Final = "controller.quorum.voters"
# Fewer bear no death at all.
FEWEST_THAT_BEAR_ONE: Final = 3
STOPS: Final = "no partition gets a new leader, and nothing can be created or changed"
ADD_MS: Final = 20_000  # the cluster waits for 10 s until the node holds all of the log


def configure(actions: Any) -> None:
    voters = actions.add_parser("voters", help="show who votes on the metadata; add or remove one")
    changes = voters.add_subparsers(metavar="[add|remove]")
    add_cluster_arguments(voters)
    voters.set_defaults(action=_list)
    add = changes.add_parser("add", help="have a node vote that follows the metadata log")
    add.set_defaults(action=_add)
    remove = changes.add_parser("remove", help="have a node vote no more; it goes on as a follower")
    remove.set_defaults(action=_remove)
    for change in (add, remove):
        change.add_argument("node", type=number)
        add_cluster_arguments(change, again=True)
    remove.add_argument(
        "--yes",
        action="store_true",
        help="don't ask, though those that are left bear less; a script without a terminal is not asked either",
    )


def _list(arguments: argparse.Namespace) -> int:
    with Wire(arguments.bootstrap) as wire:
        _show(arguments, wire)
    return EXIT_OK


def _show(arguments: argparse.Namespace, wire: Wire) -> None:
    told = _described(wire)
    brokers = read_image(wire, []).brokers
    rows = [
        (
            each.replica_id,
            role,
            each.replica_id == told.leader_id,
            told.high_watermark - end,
            state_of(brokers.get(each.replica_id)),
        )
        for role, replicas in (("votes", told.current_voters), ("follows", told.observers))
        for each in replicas
        for end in [min(each.log_end_offset, told.high_watermark)]
    ]
    rows.sort()
    header = ("node", "role", "leads", "behind", "state")
    if arguments.json:
        show(header, rows, as_json=True)
        return
    shown = [(node, role, "leads" if leads else "", *rest) for node, role, leads, *rest in rows]
    show(header, shown, as_json=False)
    voters = sum(role == "votes" for _, role, *_ in rows)
    if voters % 2 == 0:
        print(f"\n{_of_an_even_number(voters)}")


def of_now(wire: Wire) -> set[int]:
    return {each.replica_id for each in _described(wire).current_voters}


def why_not_to_stop(wire: Wire, node: int) -> str | None:
    """Why a node that has nothing left is not to be stopped yet, and what comes before; None when it does not vote."""
    try:
        votes = of_now(wire)
    except NotTold:
        return None
    if node not in votes:
        return None
    others = sorted(votes - {node})
    if not others:
        return (
            "it alone votes: without it nothing can be decided any more. Have others vote first:"
            " `fencepost node voters add NODE`"
        )
    brokers = read_image(wire, []).brokers
    down = [each for each in others if state_of(brokers.get(BrokerId(each))) != "up"]
    if len(others) - len(down) < majority(len(others)):
        dead = " and ".join(f"node {each}" for each in down)
        them = "it" if len(down) == 1 else "them"
        return (
            f"it votes, and is needed: of nodes {', '.join(map(str, others))}, which would vote without it, {dead}"
            f" can't be reached, and the others are no majority. Start {dead}, or have {them} vote no more,"
            f" then `fencepost node voters remove {node}`"
        )
    return f"it still votes: `fencepost node voters remove {node}` before it is stopped"


def _described(wire: Wire) -> Any:
    told, why = described(wire)
    if told is None:
        raise Failed(why)
    return told


def _add(arguments: argparse.Namespace) -> int:
    with Wire(arguments.bootstrap) as wire:
        need_leader(wire)
        check_known(read_image(wire, []), whole("NODE", arguments.node, 0, NODE_MAX))
    fields = {"voter_id": arguments.node, "timeout": ADD_MS, "listeners": []}
    return _change(arguments, ApiKey.add_raft_voter, fields, "votes now")


def _remove(arguments: argparse.Namespace) -> int:
    node = whole("NODE", arguments.node, 0, NODE_MAX)
    with Wire(arguments.bootstrap) as wire:
        need_leader(wire)
        risk = _risk(of_now(wire), node)
    if risk is not None and not _agreed(arguments, risk):
        raise Failed(f"node {node} votes as before")
    return _change(arguments, ApiKey.remove_raft_voter, {"voter_id": node}, "votes no more")


def _agreed(arguments: argparse.Namespace, risk: str) -> bool:
    """A script that gave no --yes is told, and gets what it asked for: of `add` and `remove` it does one after the other."""
    if arguments.yes:
        return True
    if arguments.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        say(f"{risk} (--yes: not to be told.)")
        return True
    print(risk)
    return goes_on()


def _risk(votes: Collection[int], node: int) -> str | None:
    """What there is to be said before that node votes no more; None where those who are left bear deaths as well as can be."""
    left = sorted(set(votes) - {node})
    if node not in votes or not left:
        return None  # the cluster refuses it, and says why
    if len(left) >= FEWEST_THAT_BEAR_ONE and len(left) % 2 == 1:
        return None
    if len(left) == 1:
        return f"Node {left[0]} alone will vote then. The death of that one voter stops everything: {STOPS}."
    return f"Nodes {', '.join(map(str, left))} will vote then. {_of_an_even_number(len(left))}"


def _of_an_even_number(voters: int) -> str:
    if voters < FEWEST_THAT_BEAR_ONE:
        return (
            f"{voters} voters bear no more than 1 does: the death of one more voter stops everything: {STOPS}."
            " Add a third: `fencepost node voters add NODE`."
        )
    deaths = voters - majority(voters)
    die = "dies" if deaths == 1 else "die"
    return f"{voters} voters bear no more than {voters - 1} do: add one more, or remove one. All goes on when {deaths} {die}."


def _what_to_name(votes: Collection[int]) -> str:
    """The setting names those of whom a node with an empty folder hears of the others, and a start refuses some numbers."""
    voters = sorted(votes)
    names = ", ".join(map(str, voters))
    *some, most = map(str, VOTER_COUNTS)
    if len(voters) not in VOTER_COUNTS:
        return (
            f"Leave {SETTING} as it is on every node: it may name {', '.join(some)} or {most} nodes, and with"
            f" {len(voters)} no node starts. Who votes is in the metadata log; once so many vote, name those there:"
            " a node whose disk is lost knows of no others."
        )
    alone = ""
    if len(voters) == 1:  # who is alone with itself opens no door to others
        alone = f" On node {names} set peer.listener, too: without that the others can't follow it."
    return f"Name {names} in every node's {SETTING}: a node whose disk is lost knows of no others.{alone}"


def _change(arguments: argparse.Namespace, key: ApiKey, fields: dict[str, Any], done: str) -> int:
    with Wire(arguments.bootstrap) as wire:
        need_leader(wire)
        reply = wire.ask(key, cluster_id=None, voter_directory_id=None, **fields)
        if reply.error_code is not ErrorCode.none:
            why = reply.error_message or reply.error_code.name
            raise Failed(f"{why} `fencepost node voters` shows who votes.")
        if arguments.json:
            show_json({"node": arguments.node, "error": None})
        else:
            print(f"node {arguments.node} {done}\n")
            _show(arguments, wire)
            print(f"\n{_what_to_name(of_now(wire))}")
    return EXIT_OK
