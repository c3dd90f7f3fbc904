"""What the kill loops share: their options, where their data goes, and what their exit codes say.

Exit code 0 says VALID, 1 a broken promise, 2 that nothing could be said: no node came back, nothing was acknowledged, no fault
struck, or a signal came. With `--out DIR` all of the run is in there, the nodes' data too.

INVARIANT  who serves, and does not acknowledge in the time that the machine had for it, has broken a promise.
PREVENTS   a loop that is `unknown` whenever the brokers stand still.
PROVED BY  tests/chaos/test_loop_progress.py::test_a_loop_in_which_nothing_is_acknowledged_any_more_is_invalid
"""

import argparse
import os
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from ..checkers.busy import OWN_LOAD
from ..checkers.verdict import Verdict
from ..runs.folder import EXIT_CODES, HISTORY, UNKNOWN, VALID, NoRun
from ..runs.interrupts import CutsOff
from ..workloads import idempotent_stream, txn_process
from ..workloads.idempotent_stream import FOLLOWER, IdempotentStream
from .kept_run import Conclusion, KeptRun
from .local_cluster import wait_for
from .processes import DidNotStart

SHOWN_S = 60.0
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


def wait_shown(stream: IdempotentStream, seconds: float = SHOWN_S) -> None:
    """Until its follower was shown what is acknowledged by now, while all nodes serve."""
    owed = dict(stream.ends)
    what = "the follower is shown what was acknowledged"
    try:
        wait_for_progress(what, lambda: not (stream.unshown(owed) and stream.follows), seconds)
    except NoProgress as error:
        raise NoProgress(f"{error}; not of {stream.unshown(owed)}") from error
    is_told = any(op.f == "die" and op.process == FOLLOWER for op in stream.history)
    if stream.unshown(owed) and not is_told:
        raise TimeoutError("the follower has ended, and nobody knows why")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a loop has to say at its end; `history` is written down when that is bad."""

    lines: Sequence[str]
    verdict: Verdict
    history: Iterable[str]
    broken: Sequence[str] = ()  # sentences of what the loop itself has seen
    lacks: Sequence[str] = ()  # sentences: what was not done, and should have been

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
        return EXIT_CODES[UNKNOWN]
    folder = chosen.data or _place(name, chosen.out) / "data"
    with CutsOff() as signals:
        try:
            outcome = run(chosen, folder, kept_run)
            signals.over()
            said = _judged(outcome, chosen, folder, kept_run)
        except (BrokenPromise, *DAMAGED) as seen:
            said = kept_run.broken(str(seen))
        except (DidNotStart, KafkaException, TimeoutError) as error:
            said = kept_run.unknown(str(error))
        except KeyboardInterrupt:
            said = kept_run.unknown(f"{signals.asked or 'Ctrl-C'} came before the run was through")
        except Exception as unforeseen:  # noqa: BLE001 - a traceback would end with the code of `invalid`
            traceback.print_exc()
            said = kept_run.unforeseen(unforeseen)
    print(said)
    if chosen.data is None and (said.verdict == VALID or chosen.spoil):
        shutil.rmtree(folder.parent, ignore_errors=True)
    elif said.verdict != VALID:
        print(f"the data and the logs are in {folder} and beside it")
    return said.exit_code


DAMAGED: Final = (idempotent_stream.Damaged, txn_process.Damaged)


def _place(name: str, out: Path | None) -> Path:
    """In the run's folder, where there is one, so that whoever is killed leaves all in one place."""
    return out / "nodes" if out is not None else Path(tempfile.mkdtemp(prefix=f"{name}-"))


def _judged(
    outcome: Outcome, chosen: argparse.Namespace, folder: Path, kept_run: KeptRun
) -> Conclusion:
    lines = [f"{'seed':>{NAME_WIDTH}}  {chosen.seed}", *outcome.lines, *outcome.broken]
    print("\n".join([*lines, outcome.verdict.told]))
    history = list(outcome.history)
    said = kept_run.judged(outcome.verdict, outcome.broken, history, outcome.lacks)
    kept = chosen.history
    if said.verdict != VALID and not chosen.spoil and chosen.out is None:
        kept = kept or folder.parent / HISTORY
        print(f"the history is in {kept}")
    if kept is not None:
        with kept.open("w") as file:
            file.writelines(f"{line}\n" for line in history)
    return said


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
