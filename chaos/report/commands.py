"""`fencepost chaos report`, `index`, `rounds`, `record`, `prune`: what is made of run folders.

Exit codes: 0 all was written (and of `rounds`: all is valid), 1 a run in it broke a promise or, with `index --strict`, is
not valid, 2 not understood (and of `rounds`: unknown).
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .markup import visible

if TYPE_CHECKING:
    from .record import Ledger

EXIT_BROKEN, EXIT_USAGE = 1, 2
RECORD_HERE: Final = Path(__file__).parents[1]


def add_commands(commands: Any) -> None:
    """To whatever `add_subparsers` has given; each sets `act`, which returns the exit code."""
    report = commands.add_parser("report", help="write the page of each run: DIR/report.html")
    report.add_argument(
        "runs", nargs="+", type=Path, metavar="DIR", help="a run, or a folder of runs"
    )
    report.set_defaults(act=_report)

    index = commands.add_parser("index", help="write the page over all runs beneath a folder")
    index.add_argument("folder", type=Path, metavar="DIR")
    index.add_argument(
        "--strict", action="store_true", help="exit with 1 unless every run is valid"
    )
    index.set_defaults(act=_index)

    record = commands.add_parser(
        "record", help="count runs and campaigns into chaos/RECORD.md, each once"
    )
    record.add_argument(
        "places",
        nargs="*",
        type=Path,
        metavar="DIR|FILE",
        help="folders of runs and of campaigns*.jsonl (fencepost sim run --summary)",
    )
    record.add_argument(
        "--into",
        type=Path,
        default=RECORD_HERE,
        metavar="DIR",
        help="the folder of RECORD.md and record.jsonl (the chaos folder of this checkout)",
    )
    record.add_argument("--show", action="store_true", help="print the tables, and write nothing")
    record.set_defaults(act=_record)

    _add_rounds(commands)

    prune = commands.add_parser(
        "prune", help="of valid runs keep the page and the counts, and drop the rest"
    )
    prune.add_argument("folder", type=Path, metavar="DIR")
    prune.set_defaults(act=_prune)


def _add_rounds(commands: Any) -> None:
    rounds = commands.add_parser(
        "rounds", help="run every target and kind of fault in turn, then write the index"
    )
    rounds.add_argument("--minutes", type=float, default=60.0, metavar="N", help="for so long (60)")
    rounds.add_argument(
        "--out", type=Path, default=Path("chaos-runs"), metavar="DIR", help="(chaos-runs)"
    )
    rounds.add_argument(
        "--seed", type=int, help="of the first ones; it counts up from there (by the clock)"
    )
    rounds.add_argument(
        "--targets",
        default="processes,containers,kafka",
        metavar="A,B",
        help="only these (all); one that this machine does not have is unknown, so name those that it has",
    )
    rounds.add_argument(
        "--faults",
        default="",
        metavar="A,B",
        help="only these kinds (all, and the older loops); one that can't be had here is unknown",
    )
    rounds.set_defaults(act=_rounds)


def _report(arguments: argparse.Namespace) -> int:
    from . import digest
    from .index import run_folders
    from .page import write_page

    folders = [run for place in arguments.runs for run in run_folders(place)]
    if not folders:
        asked = ", ".join(map(str, arguments.runs))
        return _refuse(f"no run in {asked}: a run is a folder with a run.json in it")
    for folder in folders:
        file = write_page(folder)
        made = digest.read(folder)
        _print(f"{file}: {made.headline if made else 'written'}")
    return 0


def _index(arguments: argparse.Namespace) -> int:
    from .index import digest_of, run_folders, write_index
    from .run_folder import VALID

    if not arguments.folder.is_dir():
        return _refuse(f"{arguments.folder} is no folder; name the one that your runs are in")
    print(write_index(arguments.folder))
    if not arguments.strict:
        return 0
    bad = [run for run in run_folders(arguments.folder) if digest_of(run).verdict != VALID]
    for each in bad:
        _print(f"{digest_of(each).headline}: {each}")
    return EXIT_BROKEN if bad else 0


def _record(arguments: argparse.Namespace) -> int:
    from . import record_tables
    from .nodes_code import NodesCode
    from .record import LEDGER, RECORD, Ledger, add_all

    missing = [place for place in arguments.places if not place.exists()]
    if missing:
        return _refuse(f"{missing[0]} is not there; name folders of runs, or files of campaigns")
    into: Path = arguments.into
    if not (into / RECORD).is_file():
        return _refuse(f"{into} has no {RECORD}; name its folder with --into")
    if arguments.show:
        ledger = Ledger.read(into / LEDGER)
        print(record_tables.tables(ledger, NodesCode()))
        return 0
    ledger = Ledger.read(into / LEDGER)
    add_all(ledger, arguments.places)
    record_tables.write(into / RECORD, ledger)
    _say(ledger, into)
    return 0


def _say(ledger: "Ledger", into: Path) -> None:
    from .seeds_once import counted_once

    campaigns = counted_once(ledger.campaigns.values())
    for problem in ledger.problems:
        print(visible(f"fencepost chaos record: {problem}"), file=sys.stderr)
    print(
        f"{ledger.added} lines added to {ledger.file}; {into / 'RECORD.md'} counts {len(ledger.runs):,} runs and "
        f"{sum(each.runs for each in campaigns):,} seeds"
    )


def _prune(arguments: argparse.Namespace) -> int:
    from .index import run_folders
    from .prune import prune

    if not arguments.folder.is_dir():
        return _refuse(f"{arguments.folder} is no folder; name the one that your runs are in")
    freed = sum(prune(folder) for folder in list(run_folders(arguments.folder)))
    print(f"{freed / 1e6:,.1f} MB freed")
    return 0


def _rounds(arguments: argparse.Namespace) -> int:
    import time

    from ..faults.kinds import FAULTS
    from ..runs.plan_words import TARGETS, WORKLOADS
    from .reach import reach
    from .record import LEDGER, Ledger
    from .rounds import Rounds, left_out, turns
    from .struck import Struck

    asked, only = _words(arguments.targets), _words(arguments.faults)
    for target in asked:
        if target not in TARGETS:
            return _refuse(f"{target!r} is no target; there are {', '.join(TARGETS)}")
    for name in only:
        if name not in FAULTS:
            return _refuse(f"{name!r} is no fault; there are {', '.join(FAULTS)}")
    here = reach(asked, only)
    for lack in here.lacking:
        _print(f"unknown: {lack}")
    if not here.known:
        what = f"{', '.join(only)} on " if only else ""
        where = ", ".join(asked) or "none named"
        return _refuse(f"this machine has none of what was asked for: {what}{where}")
    without = left_out(WORKLOADS, list(here.known))
    for each in without:
        _print(f"left out: {each}")
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    struck = Struck(Ledger.read(RECORD_HERE / LEDGER).runs.values())
    some = turns(here.known, WORKLOADS, seed, struck, loops=not only)
    rounds = Rounds(arguments.out, _print, struck, here.lacking, without)
    return rounds.go(some, arguments.minutes)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _print(sentence: str) -> None:
    """As it happens. A run may be called anything; a terminal obeys no name."""
    print("\n".join(map(visible, sentence.split("\n"))), flush=True)


def _refuse(why: str) -> int:
    print(f"fencepost chaos: {why}", file=sys.stderr)
    return EXIT_USAGE
