"""Puts the alerts into this folder's README, as a table: what stands in alerts.yml is written once.

python deploy/prometheus/readme_alerts.py
"""

from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).resolve().parent
README: Final = FOLDER / "README.md"
BEGIN, END = "<!-- alerts -->", "<!-- /alerts -->"


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def row(alert: dict[str, Any]) -> str:
    """The first sentence of what it means, where to look first, and all of how it is mended: a step that is left out may be the safe one."""
    told = alert["annotations"]
    meaning = told["meaning"].split(". ")[0].rstrip(".")
    look = told["look"].rstrip(".").replace("`fencepost ", "`")
    mend = told["command"].rstrip(".").replace("`fencepost ", "`")
    name = alert["alert"].removeprefix("Fencepost")
    return f"| {name} | {alert['labels']['severity']} | {meaning} | {look} | {mend} |"


def current(readme: str) -> str:
    """The README as it should be."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"the README has no marks {BEGIN} … {END}"
    head = "| Fencepost… | severity | what it means | where to look (`fencepost …`) | what mends it (`fencepost …`) |\n|---|---|---|---|---|"
    rows = "\n".join(map(row, alerts()))
    return f"{before}{BEGIN}\n{head}\n{rows}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(current(README.read_text()))
