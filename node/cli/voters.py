"""`fencepost node voters`: who votes on the metadata; one more, or one less."""

import argparse
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey

from .cluster import EXIT_OK, Failed, add_cluster_arguments
from .output import show, show_json
from .wire import Wire

METADATA: Final = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
LOOK_S, LOOKS_MAX = 0.2, 25
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
    rows = [
        (each.replica_id, role, each.replica_id == told.leader_id, told.high_watermark - end)
        for role, replicas in (("votes", told.current_voters), ("follows", told.observers))
        for each in replicas
        for end in [min(each.log_end_offset, told.high_watermark)]
    ]
    rows.sort()
    if arguments.json:
        show(("node", "role", "leads", "behind"), rows, as_json=True)
        return
    show(
        ("node", "role", "leads", "behind"),
        [(node, role, "leads" if leads else "", lag) for node, role, leads, lag in rows],
        as_json=False,
    )
    voters = sum(role == "votes" for _, role, _, _ in rows)
    if voters % 2 == 0:
        print(f"\n{voters} voters bear no more than {voters - 1} do: add one more, or remove one.")


def _described(wire: Wire) -> Any:
    """A leader that was removed has gone; the next one is there in a moment."""
    for _ in range(LOOKS_MAX):
        reply = wire.ask(ApiKey.describe_quorum, topics=METADATA)
        if reply.error_code is ErrorCode.none:
            return reply.topics[0].partitions[0]
        wire.sleep(LOOK_S)
    raise Failed(f"nobody leads the metadata quorum now: {reply.error_message}")


def _add(arguments: argparse.Namespace) -> int:
    fields = {"voter_id": arguments.node, "timeout": ADD_MS, "listeners": []}
    return _change(arguments, ApiKey.add_raft_voter, fields, "votes now")


def _remove(arguments: argparse.Namespace) -> int:
    fields = {"voter_id": arguments.node}
    return _change(arguments, ApiKey.remove_raft_voter, fields, "votes no more")


def _change(arguments: argparse.Namespace, key: ApiKey, fields: dict[str, Any], done: str) -> int:
    with Wire(arguments.bootstrap) as wire:
        reply = wire.ask(key, cluster_id=None, voter_directory_id=None, **fields)
        if reply.error_code is not ErrorCode.none:
            why = reply.error_message or reply.error_code.name
            raise Failed(f"{why} `fencepost node voters` shows who votes.")
        if arguments.json:
            show_json({"node": arguments.node, "error": None})
        else:
            print(f"node {arguments.node} {done}\n")
            _show(arguments, wire)
    return EXIT_OK
