"""Is the same seed the same run? The plan once more, in another process under another hash seed; traces compared.

    python -m fencepost.chaos.campaigns.again PLAN [FILE]     prints the digest; with FILE writes every event

INVARIANT  one plan has one trace, byte for byte, whatever ran in the process before and whatever PYTHONHASHSEED is.
PREVENTS   a failure that nobody can bring back.
PROVED BY  tests/chaos/test_again.py::test_the_first_event_that_differs_is_named
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from ..sim.plan import Plan
from .campaign import run_plan

HASH_SEEDS: Final = ("1", "4242")
AGAIN_S_MAX: Final = 900
BEFORE: Final = 3  # events shown before the first that differs


def packed(plan: Plan) -> str:
    return json.dumps(asdict(plan))


def unpacked(text: str) -> Plan:
    fields: dict[str, Any] = json.loads(text)
    for name, value in fields.items():
        fields[name] = tuple(value) if isinstance(value, list) else value
    return Plan(**fields)


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
    plan = unpacked(sys.argv[1])
    if len(sys.argv) == 2:
        print(run_plan(plan).digest)
        return
    with Path(sys.argv[2]).open("w") as file:
        print(run_plan(plan, lambda line: print(line, file=file)).digest)


if __name__ == "__main__":
    main()
