"""What a command line says of plans. The other way, from a plan to its command, is `Plan.command`."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from ..sim.plan import CLIENTS, Plan

ALL: Final = "all"
NONE: Final = "none"
LIGHT_S, LIGHT_SEEDS = 60.0, 2
# In the order in which they are run; the first needs the least to be understood.
CAMPAIGN_NAMES: Final = ("one-node", "quorum", "cluster", "transactions", "added")
# How many nodes a plan may ask for: what campaigns are made for, and one alone. Two are no quorum, and of 99 no seed ends. The
# other campaigns have their own: one node, and voters that the seed draws.
NODES: Final = (1, 3, 4, 5)
HAVE_NODES: Final = ("cluster", "transactions", "added")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--campaign",
        default="cluster",
        choices=(*CAMPAIGN_NAMES, ALL),
        help="what is run (cluster); `all` gives each of them all seeds",
    )
    add("--faults", type=_words, default=(), metavar="A,B", help="only these kinds of faults")
    add("--keep-faults", type=_numbers, metavar="3,7", help="only these faults, by number, or none")
    add(
        "--keep-clients", type=_words, default=(), metavar="A,B", help="only these clients, by name"
    )
    add("--seconds", type=_seconds, default=0.0, help="virtual seconds of faults")
    add("--until", type=_seconds, default=0.0, metavar="12.5s", help="no fault from then on")
    add(
        "--nodes",
        type=_nodes,
        default=0,
        metavar="N",
        help=f"of {_listed(HAVE_NODES)}: {_listed(NODES)}; the seed says when not",
    )
    add("--at-once", type=int, default=0, help="faults at one time (3)")
    add(
        "--workloads",
        type=_words,
        default=(),
        metavar="A,B",
        help="only these clients, of cluster or transactions; `fencepost sim campaigns` names them",
    )
    add("--protocol", default="", choices=("", "old", "new"), help="of transactions' clients")
    add("--config", action="append", default=[], metavar="NAME=VALUE", help="of every node")
    add("--planted", default="", metavar="BUG", help="with this bug in the nodes")
    add(
        "--watch",
        default="",
        choices=("", CLIENTS),
        help="`clients`: judge by what clients saw alone, as on real nodes; not of quorum",
    )


def make_light(arguments: argparse.Namespace) -> None:
    """The lightly loaded cluster by which the simulator's speed is told."""
    arguments.campaign, arguments.nodes = "cluster", 3
    arguments.seeds = arguments.seeds[:LIGHT_SEEDS]
    arguments.seconds = arguments.seconds or LIGHT_S
    arguments.workloads, arguments.keep_faults = ("light",), ()
    arguments.check_every = arguments.check_first = 0


def plans_of(arguments: argparse.Namespace) -> Iterator[Plan]:
    names = CAMPAIGN_NAMES if arguments.campaign == ALL else (arguments.campaign,)
    for name in names:
        for seed in arguments.seeds:
            yield plan_of(arguments, name, seed)


def plan_of(arguments: argparse.Namespace, campaign: str, seed: int) -> Plan:
    return Plan(
        campaign=campaign,
        seed=seed,
        seconds=arguments.seconds,
        faults=arguments.faults,
        keep_faults=arguments.keep_faults,
        keep_clients=arguments.keep_clients,
        until_s=arguments.until,
        nodes=arguments.nodes,
        at_once=arguments.at_once,
        workloads=arguments.workloads,
        protocol=arguments.protocol,
        config=tuple(arguments.config),
        planted=arguments.planted,
        watch=arguments.watch,
    )


def why_not(plan: Plan) -> str:
    """What of this plan its campaign does not know; empty when all is known."""
    from fencepost.cluster.base.errors import ConfigRefused  # slow to import, as all of these
    from fencepost.node.config import NodeConfig

    from ..planted.bugs import all_bugs
    from .campaign import CAMPAIGNS

    campaign = CAMPAIGNS[plan.campaign]
    for said, known, what in (
        (plan.faults, campaign.faults, "fault"),
        (plan.workloads, campaign.workloads, "workload"),
        ((plan.planted,) if plan.planted else (), tuple(all_bugs()), "planted bug"),
    ):
        for name in said:
            if name not in known:
                allowed = ", ".join(sorted(known)) or "none"
                return f"{name!r} is no {what} of campaign {plan.campaign}; there are: {allowed}"
    if plan.nodes and plan.campaign not in HAVE_NODES:
        return f"--nodes {plan.nodes} is of {_listed(HAVE_NODES)}; campaign {plan.campaign} has nodes of its own: leave it out"
    if plan.watch and plan.campaign not in HAVE_NODES:
        return f"--watch {plan.watch} is of {_listed(HAVE_NODES)}; campaign {plan.campaign} has nobody else who judges: leave it out"
    try:
        NodeConfig.load(flags=plan.config, environment={}, file=None)
    except ConfigRefused as refused:
        return f"--config: {refused}"
    return ""


def seeds(text: str) -> range:
    first, dots, end = text.partition("..")
    if not first.isdecimal() or (dots and not end.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"{text!r} are no seeds: say 17 for one, 0..1000 for 0 to 999"
        )
    found = range(int(first), int(end) if dots else int(first) + 1)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} holds no seed: the end is not included")
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _listed(words: Sequence[object]) -> str:
    *most, last = map(str, words)
    return f"{', '.join(most)} or {last}"


def _nodes(text: str) -> int:
    if not text.isdecimal() or int(text) not in NODES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of nodes: say {_listed(NODES)}, or leave it to the seed"
        )
    return int(text)


def _numbers(text: str) -> tuple[int, ...]:
    if text == NONE:
        return ()
    words = _words(text)
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} are no numbers: say 3,7 or none")
    return tuple(int(word) for word in words)


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (number := float(text.removesuffix("s"))) < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is no time: say 12.5s")
