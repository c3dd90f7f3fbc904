"""`fencepost sim`: campaigns in the simulator, by seeds; a failing seed made small; its trace; planted bugs.

Exit codes: 0 all was well, 1 a promise was broken (or a planted bug was not seen), 2 not understood, nothing was acknowledged
in all seeds of a campaign, or the summary could not be written, 130 interrupted.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS

from ..runs.interrupts import EXIT_INTERRUPTED, HeardAtLast
from ..runs.told import write_no_more
from ..sim.plan import CLIENTS
from .options import (
    HAVE_NODES,
    add_plan_options,
    at_least_one,
    make_light,
    plan_of,
    plans_of,
    seeds,
    why_not,
)

if TYPE_CHECKING:
    from ..sim.plan import Plan
    from .campaign import Outcome
    from .runner import Totals
    from .summary import Summary

EXIT_BROKEN, EXIT_USAGE = 1, 2
EXIT_UNKNOWN: Final = EXIT_USAGE
CHECK_EVERY: Final = 50
CHECK_FIRST_S: Final = 3
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
        "--check-first",
        type=int,
        default=CHECK_FIRST_S,
        metavar="S",
        help=f"of every seed run the first S virtual seconds in another process, too, and compare ({CHECK_FIRST_S}; 0: none)",
    )
    run_parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="append a line of JSON for each campaign"
    )
    run_parser.add_argument(
        "--light",
        action="store_true",
        help="how fast is it: a minute of three nodes, written to once a second and read five times, without faults",
    )
    run_parser.add_argument(
        "--shrink",
        type=float,
        default=SHRINK_S,
        metavar="S",
        help="seconds to make a failure small",
    )
    run_parser.set_defaults(act=_run)

    _configure_show(actions)
    _configure_planted(actions)
    actions.add_parser(
        "campaigns", help="name the campaigns, their faults and workloads"
    ).set_defaults(act=_campaigns)


def _configure_show(actions: Any) -> None:
    show_parser = actions.add_parser("show", help="show what happens in one seed")
    show_parser.add_argument("--seeds", type=seeds, required=True, metavar="A", help="one seed")
    add_plan_options(show_parser)
    show_parser.add_argument("--all", action="store_true", help="also disks, network and Raft")
    show_parser.add_argument("--who", default="", metavar="A,B", help="only these (node-1,chaos,…)")
    show_parser.add_argument("--from", dest="from_s", type=float, default=0.0, metavar="S")
    show_parser.add_argument("--to", dest="to_s", type=float, default=float("inf"), metavar="S")
    show_parser.set_defaults(act=_show)


def _configure_planted(actions: Any) -> None:
    planted_parser = actions.add_parser(
        "planted",
        help="show that each planted bug is seen",
        description="Show that each planted bug is seen. Measured: all of them take 2 to 4 minutes on two cores that do"
        " nothing else. Ctrl-C and SIGTERM end it with what was seen by then.",
    )
    planted_parser.add_argument("bugs", nargs="*", metavar="BUG", help="only these; also open ones")
    planted_parser.add_argument("--list", action="store_true", help="name them, and run nothing")
    planted_parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the table into this README"
    )
    planted_parser.add_argument(
        "--watch",
        default="",
        choices=("", CLIENTS),
        help="`clients`: who sees it that looks into no node, as on real ones (a column of its own)",
    )
    _add_jobs(planted_parser)
    planted_parser.set_defaults(act=_planted)


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--jobs", type=at_least_one, default=cores, help=f"seeds at one time ({cores})"
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.act(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # who read it went away: seeds that nobody saw have not passed
        write_no_more(sys.stdout)
        return EXIT_BROKEN
    except OSError as full:
        if full.errno not in DISK_FULL_ERRNOS:
            raise
        write_no_more(sys.stdout)
        what = f"standard output takes no more ({full.strerror}): what was found is not all told"
        print(f"fencepost sim: {what}. Make room, or send it elsewhere.", file=sys.stderr)
        return EXIT_UNKNOWN
    return code


# --- run ------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    from .progress import Progress
    from .runner import run_all
    from .summary import Summary

    if arguments.light:
        make_light(arguments)
    plans = list(plans_of(arguments))
    if refused := why_not(plans[0]) or _why_no_summary(arguments.summary):
        return _refuse(refused)
    checks = Checks(arguments.check_every)
    progress = Progress(len(plans))
    first = plans[0].campaign  # the others begin when their first seed has ended
    summaries = {first: Summary(first)}

    def tell(outcome: "Outcome") -> None:
        name = outcome.plan.campaign
        if name not in summaries:
            summaries[name] = Summary(name)
        summaries[name].add(outcome)
        if outcome.failure:
            progress.say(f"seed {outcome.plan.seed}: {outcome.failure}\n{outcome.told}")
            progress.say(f"again: {outcome.plan.command}")
        if difference := outcome.differs or ("" if outcome.failure else checks.look(outcome)):
            progress.say(f"seed {outcome.plan.seed}: {difference}\nagain: {outcome.plan.command}")
        progress.at(outcome)

    with HeardAtLast() as signals:
        totals = run_all(plans, arguments.jobs, tell, twice_s=arguments.check_first)
        try:
            progress.end()
            if totals.failed and arguments.shrink > 0 and not totals.interrupted:
                _shrink(totals, arguments, summaries)
        except KeyboardInterrupt:
            totals.interrupted = True
        signals.over()
        unwritten = _sum_up(summaries, checks, arguments.summary, interrupted=totals.interrupted)
        # Of which clients were left out, it may be those who write.
        nothing = [
            f"{name}: nothing was acknowledged in any seed"
            for name in summaries
            if summaries[name].is_empty and not arguments.keep_clients
        ]
        for name, each in summaries.items():
            nothing += [f"{name}: no {scene} came to its end" for scene in each.never_played]
        code = _conclude(totals, checks, len(plans), nothing)
        for sentence in unwritten:
            print(f"fencepost sim: {sentence}", file=sys.stderr)
        return EXIT_UNKNOWN if unwritten and code != EXIT_BROKEN else code


def _why_no_summary(file: Path | None) -> str:
    from .summary import why_not as why_not_into

    return "" if file is None else why_not_into(file)


def _sum_up(
    summaries: "dict[str, Summary]", checks: "Checks", file: Path | None, *, interrupted: bool
) -> list[str]:
    """A sentence for each line that could not be appended, with all that it says: it can be put there by hand."""
    from .summary import append

    unwritten = []
    for name, each in summaries.items():
        print(f"traces of {name}: {each.traces}")
        if file is None:
            continue
        done, different = checks.of(name)
        line = each.line(run_twice=done, different=different, interrupted=interrupted)
        try:
            append(file, line)
        except OSError as error:
            told = json.dumps(line, ensure_ascii=False)
            unwritten.append(
                f"--summary {file} lacks the line of {name}: {error.strerror}; make room and append it: {told}"
            )
    return unwritten


def _conclude(totals: "Totals", checks: "Checks", wanted: int, nothing: Sequence[str] = ()) -> int:
    """`nothing`: sentences, of campaigns in which nothing came of what they are there for."""
    if totals.counts:
        print(", ".join(f"{name} {count:,}" for name, count in sorted(totals.counts.items())))
    cut = f" of {wanted:,}, interrupted" if totals.interrupted else ""
    different = checks.different + totals.different
    same = f"; {checks.done} of them run twice, the same" if checks.done and not different else ""
    if different:
        same = f"; {different} seeds were not the same run twice"
    print(f"{totals}{same}{cut}")
    if totals.failed:
        print(f"failed: {', '.join(str(each.plan.seed) for each in totals.failed[:20])}")
    if totals.failed or different:
        return EXIT_BROKEN
    if totals.interrupted:
        return EXIT_INTERRUPTED
    for each in nothing:
        print(f"{each}: this proves nothing")
    return EXIT_UNKNOWN if nothing else 0


class Checks:
    """Every so many seeds, beginning with the first: is the same seed the same run in another process?"""

    def __init__(self, every: int) -> None:
        self._every = every
        self._seen = 0
        self._by_campaign: dict[str, tuple[int, int]] = {}

    @property
    def done(self) -> int:
        return sum(done for done, _ in self._by_campaign.values())

    @property
    def different(self) -> int:
        return sum(different for _, different in self._by_campaign.values())

    def of(self, campaign: str) -> tuple[int, int]:
        """How many of this campaign were run twice, and were not the same."""
        return self._by_campaign.get(campaign, (0, 0))

    def look(self, outcome: "Outcome") -> str:
        """What differs, if it does."""
        from .again import differs

        self._seen += 1
        if not self._every or (self._seen - 1) % self._every:
            return ""
        difference = differs(outcome.plan, outcome.digest)
        done, different = self.of(outcome.plan.campaign)
        self._by_campaign[outcome.plan.campaign] = done + 1, different + bool(difference)
        return difference


def _shrink(
    totals: "Totals", arguments: argparse.Namespace, summaries: "dict[str, Summary]"
) -> None:
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
        summaries[outcome.plan.campaign].shrunk(outcome.plan.seed, command)
        print(f"\n{kind}, seed {outcome.plan.seed}: {shrunk}", file=sys.stderr)
        print(f"  {shrunk.smallest.failure}", file=sys.stderr)
        print(f"again: {command}", file=sys.stderr)
        print(f"look:  {command.replace('sim run', 'sim show')}\n", file=sys.stderr)


# --- the others -----------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    from .campaign import run_plan
    from .show import Wanted, shown, strangers

    if len(arguments.seeds) > 1 or arguments.campaign == "all":
        return _refuse("one seed of one campaign can be shown: name it with --seeds and --campaign")
    plan = plan_of(arguments, arguments.campaign, arguments.seeds[0])
    if refused := why_not(plan):
        return _refuse(refused)
    lines: list[str] = []
    outcome = run_plan(plan, lines.append)
    who = tuple(word for word in arguments.who.split(",") if word)
    if unknown := strangers(lines, who):
        return _refuse(unknown)
    wanted = Wanted(arguments.all, who, arguments.from_s, arguments.to_s)
    events = list(shown(lines, wanted))
    for line in events or [
        "nothing is shown: disks, network and Raft are with --all, other times with --from and --to"
    ]:
        print(line)
    print(f"\nfaults: {', '.join(map(str, outcome.struck)) or 'none'}")
    print(f"clients: {', '.join(name for group in outcome.clients for name in group)}")
    print(outcome.failure or "nothing was broken")
    return EXIT_BROKEN if outcome.failure else 0


def _planted(arguments: argparse.Namespace) -> int:
    from ..planted.bugs import all_bugs
    from .planted_table import hunted, listed, seen, show_and_write, why_no_table

    known = all_bugs()
    for name in arguments.bugs:
        if name not in known:
            return _refuse(f"no bug is called {name!r}; there are: {', '.join(sorted(known))}")
    if arguments.list:
        print(listed([known[name] for name in arguments.bugs] or list(known.values())))
        return 0
    if arguments.write and (refused := why_no_table(arguments.write)):
        return _refuse(refused)
    bugs = hunted(arguments.bugs, arguments.watch)
    if arguments.watch and any(each.campaign not in HAVE_NODES for each in bugs):
        return _refuse(
            f"--watch {arguments.watch}: bugs of quorum have no clients that could see them"
        )
    with HeardAtLast() as signals:
        sightings = seen(bugs, arguments.jobs, arguments.watch)
        return show_and_write(sightings, arguments.write, len(bugs), signals.over)


def _campaigns(_arguments: argparse.Namespace) -> int:
    from .campaign import CAMPAIGNS

    for campaign in CAMPAIGNS.values():
        print(f"{campaign.name}: {campaign.about}\n  faults: {', '.join(campaign.faults)}")
        if campaign.workloads:
            print(f"  workloads: {', '.join(campaign.workloads)}")
    return 0


def _refuse(why: str) -> int:
    print(f"fencepost sim: {why}", file=sys.stderr)
    return EXIT_USAGE
