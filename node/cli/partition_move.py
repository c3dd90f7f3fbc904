"""`fencepost partition move`: on which nodes one partition is to be, and in which order; the first leads when it can.

INVARIANT  an order is for the replicas that the person was shown, as the quorum's leader has them, and for nodes that can take them.
PREVENTS   a replica that is taken out by a plan for what was so before; a move that stands for ever, as its node is down.
PROVED BY  tests/node/test_cli_partition_move.py

A replica that is taken out and in again is copied anew: what mends a log that is damaged.
"""

import argparse
from typing import Final

from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.metadata.image import ClusterImage, PartitionState

from .agreed_moves import add_plan_arguments, carry_plan_out, check_pace, places_of, racks_of
from .checked import NODE_MAX, Failed, named, number, whole
from .cluster import add_cluster_arguments
from .leading import need_leader, of_now
from .move_plan import Move
from .moving import CANCEL
from .wire import Wire, check_known, partition_of, read_image, read_sizes

ORDER: Final = "say each node once, with commas between, for example 1,2,3; the first one leads"


def configure(action: argparse.ArgumentParser) -> None:
    action.add_argument("topic")
    action.add_argument("partition", type=number)
    action.add_argument(
        "--to", required=True, type=_nodes, metavar="NODE,…", help="all that are to have it; the first one leads"
    )  # fmt: skip
    add_plan_arguments(action)
    add_cluster_arguments(action)
    action.set_defaults(action=move, parallel=1)


def _nodes(text: str) -> tuple[int, ...]:
    try:
        found = tuple(map(int, text.split(",")))
    except ValueError:
        found = ()
    if not found or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r}: {ORDER}")
    return found


def move(arguments: argparse.Namespace) -> int:
    check_pace(arguments)
    named("a topic's name", arguments.topic)
    for node in arguments.to:
        whole("--to", node, 0, NODE_MAX)
    place = TopicPartition(arguments.topic, arguments.partition)
    with Wire(arguments.bootstrap) as wire:
        need_leader(wire)
        image = of_now(wire, lambda: read_image(wire, [place.topic]))
        now = _checked(image, place, arguments.to)
        here = [
            each
            for each in places_of(image, read_sizes(wire, image))
            if each.partition == place.partition
        ]
        moves = [
            Move(**place._asdict(), before=now.replicas, after=arguments.to, size=each.size)
            for each in here
            if now.replicas != arguments.to
        ]
        nothing = f"{place} is there"
        return carry_plan_out(arguments, wire, moves, here, racks_of(image), nothing, of_all=False)


def _checked(image: ClusterImage, place: TopicPartition, to: tuple[int, ...]) -> PartitionState:
    now = partition_of(image, place)
    if now.is_moving:
        raise Failed(
            f"{place} is on the move already. Wait until that is done (`fencepost partition list {place.topic}`), or"
            f" stop all moves: {CANCEL}."
        )
    for node in to:
        check_known(image, node)
        if node not in now.replicas and image.brokers[BrokerId(node)].fenced:
            raise Failed(
                f"node {node} is down, and can't take a replica of {place}: start it first"
            )
    return now
