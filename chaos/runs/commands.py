"""`fencepost chaos`: real brokers broken on purpose under load, and what was found, judged again and shown.

Exit codes: 0 valid, 1 invalid, 2 unknown (or not understood).
"""

import argparse
import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from .plan_words import FAULTS_BY_DEFAULT, TARGETS, WORKLOADS
from .told import EXIT_UNKNOWN, told_whole

if TYPE_CHECKING:
    from .plan import Plan

PAGES: Final = "fencepost.chaos.report.page"
DIGESTS: Final = "fencepost.chaos.report.digest"
MORE_COMMANDS: Final = "fencepost.chaos.report.commands"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    run_parser = actions.add_parser("run", help="start brokers and clients, break them, judge")
    _configure_run(run_parser)
    check_parser = actions.add_parser("check", help="judge runs again, from what they left")
    check_parser.add_argument(
        "folders", nargs="+", type=Path, metavar="DIR", help="of one run each; files are passed by"
    )
    check_parser.set_defaults(act=_check)
    with suppress(ModuleNotFoundError):
        importlib.import_module(MORE_COMMANDS).add_commands(actions)


def _configure_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--workload",
        choices=WORKLOADS,
        default="queue",
        help="Jepsen's queue, money moved, or clients of the simulator (queue)",
    )
    add("--target", choices=TARGETS, default="processes", help="what the brokers are (processes)")
    add(
        "--faults",
        type=_words,
        default=FAULTS_BY_DEFAULT,
        metavar="A,B",
        help=f"kinds of faults, or none ({','.join(FAULTS_BY_DEFAULT)}); a wrong one is told all",
    )
    add("--at-once", type=_count, default=1, metavar="N", help="faults at a time (1)")
    add("--seconds", type=_seconds, default=60.0, metavar="S", help="of load and faults (60)")
    add("--seed", type=int, default=1, help="of faults and clients (1)")
    add("--nodes", type=_count, default=3, metavar="N", help="brokers (3)")
    add("--out", type=Path, metavar="DIR", help="the run's folder (chaos-runs/…)")
    add("--clients", type=_count, default=5, metavar="N", help="processes (5, at most 63)")
    add("--rate", type=_seconds, default=10.0, metavar="N", help="operations a second, each (10)")
    add("--keys", type=_count, default=8, metavar="N", help="partitions in use at a time (8)")
    add("--writes-max", type=_count, default=1024, metavar="N", help="to a key (1024)")
    add("--via", type=_words, default=("assign", "subscribe"), metavar="A,B", help="how to consume")
    add("--no-transactions", dest="transactions", action="store_false", help="single steps")
    add("--crash-s", type=float, default=30.0, metavar="S", help="a client lives so long; 0: on")
    add("--final-s", type=_seconds, default=200.0, metavar="S", help="for final polls (200)")
    add("--age-s", type=_seconds, default=0.0, metavar="S", help="to epoch 32764 (epochs): at most")
    add("--older", metavar="REV|DIR", help="the build that an upgrade begins on (README of faults)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="a broker's setting")
    parser.set_defaults(act=_run)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (number := float(text)) < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")


def run(arguments: argparse.Namespace) -> int:
    return told_whole(lambda: arguments.act(arguments))


def _say(sentence: str) -> None:
    print(sentence, flush=True)


def _refuse(why: object) -> int:
    print(f"fencepost: {why}", file=sys.stderr)
    return EXIT_UNKNOWN


# -- run -------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    from ..faults.system import CannotDo
    from ..harness.processes import DidNotStart
    from .folder import EXIT_CODES, NoRun, RunFolder, where_by_default
    from .run import Run

    plan = _plan(arguments)
    if isinstance(plan, str):
        return _refuse(plan)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    folder = RunFolder(arguments.out or where_by_default(plan.name, plan.seed, now))
    try:
        run = Run(plan, folder, _say)
        if refused := _why_no_folder(folder.path):
            return _refuse(refused)
        _say(f"{plan.command}\nthe run is in {folder.path}")
        summary = run.go()
    except (CannotDo, DidNotStart, NoRun) as refused:
        return _refuse(refused)
    except Exception as unforeseen:  # noqa: BLE001 - a traceback would end with the code of `invalid`
        return _refuse(f"nothing is known of this run: {type(unforeseen).__name__}: {unforeseen}")
    _write_page(folder.path, _say)
    return EXIT_CODES[summary["verdict"]]


def _why_no_folder(path: Path) -> str:
    """Why no run can be kept there; empty when one can, and then the folder is there."""
    try:
        if path.is_dir() and any(path.iterdir()):
            return f"{path} is not empty: name a folder that is not there yet with --out"
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            return ""
    except OSError as error:
        return (
            f"{path} can't hold a run: {error.strerror}; name a folder that is not there yet, in one that"
            " you may write in, with --out"
        )


def _plan(arguments: argparse.Namespace) -> "Plan | str":
    """Or why there is none."""
    from ..faults.kinds import why_none
    from ..faults.older import OLDER
    from .plan import VIAS, Plan

    if not arguments.faults:
        return "--faults names none; say `--faults none` for a run in which nothing is done"
    if sentences := [why for name in arguments.faults if (why := why_none(name))]:
        return sentences[0]
    if wrong := [via for via in arguments.via if via not in VIAS]:
        return f"--via {wrong[0]!r} is no way to consume; there are {', '.join(VIAS)}"
    if arguments.clients > CLIENTS_MAX:
        return f"--clients {arguments.clients} is too many; at most {CLIENTS_MAX} are told apart"
    return Plan(
        workload=arguments.workload,
        target=arguments.target,
        faults=arguments.faults,
        seconds=arguments.seconds,
        seed=arguments.seed,
        nodes=arguments.nodes,
        at_once=arguments.at_once,
        clients=arguments.clients,
        rate=arguments.rate,
        keys=arguments.keys,
        writes_max=arguments.writes_max,
        via=arguments.via,
        transactions=arguments.transactions,
        crash_s=arguments.crash_s,
        final_s=arguments.final_s,
        age_s=arguments.age_s,
        older=arguments.older or OLDER,
        settings=tuple(arguments.set),
    )


CLIENTS_MAX: Final = 63


def _write_page(folder: Path, say: Callable[[str], None]) -> None:
    """The report, where that part is installed."""
    with suppress(ModuleNotFoundError):
        pages = importlib.import_module(PAGES)
        try:
            say(f"the report is {pages.write_page(folder)}")
        except Exception as unforeseen:  # noqa: BLE001 - the verdict stands, and its exit code
            say(f"there is no report: {type(unforeseen).__name__}: {unforeseen}")


# -- check -----------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    """What is a file is passed by: `chaos-runs/*` names an index and the lines of campaigns, too."""
    folders = [path for path in arguments.folders if not _is_file(path)]
    if not folders:
        asked = ", ".join(map(str, arguments.folders))
        return _refuse(
            f"no run in {asked}: a run is a folder with a run.json in it; name such folders"
        )
    worst = 0
    for path in folders:
        _say(f"{path}:")
        code = _judged(path)
        worst = 1 if 1 in (worst, code) else max(worst, code)
    return worst


def _is_file(path: Path) -> bool:
    with suppress(OSError):  # of a place that may not be looked into: whoever judges it says so
        return path.is_file()
    return False


def _judged(path: Path) -> int:
    """Whatever is wrong with one folder, the others are judged."""
    from .folder import EXIT_CODES, VALID, NoRun, RunFolder
    from .judging import judge

    try:
        if _was_pruned(path):
            _say(f"VALID, as {path} was found to be before it was pruned: nothing is left to judge")
            return EXIT_CODES[VALID]
        return EXIT_CODES[judge(RunFolder(path), _say)["verdict"]]
    except NoRun as none:
        return _refuse(none)
    except Exception as unforeseen:  # noqa: BLE001 - a traceback would end with the code of `invalid`
        return _refuse(f"{path} could not be judged: {type(unforeseen).__name__} {unforeseen}")


def _was_pruned(path: Path) -> bool:
    """A valid run, whose history was counted and is gone on purpose; where that part is installed."""
    with suppress(ModuleNotFoundError):
        return importlib.import_module(DIGESTS).stands(path) is not None
    return False
