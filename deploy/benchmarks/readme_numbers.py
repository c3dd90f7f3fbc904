"""Puts the tables of the last whole runs into the README, between two marks each: no figure there is typed by hand.

python deploy/benchmarks/readme_numbers.py
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
RESULTS = Path(__file__).resolve().parent / "results"
NAMES = ("three_nodes", "one_node", "spark")


def numbers(report: str) -> str:
    """What the run was, its table, and what the two modes are; the spread, where there is one, stays in the report."""
    return report.partition("Least and most of the rounds")[0].strip()


def with_numbers(readme: str, name: str, report: str) -> str:
    begin, end = f"<!-- numbers {name} -->", f"<!-- /numbers {name} -->"
    before, _, rest = readme.partition(begin)
    _, _, after = rest.partition(end)
    assert after, f"the README has no marks {begin} … {end}"
    return f"{before}{begin}\n{numbers(report)}\n{end}{after}"


def current(readme: str) -> str:
    """The README as it should be. A benchmark that was never run whole leaves its place as it is."""
    for name in NAMES:
        report = RESULTS / f"{name}.md"
        if report.exists():
            readme = with_numbers(readme, name, report.read_text())
    return readme


def main() -> None:
    README.write_text(current(README.read_text()))


if __name__ == "__main__":
    main()
