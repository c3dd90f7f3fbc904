"""Is the same seed the same run? The plan once more, in another process under another hash seed; traces compared.

    python -m fencepost.chaos.campaigns.again                 reads [plan, seconds] a line, answers with the digest
    python -m fencepost.chaos.campaigns.again PLAN [FILE]     prints the digest; with FILE writes every event

INVARIANT  one plan has one trace, byte for byte, whatever ran in the process before and whatever PYTHONHASHSEED is.
PREVENTS   a failure that nobody can bring back.
PROVED BY  tests/chaos/test_again.py::test_the_first_event_that_differs_is_named

Every run's beginning is run twice, by a `Twin` that stays: the trace's digest at the end of a virtual second says whether
all that happened until then was the same. Now and then a whole run is, in a process of its own (`differs`).
"""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from ..sim.plan import Plan
from .campaign import Outcome, run_plan

HASH_SEEDS: Final = ("1", "4242")
AGAIN_S_MAX: Final = 900
BEFORE: Final = 3  # events shown before the first that differs


def packed(plan: Plan) -> str:
    return json.dumps(asdict(plan))


def unpacked(text: str) -> Plan:
    return _plan_of(json.loads(text))


def _plan_of(fields: dict[str, Any]) -> Plan:
    for name, value in fields.items():
        fields[name] = tuple(value) if isinstance(value, list) else value
    return Plan(**fields)


# --- a run's beginning ----------------------------------------------------------------------------


def run_and_compare(plan: Plan, seconds: int) -> Outcome:
    """The run, and so many virtual seconds of it once more in this process's twin."""
    outcome = run_plan(plan)
    seconds = min(seconds, len(outcome.marks))
    if not seconds:
        return outcome
    here, there = outcome.marks[seconds - 1], twin().digest_at(plan, seconds)
    why = ""
    if here != there:
        why = f"the first {seconds} s of it are {here} here and {there} in another process; {differs(plan, outcome.digest)}"
    return replace(outcome, twice_s=float(seconds), differs=why)


class Twin:
    """Another process under another hash seed that runs what it is told, one plan after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", __name__],
            env={**os.environ, "PYTHONHASHSEED": HASH_SEEDS[1]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def digest_at(self, plan: Plan, seconds: int) -> str:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        try:
            asked.write(json.dumps([asdict(plan), seconds]) + "\n")
            asked.flush()
        except BrokenPipeError:
            return "nothing: it died"
        return answers.readline().strip() or "nothing: it died"

    def end(self) -> None:
        """It ends when it is asked for nothing more."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


@cache
def twin() -> Twin:
    found = Twin()
    atexit.register(found.end)
    return found


def _serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    for line in sys.stdin:
        fields, seconds = json.loads(line)
        print(run_plan(_plan_of(fields), seconds=seconds).digest, flush=True)


# --- a whole run ----------------------------------------------------------------------------------


def differs(plan: Plan, digest: str) -> str:
    """Empty when another process says the same; else which event differs first."""
    other = _in_another_process(plan, HASH_SEEDS[0])
    if other == digest:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / seed for seed in HASH_SEEDS]
        digests = [
            _in_another_process(plan, seed, file)
            for seed, file in zip(HASH_SEEDS, files, strict=True)
        ]
        where = _first_difference(*files) if len(set(digests)) > 1 else ""
    if where:
        return f"the same seed is not the same run: {where}"
    return (
        f"the same seed is not the same run: {digest} here, {other} in a process of its own, where it was {digests}"
        " when looked at again: it may depend on what ran before in this process"
    )


def _in_another_process(plan: Plan, hash_seed: str, file: Path | None = None) -> str:
    command = [sys.executable, "-m", __name__, packed(plan), *([] if file is None else [str(file)])]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(  # noqa: S603 - ourselves
        command, env=environment, capture_output=True, text=True, check=False, timeout=AGAIN_S_MAX
    )
    lines = done.stdout.split()
    return lines[-1] if lines and not done.returncode else f"nothing ({done.stderr.strip()[-300:]})"


def _first_difference(one: Path, other: Path) -> str:
    before: list[str] = []
    with one.open() as mine, other.open() as theirs:
        for number, (here, there) in enumerate(zip_longest(mine, theirs, fillvalue="(nothing)"), 1):
            if here != there:
                shown = "".join(f"\n    {line}" for line in before[-BEFORE:])
                return f"event {number} is\n    {here.strip()}\n  in one, and in the other\n    {there.strip()}\n  after{shown}"
            before = [*before[-BEFORE:], here.strip()]
    return ""


def main() -> None:
    if len(sys.argv) == 1:
        _serve()
        return
    plan = unpacked(sys.argv[1])
    if len(sys.argv) == 2:
        print(run_plan(plan).digest)
        return
    with Path(sys.argv[2]).open("w") as file:
        print(run_plan(plan, lambda line: print(line, file=file)).digest)


if __name__ == "__main__":
    main()
