"""Puts the table of the last whole run into the README, between two marks: no figure there is typed by hand.

python tests/benchmarks/readme_numbers.py
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
REPORT = Path(__file__).parent / "results" / "latest.md"
BEGIN, END = "<!-- numbers -->", "<!-- /numbers -->"


def numbers(report: str) -> str:
    """What the run was, its table, and what the two modes are; the spread stays in the report."""
    return report[: report.index("Least and most of the rounds")].strip()


def with_numbers(readme: str, report: str) -> str:
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{numbers(report)}\n{END}{after}"


def main() -> None:
    README.write_text(with_numbers(README.read_text(), REPORT.read_text()))


if __name__ == "__main__":
    main()
