"""What it takes to judge a long history: one is made up, and judged by a process that may not have more than so much memory.

    python -m fencepost.chaos.checkers.queue_measure --operations 5000000
    python -m fencepost.chaos.checkers.queue_measure --operations 100000000 --folder /somewhere/large    the whole figure

The history is sound (`queue_made.py`), but for `--spoil N` values that are left out in the end: those must be found. It is judged
as a run's is, by all of `queue_verdict.judge`: the rules that stream, and availability, stale reads and counts on the way.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from . import queue_verdict
from .queue_made import make

WHOLE: Final = 100_000_000
MEMORY_BYTES: Final = 2 << 30


def _peak_bytes() -> int:
    """Of this program alone: what getrusage says begins with the memory of the process that started it. Linux only."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux says it")


def _judge(file: Path, memory_bytes: int, answer: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    queue_verdict.HELD_BYTES_MAX = 0  # type: ignore[misc]  # a short one is to stream, too
    began = time.monotonic()
    judged = queue_verdict.judge(file)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    answer.put(
        {
            "seconds": round(time.monotonic() - began, 1),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
            "peak_bytes": _peak_bytes(),
            "anomalies": sorted({each.rule for each in judged.anomalies}),
            "found": sum(each.rule == "unseen" for each in judged.anomalies),
            "counts": judged.counts,
            "cut": judged.cut,
        }
    )


def measure(folder: Path, operations: int, spoil: int, memory_bytes: int) -> dict[str, Any]:
    file = folder / "history.jsonl"
    lines = make(file, operations, spoil)
    context = multiprocessing.get_context("spawn")  # a fork would begin with our memory
    answers = context.SimpleQueue()
    child = context.Process(target=_judge, args=(file, memory_bytes, answers))
    child.start()
    child.join()
    size = file.stat().st_size
    file.unlink()
    if child.exitcode != 0:
        return {"operations": operations, "failed": f"the judge ended with {child.exitcode}"}
    return {"operations": operations, "lines": lines, "history_bytes": size, **answers.get()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What it takes to judge a long history.")
    parser.add_argument("--operations", type=int, default=2_000_000)
    parser.add_argument("--spoil", type=int, default=3, help="values that must be missed")
    parser.add_argument("--memory", type=int, default=MEMORY_BYTES, help="bytes it may have")
    parser.add_argument("--folder", type=Path, help="large enough (about 1 KB an operation)")
    chosen = parser.parse_args(arguments)
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    found = []
    for operations in sorted({chosen.operations // 4, chosen.operations}):
        with tempfile.TemporaryDirectory(dir=chosen.folder) as made:
            found.append(measure(Path(made), operations, chosen.spoil, chosen.memory))
        sys.stdout.write(f"{json.dumps(found[-1])}\n")
        sys.stdout.flush()
    if any("failed" in each for each in found):
        return 1
    small, large = found
    share = (large["peak_bytes"] - small["peak_bytes"]) / (
        large["operations"] - small["operations"]
    )
    whole = large["peak_bytes"] + share * max(0, WHOLE - large["operations"])
    hours = large["cpu_seconds"] / large["operations"] * WHOLE / 3_600
    sys.stdout.write(
        f"{WHOLE:,} operations at this rate: {whole / 2**30:.2f} GiB, {hours:.1f} h of one core "
        f"({share:.1f} bytes an operation beyond the first)\n"
    )
    return 0 if large["found"] == chosen.spoil else 1


if __name__ == "__main__":
    sys.exit(main())
