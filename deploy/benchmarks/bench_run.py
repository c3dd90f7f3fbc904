"""What both benchmarks share: the book of values, what the machine is, and how results are written."""

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests"))

import bench_load  # noqa: E402
import bench_plot  # noqa: E402
import readme_numbers  # noqa: E402
from bench_table import Row, report, table  # noqa: E402
from support.kafka_peer import VERSION  # noqa: E402

Measure = Callable[["Book", argparse.Namespace, ExitStack], None]


class Book:
    """Every value that was measured: measure -> system -> one a round."""

    def __init__(self) -> None:
        self.measures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(self, system: str, **values: float) -> None:
        for key, value in values.items():
            self.measures[key][system].append(round(value, 4))
        said = "  ".join(f"{key} {value:.2f}" for key, value in values.items())
        say(f"{system:<14} {said}")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def folders(stack: ExitStack) -> Callable[[], Path]:
    """Makes folders that are removed at the end."""

    def folder() -> Path:
        path = Path(tempfile.mkdtemp(prefix="fencepost-benchmark-"))
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    return folder


def _said(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=30
    )
    return (done.stdout or done.stderr).strip()


def machine() -> dict[str, Any]:
    information = Path("/proc/cpuinfo").read_text().splitlines()
    names = [
        line.partition(":")[2].strip() for line in information if line.startswith("model name")
    ]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "cpu": names[0] if names else platform.machine(),
        "memory_gb": round(pages / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    changed = "+" if _said("git", "status", "--porcelain", "-uno") else ""
    return {
        "fencepost": _said("git", "rev-parse", "--short", "HEAD") + changed,
        "kafka": VERSION,
        "librdkafka": bench_load.version(),
        "java": _said("java", "-version").splitlines()[0],
    }


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """What both take; `--quick` makes everything short and writes nothing."""
    parser.add_argument("--warm-up", type=float, default=120.0, help="Kafka's, in seconds (120)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of producing a round (8)")
    parser.add_argument("--latency-seconds", type=float, default=20.0, help="a round (20)")
    parser.add_argument("--quick", action="store_true", help="does it work at all? a minute")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the results")
    options = parser.parse_args(arguments)
    if options.quick:
        options.warm_up, options.rounds = min(options.warm_up, 3.0), 1
        options.seconds, options.latency_seconds = 2.0, 2.0
    return options


def benchmark(
    name: str,
    rows: Sequence[Row],
    measure: Measure,
    options: argparse.Namespace,
    *,
    write: bool = True,
) -> None:
    """Measure, print, and write results/NAME.{json,md,svg} and the README's table, of a whole run alone."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Ended from outside, it still ends its nodes and removes their folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    book = Book()
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "options": {name: value for name, value in vars(options).items() if name != "out"},
        "load_average": {"before": os.getloadavg()},
    }
    try:
        with ExitStack() as stack:
            measure(book, options, stack)
    finally:  # what was measured before a failure cost minutes
        print(table(rows, book.measures))
    result["load_average"]["after"] = os.getloadavg()
    result["measures"] = book.measures
    if options.quick or not write:
        say("not a whole run: nothing written")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / f"{name}.md").write_text(report(rows, result))
    (options.out / f"{name}.svg").write_text(bench_plot.plot(rows, book.measures))
    if options.out.resolve() == readme_numbers.RESULTS.resolve():
        readme_numbers.main()
