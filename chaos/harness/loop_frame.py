"""What the kill loops share: their options, where their data goes, and what their exit codes say.

Exit code 0 says VALID, 1 a broken promise, 2 that nothing could be said: no node came back, or nothing was acknowledged.

INVARIANT  who serves, and does not acknowledge in the time that the machine had for it, has broken a promise.
PREVENTS   a loop that is `unknown` whenever the brokers stand still.
PROVED BY  tests/chaos/test_loop_progress.py::test_a_loop_in_which_nothing_is_acknowledged_any_more_is_invalid
"""

import argparse
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from ..checkers.busy import OWN_LOAD
from ..checkers.verdict import Verdict
from ..runs.folder import NoRun
from ..workloads.txn_process import Damaged
from .kept_run import KeptRun
from .local_cluster import wait_for
from .processes import DidNotStart

NAME_WIDTH = 18  # as in the verdict's own lines


class BrokenPromise(Exception):
    """What must not be, seen by a loop itself."""


class NoProgress(BrokenPromise):
    """Whoever should serve is there, and acknowledges nothing."""


def patience_s(seconds: float) -> float:
    """So many seconds of a machine that has nothing else to do."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * max(1.0, load / OWN_LOAD)


def wait_for_progress(what: str, condition: Callable[[], bool], seconds: float) -> float:
    """Seconds until it held; `NoProgress` when it does not come in time."""
    try:
        return wait_for(what, condition, patience_s(seconds))
    except TimeoutError as error:
        raise NoProgress(str(error)) from error


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a loop has to say at its end; `history` is written down when that is bad."""

    lines: Sequence[str]
    verdict: Verdict
    history: Iterable[str]
    broken: Sequence[str] = ()  # sentences of what the loop itself has seen

    @property
    def good(self) -> bool:
        return self.verdict.valid and not self.broken


def options(
    description: str, *, producers: int, partitions: int, rate: int, spoils: Iterable[str]
) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--seconds", type=float, default=60.0)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--producers", type=int, default=producers)
    made.add_argument("--partitions", type=int, default=partitions)
    made.add_argument("--rate", type=int, default=rate, help="a second and producer")
    made.add_argument(
        "--data", type=Path, help="default: a folder that is removed when all is well"
    )
    made.add_argument("--history", type=Path, help="write the history there, as JSON lines")
    made.add_argument("--out", type=Path, help="a folder for the run, with its page report.html")
    made.add_argument("--spoil", choices=sorted(spoils), help="spoil the history; it must be seen")
    return made


def run_loop(
    name: str,
    chosen: argparse.Namespace,
    run: Callable[[argparse.Namespace, Path, KeptRun], Outcome],
) -> int:
    """Run it, print what it has to say, keep what a bad end has to be understood by."""
    kept_run = KeptRun(chosen.out)
    try:
        kept_run.create(name, chosen)
    except NoRun as error:
        print(error)
        return 2
    folder = chosen.data or Path(tempfile.mkdtemp(prefix=f"{name}-")) / "data"
    where = f"the data and the logs are in {folder} and beside it"
    try:
        outcome = run(chosen, folder, kept_run)
    except (BrokenPromise, Damaged) as seen:
        print(f"INVALID: {seen}\n{where}")
        kept_run.broken(str(seen))
        return 1
    except (DidNotStart, KafkaException, TimeoutError) as error:
        print(f"INVALID: {error}\n{where}")
        kept_run.unknown(str(error))
        return 2
    lines = [f"{'seed':>{NAME_WIDTH}}  {chosen.seed}", *outcome.lines, *outcome.broken]
    print("\n".join([*lines, str(outcome.verdict)]))
    history = list(outcome.history)
    kept_run.judged(outcome.verdict, outcome.broken, history)
    kept = chosen.history
    if not outcome.good and not chosen.spoil:
        kept = kept or folder.parent / "history.jsonl"
        print(f"INVALID; {where}, the history in {kept}")
    if kept is not None:
        with kept.open("w") as file:
            file.writelines(f"{line}\n" for line in history)
    if chosen.data is None and (outcome.good or chosen.spoil):
        shutil.rmtree(folder.parent, ignore_errors=True)
    return 0 if outcome.good else 1


def lines_of(counts: Counter[str], times: Mapping[str, Sequence[float]], what: str) -> list[str]:
    """How often each fault struck, and how long it then took until `what`."""
    lines = []
    for name, count in sorted(counts.items()):
        line = f"{name:>{NAME_WIDTH}}  {count}"
        if took := sorted(times.get(name, ())):
            middle = took[len(took) // 2]
            line += f", {what} after {middle:.2f} s (median), {took[-1]:.2f} s (worst)"
        lines.append(line)
    return lines
