"""The data source `fencepost` beside Spark's own Kafka connector: the same data, one session, the same node.

    python deploy/benchmarks/spark.py [--rounds 3] [--only read,write,commit,growth] [--quick]

Prints a Markdown table; a whole run writes it to results/spark.md and into the top README, and every value to
results/spark.json. Needs Java and Maven (for the connector), pandas (the extra `benchmark`), about twenty minutes, and a
machine that does nothing else.
"""

import argparse
import json
import os
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench_run import HERE, Book, folders, machine, say, versions
from bench_systems import Fencepost

sys.path.append(str(HERE.parents[1] / "tests" / "spark"))
import kafka_connector
import readme_numbers
import spark_measures
from spark_table import missing, table, without_values

PARTS = ("read", "write", "commit", "growth")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--records", type=int, default=600_000, help="of 1 KiB; thrice of 100 bytes"
    )
    parser.add_argument(
        "--tasks", type=int, default=200, help="of the batches whose commit is timed"
    )
    parser.add_argument("--commits", type=int, default=25, help="that are timed")
    parser.add_argument("--batches", type=int, default=600, help="of the stream that must not grow")
    parser.add_argument("--flush", choices=["ack", "os"], default="ack", help="flush.policy")
    parser.add_argument(
        "--only", default=",".join(PARTS), help="some of read, write, commit, growth"
    )
    parser.add_argument("--quick", action="store_true", help="does it work at all? writes nothing")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the results")
    chosen = parser.parse_args()
    chosen.parts = chosen.only.split(",")
    if unknown := sorted(set(chosen.parts) - set(PARTS)):
        parser.error(f"--only {unknown[0]}: there are {', '.join(PARTS)}")
    if chosen.quick:
        chosen.rounds, chosen.records, chosen.tasks = 1, 20_000, 20
        chosen.commits, chosen.batches = 4, 30
    if reason := missing(chosen.parts):
        parser.error(reason)
    return chosen


def main() -> None:
    chosen = options()
    book = Book()
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {**versions(), "pyspark": kafka_connector.VERSION},
        "options": {
            name: value for name, value in vars(chosen).items() if name not in ("out", "parts")
        },
        "load_average": {"before": os.getloadavg()},
    }
    try:
        with ExitStack() as stack:
            folder = folders(stack)
            node = Fencepost("fencepost", chosen.flush, folder())
            stack.callback(node.kill)
            node.launch()
            node.wait_ready()
            bench = spark_measures.Bench(node, book, folder())
            stack.callback(bench.stop)
            for part in chosen.parts:
                say(part)
                getattr(spark_measures, part)(bench, chosen)
    finally:
        result["load_average"]["after"] = os.getloadavg()
        result["measures"] = book.measures
        said = table(result)
        print(said)
    if chosen.quick or tuple(chosen.parts) != PARTS:
        say("not a whole run: nothing written")
        return
    if absent := without_values(book.measures):
        sys.exit(f"not a whole run: nothing was measured of {', '.join(absent)}. Nothing written")
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "spark.json").write_text(json.dumps(result, indent=1) + "\n")
    (chosen.out / "spark.md").write_text(said)
    if chosen.out.resolve() == readme_numbers.RESULTS.resolve():
        readme_numbers.main()


if __name__ == "__main__":
    main()
