"""Puts the tables of the last whole runs into the README, between two marks each: no figure there is typed by hand.

python deploy/benchmarks/readme_numbers.py

Writes the reports in results/ anew, too, from the values beside them: for when the form of a table has changed.
"""

import json
from pathlib import Path

import spark_table
from bench_rows import ONE_NODE, THREE_NODES
from bench_table import report

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
RESULTS = Path(__file__).resolve().parent / "results"
ROWS = {"three_nodes": THREE_NODES, "one_node": ONE_NODE}
NAMES = (*ROWS, "spark")


def told(name: str) -> str:
    """The report of the last whole run, as the tables are made today."""
    result = json.loads((RESULTS / f"{name}.json").read_text())
    return report(ROWS[name], result) if name in ROWS else spark_table.table(result)


def numbers(text: str) -> str:
    """What the run was, its table, and what the two modes are; the spread, where there is one, stays in the report."""
    return text.partition("Least and most of the rounds")[0].strip()


def with_numbers(readme: str, name: str, text: str) -> str:
    begin, end = f"<!-- numbers {name} -->", f"<!-- /numbers {name} -->"
    before, _, rest = readme.partition(begin)
    _, _, after = rest.partition(end)
    assert after, f"the README has no marks {begin} … {end}"
    return f"{before}{begin}\n{numbers(text)}\n{end}{after}"


def current(readme: str) -> str:
    """The README as it should be. A benchmark that was never run whole leaves its place as it is."""
    for name in NAMES:
        written = RESULTS / f"{name}.md"
        if written.exists():
            readme = with_numbers(readme, name, written.read_text())
    return readme


def main() -> None:
    for name in NAMES:
        if (RESULTS / f"{name}.json").exists():
            (RESULTS / f"{name}.md").write_text(told(name))
    README.write_text(current(README.read_text()))


if __name__ == "__main__":
    main()
