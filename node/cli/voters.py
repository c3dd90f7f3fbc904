"""`fencepost node voters`: who votes on the metadata; one more, or one less."""

import argparse
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.quorum.voters import majority
from fencepost.cluster.wire.api import ApiKey

from .checked import NODE_MAX, Failed, whole
from .cluster import EXIT_OK, add_cluster_arguments
from .leading import NotTold, described, need_leader
from .output import show, show_json
from .wire import Wire, check_known, read_image, state_of

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
        change.add_argument("node", type=int)
        add_cluster_arguments(change)


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
        print(f"\n{voters} voters bear no more than {voters - 1} do: add one more, or remove one.")


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
    fields = {"voter_id": whole("NODE", arguments.node, 0, NODE_MAX)}
    return _change(arguments, ApiKey.remove_raft_voter, fields, "votes no more")


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
            names = ", ".join(map(str, sorted(of_now(wire))))
            print(
                f"\nName {names} in every node's controller.quorum.voters: a node whose disk is lost knows of no others."
            )
    return EXIT_OK
