"""`fencepost partition`: which partitions are in trouble and why, moving one, and giving up what nobody can bring back.

INVARIANT  an unclean election is asked for only where it elects whom the person was told of, or who has most; else it was no success.
PREVENTS   records that only node 2 had, cut off as node 1 leads: `--replica 2` was said, or node 1 had a new disk and stood first.
PROVED BY  tests/node/test_cli_recover.py::test_of_a_partition_that_moves_nobody_is_chosen_whom_the_cluster_would_not_elect,
           test_who_has_most_of_what_is_left_leads
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER, BrokerId, TopicPartition
from fencepost.cluster.metadata.image import ClusterImage, PartitionState
from fencepost.cluster.metadata.offline import (
    empty_replicas,
    living_replicas,
    what_is_lost,
    why_offline,
)
from fencepost.cluster.wire.api import ApiKey

from . import partition_move
from .checked import Failed, named, number
from .cluster import EXIT_OK, add_cluster_arguments, run_safely
from .leading import need_leader, of_now
from .moving import CANCEL, order
from .output import show, show_json, show_size
from .wire import ASK_MS, Wire, partition_of, read_image, read_sizes

UNCLEAN: Final = 1
INTERNAL: Final = "__"  # how the names of internal topics begin
LOOK: Final = "`fencepost partition list` shows what is so now."
UNTOUCHED: Final = f"Nobody was elected, and nothing is lost by it. {LOOK}"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show partitions, and why some are offline")
    listing.add_argument("topic", nargs="*", help="default: all")
    listing.add_argument(
        "--internal", action="store_true", help="show those of internal topics as well"
    )
    listing.add_argument("--offline", action="store_true", help="only those without a leader")
    listing.add_argument(
        "--lagging", action="store_true", help="only those with a replica that is not in sync"
    )
    listing.set_defaults(action=_list)
    recover = actions.add_parser("recover", help="have a replica lead that may lack records")
    recover.add_argument("topic")
    recover.add_argument("partition", type=number)
    recover.add_argument(
        "--accept-data-loss",
        action="store_true",
        help="needed: what the new leader lacks is gone for good",
    )
    recover.add_argument(
        "--replica",
        type=number,
        metavar="NODE",
        help="who leads (default: who has most of it, of those that are alive)",
    )
    recover.set_defaults(action=_recover)
    partition_move.configure(
        actions.add_parser("move", help="say which nodes have it; out and in again copies it anew")
    )
    for action in (listing, recover):
        add_cluster_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(arguments.action, arguments)


def _list(arguments: argparse.Namespace) -> int:
    named("a topic's name", *arguments.topic)
    with Wire(arguments.bootstrap) as wire:
        image = read_image(wire, arguments.topic or None)
    # Whoever looks for trouble is shown all that has it.
    hides = not (arguments.internal or arguments.topic or arguments.offline or arguments.lagging)
    shown = [name for name in sorted(image.topics) if not (hides and name.startswith(INTERNAL))]
    found = [
        (TopicPartition(name, each.partition), each)
        for name in shown
        for each in image.topics[name].partitions
        if (not arguments.offline or each.leader == NO_LEADER)
        and (not arguments.lagging or set(each.isr) < set(each.replicas))
    ]
    rows = [(*place, *_shown(each)) for place, each in found]
    if arguments.json:
        header = ("topic", "partition", "leader", "replicas", "isr", "eligible", "moving_to")
        show_json(
            [
                {**dict(zip(header, row, strict=True)), "why_offline": why_offline(image, place)}
                for row, (place, _) in zip(rows, found, strict=True)
            ]
        )
        return wire.code
    header = ("topic", "partition", "leader", "replicas", "isr", "eligible", "moving to")
    nothing = "Every partition has a leader." if arguments.offline else "There are none."
    if len(shown) < len(image.topics):
        nothing = "There are none but those of internal topics: --internal shows them."
    if wire.nobody_leads is not None:
        nothing = "There were none when somebody led the metadata quorum; whose leader is gone since, nobody says."
    show(header, rows, as_json=False, empty=nothing)
    say_why_offline(image)
    return wire.code


def _shown(now: PartitionState) -> tuple[Any, ...]:
    target = [each for each in now.replicas if each not in now.removing] if now.is_moving else None
    leader = None if now.leader == NO_LEADER else now.leader
    return leader, list(now.replicas), list(now.isr), list(now.elr), target


def say_why_offline(image: ClusterImage) -> None:
    """A sentence for each partition without a leader."""
    for name in sorted(image.topics):
        for each in image.topics[name].partitions:
            why = why_offline(image, TopicPartition(name, each.partition))
            if why is not None:
                print(f"\n{name}-{each.partition} is offline. {why}")


def _recover(arguments: argparse.Namespace) -> int:
    place = TopicPartition(arguments.topic, arguments.partition)
    with Wire(arguments.bootstrap) as wire:
        need_leader(wire)
        image = read_image(wire, [arguments.topic])
        now = partition_of(image, place)
        why = why_offline(image, place)
        if why is None:
            raise Failed(f"{place} is led by node {now.leader}: there is nothing to recover")
        sizes = _sizes(wire, image, now, place)
        heir = _heir(image, now, arguments.replica, place, sizes)
        if not arguments.accept_data_loss:
            raise Failed(
                f"{why} {_what_is_left(sizes)}{what_is_lost(image, place, heir)} To do that, say --accept-data-loss."
            )
        _elect(wire, place, now, heir)
    if arguments.json:
        show_json({"topic": place.topic, "partition": place.partition, "leader": heir})
    else:
        print(f"{place} is led by node {heir}")
    return EXIT_OK


def _sizes(
    wire: Wire, image: ClusterImage, now: PartitionState, place: TopicPartition
) -> dict[BrokerId, int | None]:
    """What each living replica has, in bytes: the cluster elects by the order alone, and a disk may be new. None of who does not say."""
    found = read_sizes(wire, image)
    return {each: found.get((*place, each)) for each in living_replicas(image, now)}


def _what_is_left(sizes: Mapping[BrokerId, int | None]) -> str:
    if len(sizes) < 2:
        return ""
    each = ", ".join(
        f"node {node} {'does not say' if size is None else show_size(size)}"
        for node, size in sizes.items()
    )
    return f"Of what is left: {each}. "


def _living(
    image: ClusterImage, now: PartitionState, place: TopicPartition
) -> tuple[BrokerId, ...]:
    """Who may be elected uncleanly; who would begin anew only where nobody else may."""
    living = living_replicas(image, now) or empty_replicas(image, now)
    if not living:
        raise Failed(f"{why_offline(image, place)}")
    return living


def _elected(living: Sequence[BrokerId], now: PartitionState) -> BrokerId:
    """Whom of these the cluster elects."""
    return next((each for each in living if each not in now.adding), living[0])


def _heir(
    image: ClusterImage,
    now: PartitionState,
    wanted: int | None,
    place: TopicPartition,
    sizes: Mapping[BrokerId, int | None],
) -> BrokerId:
    living = _living(image, now, place)
    elected = _elected(living, now)
    others = [each for each in now.replicas if each not in living]
    if wanted is None and living[0] in now.offline and others:  # it would begin anew
        raise Failed(f"{why_offline(image, place)}")
    if wanted is None:
        # By size, which is by the end of the log where nothing is compacted; who was only being added last, as the cluster has it.
        settled = [elected, *(each for each in living if each not in now.adding)]
        wanted = max(settled, key=lambda each: sizes.get(each) or 0)
    if wanted not in living:
        names = ", ".join(map(str, living))
        raise Failed(f"node {wanted} is no living replica of {place}; those are {names}")
    if now.is_moving and wanted != elected:
        raise Failed(
            f"{place} is on the move, and its replicas are not put into another order meanwhile: node {elected}"
            f" would be elected, and not node {wanted}. {_what_is_left(sizes)}Stop what moves ({CANCEL}), then recover;"
            f" or have node {elected} lead (--replica {elected})."
        )
    return BrokerId(wanted)


def _elect(wire: Wire, place: TopicPartition, now: PartitionState, heir: BrokerId) -> None:
    """The cluster elects the first living replica, so the heir is made the first. What moves keeps its order."""
    if now.replicas[0] != heir and not now.is_moving:
        others = [each for each in now.replicas if each != heir]
        why = order(wire, [(place.topic, place.partition, [heir, *others])]).get(
            (place.topic, place.partition)
        )
        if why is not None:
            raise Failed(
                f"node {heir} can't be made the first replica: {why.rstrip('.')}. {UNTOUCHED}"
            )
    _check_would_lead(wire, place, heir)
    reply = wire.ask(
        ApiKey.elect_leaders,
        timeout=ASK_MS,
        election_type=UNCLEAN,
        topic_partitions=[{"topic": place.topic, "partitions": [place.partition]}],
    )
    for topic in reply.replica_election_results:
        for each in topic.partition_result:
            if each.error_code is not ErrorCode.none:
                why = each.error_message or each.error_code.name.upper()
                raise Failed(f"{place} was not recovered: {why.rstrip('.')}. {LOOK}")
    # Version 0 has none.
    if (code := getattr(reply, "error_code", ErrorCode.none)) is not ErrorCode.none:
        raise Failed(
            f"{place}: the election was not answered as done ({code.name.upper()}). It may happen yet. {LOOK}"
        )
    _, then = _look(wire, place)
    if then.leader == NO_LEADER:
        raise Failed(f"{place} has no leader still, though node {heir} was to lead. {LOOK}")
    if then.leader != heir:
        raise Failed(
            f"{place} is led by node {then.leader}, and not by node {heir}: something changed just before the"
            f" election. What node {then.leader} lacks is gone from the others too, as far as they follow it. {LOOK}"
        )


def _look(wire: Wire, place: TopicPartition) -> tuple[ClusterImage, PartitionState]:
    """By what the quorum's leader sees: others may not have heard of the order yet, or of the election."""
    image = of_now(wire, lambda: read_image(wire, [place.topic]))
    now = image.partition(*place)
    if now is None:
        raise Failed(f"{place} is gone. {LOOK}")
    return image, now


def _check_would_lead(wire: Wire, place: TopicPartition, heir: BrokerId) -> None:
    """Once more, right before what can't be undone."""
    image, now = _look(wire, place)
    if now.leader != NO_LEADER:
        raise Failed(f"{place} is led by node {now.leader} by now: there is nothing to recover")
    if _elected(_living(image, now, place), now) != heir or (
        not now.is_moving and now.replicas[0] != heir
    ):
        raise Failed(
            f"{place} has changed meanwhile, and node {heir} would not be elected any more. {UNTOUCHED}"
        )
