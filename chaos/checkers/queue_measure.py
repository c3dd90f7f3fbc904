"""What it takes to judge a long history: one is made up, and judged by a process that may not have more than so much memory.

    python -m fencepost.chaos.checkers.queue_measure --operations 5000000
    python -m fencepost.chaos.checkers.queue_measure --operations 100000000 --folder /somewhere/large    the whole figure

The history is sound, but for `--spoil N` values that are left out in the end: those must be found. Half of its operations are
transactions of two sends on average with polls of what others sent, the others are polls; final polls come on top.
"""

import argparse
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from .history import FINAL
from .queue_stream import stream

WHOLE: Final = 100_000_000
MEMORY_BYTES: Final = 2 << 30
KEYS: Final = 64
PROCESSES: Final = 20
STEP_S: Final = 0.001
BEHIND_S: Final = 0.05  # how long an operation takes
KEPT: Final = 2_000  # records of a key that a reader may still lack
POLLS_MAX: Final = 20  # of an operation
FINAL_POLLS: Final = 1_000  # of an operation


class Made:
    """Lines of a sound history, with the state of a few keys and readers."""

    def __init__(self, operations: int, spoil: int) -> None:
        self._operations = operations
        self._spoil = spoil
        self._rng = random.Random(operations)
        self._ends = [0] * KEYS
        self._logs: list[list[tuple[int, int, int]]] = [
            [] for _ in range(KEYS)
        ]  # what readers lack
        self._read = [[0] * KEYS for _ in range(PROCESSES)]
        self._value = 0

    def lines(self, kept: Any) -> Iterator[str]:
        """`kept` is given what the final polls will find: key, offset, value, number."""
        for number in range(1, self._operations + 1):
            at_s = number * STEP_S
            process = number % PROCESSES
            op: dict[str, Any] = {
                "f": "txn" if number % 2 else "read",
                "type": "fail" if number % 20 == 1 else "ok",
                "process": f"p{process}",
                "number": number,
                "polls": self._polls(process) if number % 20 != 1 else [],
                "began_s": round(at_s, 6),
                "ended_s": round(at_s + BEHIND_S * 0.3, 6),
            }
            if number % 2:
                op["sends"] = self._sends(number, op["type"] == "ok", kept)
            yield json.dumps(op)

    def _sends(self, number: int, ok: bool, kept: Any) -> list[list[int | str | None]]:
        sends: list[list[int | str | None]] = []
        for _ in range(self._rng.choice((1, 2, 3))):
            self._value += 1
            key = self._rng.randrange(KEYS)
            offset = self._ends[key]
            self._ends[key] += 2  # a marker follows
            sends.append([f"k-{key}", self._value, offset, 0])
            if ok:
                self._logs[key].append((offset, self._value, number))
                if len(self._logs[key]) > 2 * KEPT:
                    del self._logs[key][:KEPT]
                kept(key, offset, self._value, number)
        return sends

    def _polls(self, process: int) -> list[list[int | str]]:
        key = process * 3 % KEYS
        log, at = self._logs[key], self._read[process][key]
        first = bisect_left(log, (at, 0, 0))
        new = log[first : first + POLLS_MAX]
        if new:
            self._read[process][key] = new[-1][0] + 1
        return [[f"k-{key}", offset, value, number, 0] for offset, value, number in new]


def make(file: Path, operations: int, spoil: int) -> int:
    """How many lines it has."""
    made = Made(operations, spoil)
    final = [file.with_suffix(f".final-{key}") for key in range(KEYS)]
    sinks = [each.open("w") for each in final]
    left_out = 0

    def keep(key: int, offset: int, value: int, number: int) -> None:
        nonlocal left_out
        if left_out < spoil and value % 101 == 0:
            left_out += 1
            return
        sinks[key].write(f'["k-{key}", {offset}, {value}, {number}, 0]\n')

    lines = 0
    with file.open("w") as sink:
        for line in made.lines(keep):
            sink.write(line + "\n")
            lines += 1
        for open_sink in sinks:
            open_sink.close()
        at_s = operations * STEP_S + 60
        for each in final:
            for polls in _pieces(each):
                at_s += STEP_S
                sink.write(
                    f'{{"f": "read", "type": "ok", "process": "{FINAL}", "polls": [{polls}], '
                    f'"began_s": {at_s:.6f}, "ended_s": {at_s:.6f}}}\n'
                )
                lines += 1
            each.unlink()
    return lines


def _pieces(file: Path) -> Iterator[str]:
    piece: list[str] = []
    with file.open() as source:
        for line in source:
            piece.append(line.rstrip())
            if len(piece) == FINAL_POLLS:
                yield ", ".join(piece)
                piece = []
    if piece:
        yield ", ".join(piece)


def _peak_bytes() -> int:
    """Of this program alone: what getrusage says begins with the memory of the process that started it. Linux only."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux says it")


def _judge(file: Path, memory_bytes: int, answer: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    began = time.monotonic()
    anomalies, cut = stream(file, lambda _: None)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    answer.put(
        {
            "seconds": round(time.monotonic() - began, 1),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
            "peak_bytes": _peak_bytes(),
            "anomalies": sorted({each.rule for each in anomalies}),
            "found": sum(each.rule == "unseen" for each in anomalies),
            "cut": cut,
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
