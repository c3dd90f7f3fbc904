"""`make chaos`: every workload, target and kind of fault in turn until the time is up, each run in a folder; then the index.

INVARIANT  a run that leaves nothing, or does not end, counts as unknown and fails the round; so does each target and each kind
           of fault that this machine lacks, unless it was left out by name. No run goes on without its round: one Ctrl-C or
           SIGTERM ends a run as if it had been told to it alone, the run counts, and the index is written.
PREVENTS   an hour of chaos that is green because half of it did not start; nodes that are broken on and on with nobody there.
PROVED BY  tests/chaos/test_report_rounds.py::test_a_run_that_leaves_nothing_behind_fails_the_round,
           tests/chaos/test_report_rounds.py::test_what_this_machine_lacks_is_unknown_however_well_all_else_went,
           tests/chaos/test_rounds_ended.py::test_a_round_that_is_asked_to_end_asks_its_run_once_and_counts_it
"""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from fencepost.node.cli.children import die_with_parent

from ..runs.interrupts import Interrupts
from ..runs.plan_words import NOT_IN, NOT_ON, QUEUE, TRANSACTIONAL
from . import digest
from .index import run_folders, write_index
from .page import PAGE, write_page
from .run_folder import INVALID, RUN, UNKNOWN, VALID
from .struck import Struck

EXIT_CODES: Final = {VALID: 0, INVALID: 1, UNKNOWN: 2}
LOAD_S: Final = 60.0  # of one run
AROUND_S: Final = 45.0  # starts, final polls, the verdict
SLOWEST_S: Final = 900.0  # a run that takes so much longer than its load does not end
STOP_S: Final = 180.0  # for one that was asked to end: nodes come back, what is known is judged
TWICE_S: Final = 30.0  # for one that was asked twice, and waits for nobody
LOOK_S: Final = 0.1
LOOPS: Final = ("cluster_kill_loop", "transactions_kill_loop", "kill_loop")
PROCESSES: Final = "processes"
MIXED_MAX: Final = 6  # kinds of faults in a run of several
DRAIN: Final = "drain"
TWO_ODDS: Final = 0.25  # of a run of several faults, to have two at a time
DRAINED_NODES: Final = "4"  # a node more than copies: of three, none can give away what it has


@dataclass(frozen=True, slots=True)
class Turn:
    """One run to be."""

    name: str
    words: tuple[str, ...]  # what is run, without --seconds, --seed and --out
    seed: int

    def command(self, seconds: float, out: Path) -> list[str]:
        return [
            sys.executable,
            "-m",
            *self.words,
            *("--seconds", f"{seconds:g}"),
            *("--seed", str(self.seed)),
            *("--out", str(out)),
        ]


# -- what there is -----------------------------------------------------------------------------------


def turns(
    known: Mapping[str, Sequence[str]],
    workloads: Sequence[str],
    seed: int,
    struck: Struck,
    *,
    loops: bool = True,
) -> Iterator[Turn]:
    """For ever. `known` are the targets, and the faults that each of them can have.

    Each time around: some faults that all targets can have, in all of them with the same seed, so that they can be
    compared, every second time the queue without transactions; one of the older loops; some of all the faults that a target
    can have, now and then two at a time; one fault alone. Of all these the faults that struck least, as `struck` has it by
    then.
    """
    rng, two_dice = random.Random(seed), random.Random(f"{seed}/two")
    targets = list(known)
    everything = list(dict.fromkeys(name for names in known.values() for name in names))
    common = [name for name in everything if all(name in names for names in known.values())]
    for number in count(seed) if everything else ():
        at = number - seed
        workload = workloads[at % len(workloads)]
        can = {target: may_have(workload, target, names) for target, names in known.items()}
        if both := may_have(workload, "", common):
            some = struck.least(rng, targets, both, rng.randint(2, MIXED_MAX))
            options: tuple[str, ...] = ()
            plain = [fault for fault in some if fault not in TRANSACTIONAL]
            if workload == QUEUE and plain and at // len(workloads) % 2:
                some, options = plain, ("--no-transactions",)
            for target in targets:
                if can[target]:
                    yield _turn(workload, target, some, number, struck, *options)
        if loops and PROCESSES in known:
            loop = LOOPS[at % len(LOOPS)]
            yield Turn(loop.replace("_", "-"), (f"fencepost.chaos.harness.{loop}",), number)
        for target, names in can.items():
            if len(names) > len(both):
                some = struck.least(rng, [target], names, rng.randint(2, MIXED_MAX))
                two = ("--at-once", "2") if two_dice.random() < TWO_ODDS else ()
                yield _turn(workload, target, some, number, struck, *two)
        first = targets[0]  # whose faults are the ones to be seen; others have it for comparison
        for one in struck.least(rng, [first], can[first], 1):
            for target, names in can.items():
                if one in names:
                    yield _turn(workload, target, [one], number, struck)


def may_have(workload: str, target: str, faults: Sequence[str]) -> list[str]:
    """Of these faults; nothing where the workload can't be had on the target at all."""
    if (workload, target) in NOT_ON:
        return []
    return [fault for fault in faults if (workload, fault) not in NOT_IN]


def left_out(workloads: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Sentences: what of all this can't be had on any machine."""
    found = [
        f"the workload {workload} is not run on {target}: {why}"
        for (workload, target), why in NOT_ON.items()
        if workload in workloads and target in targets
    ]
    whys: dict[tuple[str, str], list[str]] = {}
    for (workload, fault), why in NOT_IN.items():
        if workload in workloads:
            whys.setdefault((workload, why), []).append(fault)
    found += [
        f"the workload {workload} is run without {' and '.join(faults)}: {why}"
        for (workload, why), faults in whys.items()
    ]
    return found


def _turn(
    workload: str, target: str, some: Sequence[str], seed: int, struck: Struck, *options: str
) -> Turn:
    faults = sorted(some)
    struck.ask(target, faults)
    words = ("fencepost.node.main", "chaos", "run", "--workload", workload, "--target", target)
    more = ("--nodes", DRAINED_NODES) if DRAIN in faults else ()
    name = "-".join([workload, target, *faults, *(each.strip("-") for each in options)])
    return Turn(name, (*words, *more, *options, "--faults", ",".join(faults)), seed)


# -- a round -----------------------------------------------------------------------------------------


class Rounds:
    """`go` runs turns until the time is up; the exit code is that of the worst of them."""

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        struck: Struck | None = None,
        lacking: Sequence[str] = (),
        left_out: Sequence[str] = (),
    ) -> None:
        """`lacking`: a sentence for each target and kind of fault that this machine does not have; `left_out`: for what no
        machine has."""
        self.left_out = [f"left out: {each}" for each in left_out]
        self.folder = folder
        self.say = say
        self.interrupts = Interrupts()
        self.struck = struck or Struck()
        self.verdicts: Counter[str] = Counter({UNKNOWN: len(lacking)} if lacking else {})
        self.bad = [f"{UNKNOWN}: {each}" for each in lacking]

    def go(self, all_turns: Iterator[Turn], minutes: float) -> int:
        deadline = time.monotonic() + 60 * minutes
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.interrupts:
            with suppress(KeyboardInterrupt):  # asked twice
                for number, turn in enumerate(all_turns):
                    left = deadline - time.monotonic()
                    if self.interrupts or (number and left < LOAD_S / 2 + AROUND_S):
                        break
                    seconds = max(5.0, min(LOAD_S, left - AROUND_S))
                    self._take(turn, round(seconds))
            if self.interrupts:
                self.bad.append(f"{UNKNOWN}: {self.interrupts.asked} came before the time was up")
            self.say(self.conclusion(write_index(self.folder)))
        codes = [EXIT_CODES[each] for each in self.verdicts]
        if self.interrupts or not codes:
            codes.append(EXIT_CODES[UNKNOWN])
        return max(codes, key=_worst)

    def _take(self, turn: Turn, seconds: float) -> None:
        out = self._place(f"{time.strftime('%Y%m%d-%H%M%S')}-{turn.name}-{turn.seed}")
        command = turn.command(seconds, out)
        log = out.with_suffix(".log")
        with log.open("w") as file:
            code = _finished(command, file.fileno(), seconds + SLOWEST_S, self.interrupts)
        verdict, headline = self._outcome(out)
        self.verdicts[verdict] += 1
        self.say(f"{turn.name}, seed {turn.seed}: {headline}")
        if verdict == VALID:
            log.unlink()
            return
        self.bad.append(f"{verdict}: {out}")
        self.say(f"  exit code {code}; what it said is in {log}, what it left in {out}")

    def _outcome(self, out: Path) -> tuple[str, str]:
        if not (out / RUN).is_file():
            return UNKNOWN, "Unknown: it left no run behind"
        made = digest.read(out)
        if made is None or not (out / PAGE).is_file():
            write_page(out)
            made = digest.read(out)
        assert made is not None, f"the digest of {out} was just written"
        self.struck.add(made)
        return made.verdict, made.headline

    def _place(self, name: str) -> Path:
        """One that is not there yet."""
        free = (self.folder / (name if not at else f"{name}-{at}") for at in count())
        return next(each for each in free if not each.exists())

    def conclusion(self, index: Path) -> str:
        counted = ", ".join(f"{n} {verdict}" for verdict, n in sorted(self.verdicts.items()))
        runs = sum(1 for _ in run_folders(self.folder))
        return "\n".join(
            [*self.left_out, *self.bad, f"{counted or 'nothing was run'}; {runs} runs in {index}"]
        )


def _worst(code: int) -> int:
    """A broken promise weighs more than what is unknown."""
    return {0: 0, 2: 1, 1: 2}[code]


def _finished(
    command: Sequence[str], output: int, limit_s: float, interrupts: Interrupts
) -> int | None:
    """The exit code. Who takes too long, or should end with the round, is asked to end first, once, as a person would."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - only prctl runs in there
        start_new_session=True,  # a Ctrl-C is told to it by us, and by nobody else
    )
    late = time.monotonic() + limit_s
    try:
        while time.monotonic() < late and not interrupts:
            if _has_ended(process, LOOK_S):
                return process.returncode
        process.terminate()
        _has_ended(process, STOP_S)
    except KeyboardInterrupt:  # the second time: it need not wait for anybody
        process.terminate()
        _has_ended(process, TWICE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode


def _has_ended(process: "subprocess.Popen[bytes]", within_s: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(within_s)
    return process.returncode is not None
