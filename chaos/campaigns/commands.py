"""`fencepost sim`: campaigns in the simulator, by seeds; a failing seed made small; its trace; planted bugs.

Exit codes: 0 all was well, 1 a promise was broken (or a planted bug was not seen), 2 not understood, 130 interrupted.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from .options import add_plan_options, plan_of, plans_of, seeds, why_not

if TYPE_CHECKING:
    from ..sim.plan import Plan
    from .campaign import Outcome
    from .runner import Totals

EXIT_BROKEN, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
CHECK_EVERY: Final = 50
SHRINK_S: Final = 120.0
SHRUNK_MAX: Final = 3  # failures; of each kind one


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    run_parser = actions.add_parser("run", help="run seeds of a campaign")
    run_parser.add_argument(
        "--seeds", type=seeds, default=range(20), metavar="A..B", help="from A up to, not with, B"
    )
    add_plan_options(run_parser)
    _add_jobs(run_parser)
    run_parser.add_argument(
        "--check-every",
        type=int,
        default=CHECK_EVERY,
        metavar="N",
        help=f"run every N-th seed once more in another process and compare the traces ({CHECK_EVERY}; 0: none)",
    )
    run_parser.add_argument(
        "--shrink",
        type=float,
        default=SHRINK_S,
        metavar="S",
        help="seconds to make a failure small",
    )
    run_parser.set_defaults(act=_run)

    show_parser = actions.add_parser("show", help="show what happens in one seed")
    show_parser.add_argument("--seeds", type=seeds, required=True, metavar="A", help="one seed")
    add_plan_options(show_parser)
    show_parser.add_argument("--all", action="store_true", help="also disks, network and Raft")
    show_parser.add_argument("--who", default="", metavar="A,B", help="only these (node-1,chaos,…)")
    show_parser.add_argument("--from", dest="from_s", type=float, default=0.0, metavar="S")
    show_parser.add_argument("--to", dest="to_s", type=float, default=float("inf"), metavar="S")
    show_parser.set_defaults(act=_show)

    planted_parser = actions.add_parser("planted", help="show that each planted bug is seen")
    planted_parser.add_argument("bugs", nargs="*", metavar="BUG", help="only these")
    planted_parser.add_argument("--list", action="store_true", help="name them, and run nothing")
    planted_parser.add_argument("--write", metavar="FILE", help="put the table into this README")
    _add_jobs(planted_parser)
    planted_parser.set_defaults(act=_planted)

    actions.add_parser("campaigns", help="name the campaigns and their faults").set_defaults(
        act=_campaigns
    )


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, help=f"seeds at one time ({cores})")


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.act(arguments)
    return code


# --- run ------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    from .progress import Progress
    from .runner import run_all

    plans = list(plans_of(arguments))
    if refused := why_not(plans[0]):
        return _refuse(refused)
    checks = Checks(arguments.check_every)
    progress = Progress(len(plans))

    def tell(outcome: "Outcome") -> None:
        if outcome.failure:
            progress.say(f"seed {outcome.plan.seed}: {outcome.failure}\n{outcome.told}")
            progress.say(f"again: {outcome.plan.command}")
        elif difference := checks.look(outcome):
            progress.say(f"seed {outcome.plan.seed}: {difference}\nagain: {outcome.plan.command}")
        progress.at(outcome)

    totals = run_all(plans, arguments.jobs, tell)
    progress.end()
    if totals.failed and arguments.shrink > 0 and not totals.interrupted:
        try:
            _shrink(totals, arguments)
        except KeyboardInterrupt:
            totals.interrupted = True
    return _conclude(totals, checks, len(plans))


def _conclude(totals: "Totals", checks: "Checks", wanted: int) -> int:
    if totals.counts:
        print(", ".join(f"{name} {count:,}" for name, count in sorted(totals.counts.items())))
    cut = f" of {wanted:,}, interrupted" if totals.interrupted else ""
    same = (
        f"; {checks.done} of them run twice, the same"
        if checks.done and not checks.different
        else ""
    )
    if checks.different:
        same = f"; {checks.different} seeds of {checks.done} were not the same run twice"
    print(f"{totals}{same}{cut}")
    if totals.failed:
        print(f"failed: {', '.join(str(each.plan.seed) for each in totals.failed[:20])}")
    if totals.failed or checks.different:
        return EXIT_BROKEN
    return EXIT_INTERRUPTED if totals.interrupted else 0


class Checks:
    """Every so many seeds, beginning with the first: is the same seed the same run in another process?"""

    def __init__(self, every: int) -> None:
        self._every = every
        self._seen = 0
        self.done = 0
        self.different = 0

    def look(self, outcome: "Outcome") -> str:
        """What differs, if it does."""
        from .again import differs

        self._seen += 1
        if not self._every or (self._seen - 1) % self._every:
            return ""
        self.done += 1
        difference = differs(outcome.plan, outcome.digest)
        self.different += bool(difference)
        return difference


def _shrink(totals: "Totals", arguments: argparse.Namespace) -> None:
    from .runner import outcomes
    from .shrink import Shrinker

    kinds: dict[str, Outcome] = {}
    for outcome in totals.failed:
        if outcome.digest:  # what a dead worker took with it can't be made smaller
            kinds.setdefault(outcome.kind, outcome)

    def runs(plans: "Iterable[Plan]") -> "Iterator[Outcome]":
        return outcomes(plans, arguments.jobs)

    for kind, outcome in list(kinds.items())[:SHRUNK_MAX]:
        shrunk = Shrinker(outcome, runs, seconds=arguments.shrink).shrink()
        command = shrunk.smallest.plan.command
        print(f"\n{kind}, seed {outcome.plan.seed}: {shrunk}", file=sys.stderr)
        print(f"  {shrunk.smallest.failure}", file=sys.stderr)
        print(f"again: {command}", file=sys.stderr)
        print(f"look:  {command.replace('sim run', 'sim show')}\n", file=sys.stderr)


# --- the others -----------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    from .campaign import run_plan
    from .show import Wanted, shown

    if len(arguments.seeds) > 1 or arguments.campaign == "all":
        return _refuse("one seed of one campaign can be shown: name it with --seeds and --campaign")
    plan = plan_of(arguments, arguments.campaign, arguments.seeds[0])
    if refused := why_not(plan):
        return _refuse(refused)
    lines: list[str] = []
    outcome = run_plan(plan, lines.append)
    who = tuple(word for word in arguments.who.split(",") if word)
    wanted = Wanted(arguments.all, who, arguments.from_s, arguments.to_s)
    for line in shown(lines, wanted):
        print(line)
    print(f"\nfaults: {', '.join(map(str, outcome.struck)) or 'none'}")
    print(f"clients: {', '.join(name for group in outcome.clients for name in group)}")
    print(outcome.failure or "nothing was broken")
    return EXIT_BROKEN if outcome.failure else 0


def _planted(arguments: argparse.Namespace) -> int:
    from ..planted.bugs import all_bugs
    from .planted_table import listed, seen, show_and_write

    known = all_bugs()
    for name in arguments.bugs:
        if name not in known:
            return _refuse(f"no bug is called {name!r}; there are: {', '.join(sorted(known))}")
    bugs = [known[name] for name in arguments.bugs] or list(known.values())
    if arguments.list:
        print(listed(bugs))
        return 0
    try:
        return show_and_write(seen(bugs, arguments.jobs), arguments.write)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _campaigns(_arguments: argparse.Namespace) -> int:
    from .campaign import CAMPAIGNS

    for campaign in CAMPAIGNS.values():
        print(f"{campaign.name}: {campaign.about}\n  faults: {', '.join(campaign.faults)}")
    return 0


def _refuse(why: str) -> int:
    print(f"fencepost sim: {why}", file=sys.stderr)
    return EXIT_USAGE
