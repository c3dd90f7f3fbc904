"""`fencepost node`: the nodes of a cluster; empty one, give a new one its share, even them out."""

import argparse
from collections.abc import Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.wire.api import ApiKey

from ..few import few
from . import voters
from .agreed_moves import (
    add_plan_arguments,
    agreed,
    carry_plan_out,
    check_pace,
    move_all,
    partitions_of,
    places_of,
    racks_of,
    say_unless_json,
    show_moved,
)
from .checked import Failed, number
from .cluster import EXIT_FAILED, EXIT_OK, add_cluster_arguments, run_safely, say
from .leaders_back import who_goes_back
from .leading import need_leader, of_now
from .move_plan import (
    Move,
    Place,
    PlanImpossible,
    leaders_first,
    loads,
    plan_add,
    plan_drain,
    plan_rebalance,
)
from .moving import (
    CANCEL,
    elect_preferred,
    order,
    reassigning,
)
from .output import show, show_json, show_size
from .throttling import lift_throttle
from .wire import Wire, check_known, read_image, read_sizes, sizes_by_node, state_of

PARALLEL: Final = 10
# A topic that is created while a node is emptied may get replicas there.
DRAIN_ROUNDS: Final = 5


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show the nodes, what they lead and what they have")
    listing.set_defaults(action=_list)
    drain = actions.add_parser("drain", help="move everything away from a node")
    drain.add_argument("node", type=number)
    drain.set_defaults(action=_drain)
    add = actions.add_parser("add", help="give a new node its share, and move nothing else")
    add.add_argument("node", type=number)
    add.set_defaults(action=_add)
    even = actions.add_parser("rebalance", help="even out what all nodes have and lead")
    even.set_defaults(action=_rebalance)
    cancel = actions.add_parser(
        "cancel-moves", help="stop all moves; partitions stay where they were"
    )
    cancel.set_defaults(action=_cancel)
    forget = actions.add_parser("forget", help="take a node that is gone for good off the list")
    forget.add_argument("node", type=number)
    forget.set_defaults(action=_forget)
    voters.configure(actions)
    for action in (drain, add, even):
        add_plan_arguments(action)
        action.add_argument(
            "--parallel",
            type=number,
            default=PARALLEL,
            metavar="N",
            help=f"partitions at a time ({PARALLEL})",
        )
    for action in (listing, drain, add, even, cancel, forget):
        add_cluster_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(arguments.action, arguments)


def _list(arguments: argparse.Namespace) -> int:
    with Wire(arguments.bootstrap) as wire:
        image = read_image(wire)
        sizes = {node: sum(there.values()) for node, there in sizes_by_node(wire, image).items()}
    found = loads(places_of(image, {}), image.brokers)
    led = dict.fromkeys(found, 0)
    for topic in image.topics.values():
        for partition in topic.partitions:
            led[partition.leader] = led.get(partition.leader, 0) + 1
    rows = []
    for node in sorted(found):
        broker = image.brokers.get(BrokerId(node))
        replicas, _, _ = found[node]
        size = sizes.get(BrokerId(node))
        rows.append(
            (
                node,
                f"{broker.endpoints[0].host}:{broker.endpoints[0].port}" if broker else None,
                broker.rack if broker else None,
                state_of(broker, is_old=wire.nobody_leads is not None),
                led.get(node, 0),
                replicas,
                size if arguments.json or size is None else show_size(size),
            )
        )
    header = ("node", "address", "rack", "state", "leads", "replicas", "size")
    show(header, rows, as_json=arguments.json)
    moving = sum(each.is_moving for topic in image.topics.values() for each in topic.partitions)
    if moving and not arguments.json:
        print(f"{partitions_of(moving)} on the move; {CANCEL} stops them")
    return wire.code


# --- moving -------------------------------------------------------------------------------------------


def _drain(arguments: argparse.Namespace) -> int:
    """What comes to it meanwhile is moved as well: nobody else knows that it is being emptied."""
    check_pace(arguments)
    node = arguments.node
    with Wire(arguments.bootstrap) as wire:
        moves, places, racks = _away_from(wire, node)
        if not agreed(arguments, moves, places, racks, f"node {node} has nothing to move"):
            return EXIT_OK
        moved, done = _move_away(arguments, wire, moves)
        rounds = 1
        while done and (left := of_now(wire, lambda: _names_on(wire, node))):
            if rounds == DRAIN_ROUNDS:
                raise Failed(
                    f"node {node} is not empty: {few(left)} came to it, though it was emptied {rounds} times."
                    f" Create no topics for a moment, then `fencepost node drain {node}` again."
                )
            rounds += 1
            say(f"{few(left)} came to node {node} meanwhile; moving what is there now, too")
            moves, _, _ = _away_from(wire, node)
            more, done = _move_away(arguments, wire, moves)
            moved += more
        show_moved(arguments, moved, done=done)
        if not done:
            return EXIT_FAILED
        why_not = voters.why_not_to_stop(wire, node)
    if why_not is None:
        say_unless_json(arguments, f"node {node} is empty: it may be stopped and forgotten")
    else:  # a program is told, too: on standard error
        (say if arguments.json else print)(f"node {node} is empty, but {why_not}")
    return EXIT_OK


def _away_from(wire: Wire, node: int) -> tuple[list[Move], list[Place], dict[int, str | None]]:
    image, places = _look(wire)
    check_known(image, node)
    racks = {**racks_of(image), node: image.brokers[BrokerId(node)].rack}
    down = [f"node {each}" for each in sorted({*image.brokers} - {*racks})]
    try:
        moves = _planned(lambda: plan_drain(places, racks, node))
    except Failed as impossible:
        if not down:
            raise
        is_down = "is down: start it" if len(down) == 1 else "are down: start them"
        raise Failed(
            f"{impossible}. {few(down).capitalize()} {is_down} again first."
        ) from impossible
    return moves, places, racks


def _move_away(
    arguments: argparse.Namespace, wire: Wire, moves: Sequence[Move]
) -> tuple[list[Move], bool]:
    relieved = leaders_first(moves, arguments.node)
    if relieved:
        order(wire, [(move.topic, move.partition, move.after) for move in relieved])
        elect_preferred(wire, [(move.topic, move.partition) for move in relieved])
    return move_all(arguments, wire, moves)


def _names_on(wire: Wire, node: int) -> list[str]:
    return [
        f"{topic.name}-{each.partition}"
        for topic in read_image(wire).topics.values()
        for each in topic.partitions
        if node in each.replicas
    ]


def _add(arguments: argparse.Namespace) -> int:
    check_pace(arguments)
    node = arguments.node
    with Wire(arguments.bootstrap) as wire:
        image, places = _look(wire)
        check_known(image, node)
        racks = racks_of(image)
        moves = _planned(lambda: plan_add(places, racks, node))
        return carry_plan_out(arguments, wire, moves, places, racks, f"node {node} has its share")


def _rebalance(arguments: argparse.Namespace) -> int:
    check_pace(arguments)
    with Wire(arguments.bootstrap) as wire:
        image, places = _look(wire)
        racks = racks_of(image)
        moves = _planned(lambda: plan_rebalance(places, racks))
        back = who_goes_back(image, {(move.topic, move.partition) for move in moves})
        nothing = "the nodes are even"
        return carry_plan_out(arguments, wire, moves, places, racks, nothing, back=back)


def _cancel(arguments: argparse.Namespace) -> int:
    with Wire(arguments.bootstrap) as wire:
        need_leader(wire)
        moving = sorted(reassigning(wire))
        answers = order(wire, [(topic, partition, None) for topic, partition in moving])
        lift_throttle(wire, sorted(read_image(wire).topics), moving, left_behind=True)
    rows = [(*key, answers.get(key)) for key in moving]
    show(("topic", "partition", "error"), rows, as_json=arguments.json, empty="Nothing moves.")
    return EXIT_FAILED if any(answers.values()) else EXIT_OK


def _forget(arguments: argparse.Namespace) -> int:
    with Wire(arguments.bootstrap) as wire:
        image, places = _look(wire)
        check_known(image, arguments.node)
        left = sum(arguments.node in place.replicas for place in places)
        if left:
            raise Failed(
                f"node {arguments.node} still has {left} replicas; move them away first:"
                f" `fencepost node drain {arguments.node}`"
            )
        if arguments.node in voters.of_now(wire):
            raise Failed(
                f"node {arguments.node} still votes: `fencepost node voters remove {arguments.node}` first"
            )
        reply = wire.ask(ApiKey.unregister_broker, broker_id=arguments.node)
    if reply.error_code is not ErrorCode.none:
        raise Failed(f"can't forget node {arguments.node}: {reply.error_message}")
    say_unless_json(arguments, f"node {arguments.node} forgotten")
    if arguments.json:
        show_json({"node": arguments.node, "error": None})
    return EXIT_OK


def _look(wire: Wire) -> tuple[ClusterImage, list[Place]]:
    """What there is, and nothing on the move: a plan for what is moving would be one for the past."""
    need_leader(wire)
    image = read_image(wire)
    moving = [
        f"{topic.name}-{each.partition}"
        for topic in image.topics.values()
        for each in topic.partitions
        if each.is_moving
    ]
    if moving:
        raise Failed(
            f"{partitions_of(len(moving))} on the move already, {moving[0]} among them. Wait until that is"
            f" done (`fencepost node list`), or stop it: {CANCEL}."
        )
    return image, places_of(image, read_sizes(wire, image))


def _planned(plan: Any) -> list[Move]:
    try:
        moves: list[Move] = plan()
    except PlanImpossible as impossible:
        raise Failed(str(impossible)) from impossible
    return moves
