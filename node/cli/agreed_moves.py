"""A plan of moves, from the command line: shown, agreed to, carried out, and told of."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.image import ClusterImage

from .checked import Failed, NotUnderstood, amount, whole
from .cluster import EXIT_FAILED, EXIT_OK, goes_on
from .leaders_back import Back, go_back, leaders_of
from .move_plan import Move, Place, after, loads
from .moving import Carrier, carry_out, elect_preferred
from .output import show, show_json, show_size
from .throttling import Throttle
from .wire import Wire, topic_names

PARALLEL_MAX: Final = 10_000
THROTTLE_MAX: Final = 1_000_000  # MB/s, more than any network
SHOWN_MAX: Final = 20  # moves of a plan that are shown one by one


def add_plan_arguments(action: argparse.ArgumentParser) -> None:
    action.add_argument("--dry-run", action="store_true", help="only show what would move")
    action.add_argument("--yes", action="store_true", help="don't ask")
    action.add_argument(
        "--throttle", type=amount, metavar="MB/s", help="no node copies more than this"
    )


def check_pace(arguments: argparse.Namespace) -> None:
    whole("--parallel", arguments.parallel, 1, PARALLEL_MAX)
    rate = arguments.throttle
    if rate is not None and not 0 < rate <= THROTTLE_MAX:
        raise NotUnderstood(
            f"--throttle {rate:g}: say more than 0, and at most {THROTTLE_MAX} MB/s"
        )


def places_of(image: ClusterImage, sizes: dict[tuple[str, int, BrokerId], int]) -> list[Place]:
    return [
        Place(
            topic=topic.name,
            partition=each.partition,
            replicas=each.replicas,
            size=max(
                (sizes.get((topic.name, each.partition, node), 0) for node in each.replicas),
                default=0,
            ),
        )
        for topic in image.topics.values()
        for each in topic.partitions
    ]


def racks_of(image: ClusterImage) -> dict[int, str | None]:
    return {broker.broker_id: broker.rack for broker in image.alive_brokers()}


def agreed(
    arguments: argparse.Namespace,
    moves: Sequence[Move],
    places: Sequence[Place],
    racks: dict[int, str | None],
    nothing: str,
    *,
    of_all: bool = True,
    back: Sequence[Back] = (),
) -> bool:
    """Show the plan, and what the nodes have by it where `places` are all there are; whether it is to be carried out."""
    if arguments.json and (arguments.dry_run or not (moves or back)):
        show_json(_as_json(moves, back, done=not arguments.dry_run))
    if not (moves or back):
        say_unless_json(arguments, f"{nothing}: nothing moves")
        return False
    copied = show_size(sum(move.bytes_copied for move in moves))
    if moves and not arguments.json:
        _show_plan(moves)
        if of_all:
            _show_loads(moves, places, racks)
        print(f"{partitions_of(len(moves))} to change, {copied} to copy")
    if back and not arguments.json:
        print(f"{leaders_of(len(back))} to go back to the first of their replicas")
    if arguments.dry_run or arguments.yes:
        return not arguments.dry_run
    if arguments.json or not sys.stdin.isatty():  # the question would stand in what a program reads
        changed = f"{partitions_of(len(moves))} would be changed, with {copied} to copy"
        went = f"{leaders_of(len(back))} would go back to the first of their replicas"
        what = " and ".join([changed] * bool(moves) + [went] * bool(back))
        raise Failed(f"{what}. To do that, say --yes.")
    if not goes_on():
        raise Failed("nothing was moved")
    return True


def _show_plan(moves: Sequence[Move]) -> None:
    rows = [
        (move.topic, move.partition, move.before, move.after, show_size(move.bytes_copied))
        for move in moves[:SHOWN_MAX]
    ]
    show(("topic", "partition", "from", "to", "copied"), rows, as_json=False)
    if len(moves) > SHOWN_MAX:
        print(f"… and {len(moves) - SHOWN_MAX} more")


def _show_loads(
    moves: Sequence[Move], places: Sequence[Place], racks: dict[int, str | None]
) -> None:
    now, then = loads(places, racks), loads(after(places, moves), racks)
    print()
    change = [
        (n, now[n][0], then.get(n, (0, 0))[0], now[n][1], then.get(n, (0, 0))[1]) for n in now
    ]
    show(("node", "replicas", "then", "leads", "then"), change, as_json=False)


def move_all(
    arguments: argparse.Namespace, wire: Wire, moves: Sequence[Move]
) -> tuple[list[Move], bool]:
    """What was moved, and whether that is all."""
    rate = None if arguments.throttle is None else round(arguments.throttle * 1e6)
    throttle = Throttle(wire, lambda: topic_names(wire), rate)
    carrier = Carrier(wire, moves, arguments.parallel, throttle)
    # What a program reads is one document at the end.
    out = sys.stderr if arguments.json else sys.stdout
    done = carry_out(carrier, say=lambda text: print(text, file=out))
    elect_preferred(wire, [(move.topic, move.partition) for move in carrier.done])
    return carrier.done, done


def show_moved(
    arguments: argparse.Namespace, moved: Sequence[Move], back: Sequence[Back] = (), *, done: bool
) -> None:
    if arguments.json:
        show_json(_as_json(moved, back, done=done))


def carry_plan_out(
    arguments: argparse.Namespace,
    wire: Wire,
    moves: Sequence[Move],
    places: Sequence[Place],
    racks: dict[int, str | None],
    nothing: str,
    *,
    of_all: bool = True,
    back: Sequence[Back] = (),
) -> int:
    """All of that; what the command ends with."""
    if not agreed(arguments, moves, places, racks, nothing, of_all=of_all, back=back):
        return EXIT_OK
    went = go_back(wire, back)
    if back:
        say_unless_json(arguments, f"{leaders_of(len(went))} went back")
    moved, done = move_all(arguments, wire, moves) if moves else ([], True)
    done = done and len(went) == len(back)
    show_moved(arguments, moved, went, done=done)
    return EXIT_OK if done else EXIT_FAILED


def _as_json(moves: Sequence[Move], back: Sequence[Back], *, done: bool) -> dict[str, Any]:
    return {
        "done": done,
        "bytes_copied": sum(move.bytes_copied for move in moves),
        "moves": [
            {"topic": m.topic, "partition": m.partition, "from": m.before, "to": m.after}
            for m in moves
        ],
        "leaders": [
            {"topic": each.topic, "partition": each.partition, "from": each.leader, "to": each.to}
            for each in back
        ],
    }


def partitions_of(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def say_unless_json(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.json:
        print(text)
