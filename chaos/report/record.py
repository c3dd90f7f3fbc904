"""The counted part of the record: what was run, on which commit, with which faults, and what came of it.

Every run and every campaign is a line of `record.jsonl`, whoever adds it; the tables in RECORD.md are made of these lines
alone. A run that has another verdict than before, or has gone on, gets another line, and the newest counts; but one that
was invalid once stays so. Run folders may be pruned afterwards.

INVARIANT  the same run or campaign counts once, however often its folder is added, and as what is known of it now; no line
           takes an invalid run back.
PREVENTS   hours and seeds in a table that somebody counted by hand, or twice; a run that was added too early, or before its
           checkers saw what was wrong, staying unknown or valid for ever.
PROVED BY  tests/chaos/test_report_record.py::test_what_is_added_again_counts_once
           tests/chaos/test_report_record.py::test_a_run_that_was_judged_again_counts_as_what_it_is_now
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from . import digest as digests
from .digest import Digest
from .index import digest_of, run_folders
from .run_folder import INVALID, JsonLines, number_of, numbers_of, text_of

RECORD: Final = "RECORD.md"
LEDGER: Final = "record.jsonl"
RUN, CAMPAIGN = "run", "campaign"
FAILURES_MAX: Final = 20  # of one campaign
# What such seeds say nothing of: sound nodes, and what is only seen inside of them.
NOT_COUNTED: Final = {"--planted": "nodes with a bug", "--watch": "nodes that nobody looked into"}
# Of a run's digest only what the tables need: a ledger is kept for years.
_LEFT_OUT: Final = ("of", "form", "command", "headline", "gaps", "allowed", "latency_ms")


@dataclass(frozen=True, slots=True)
class Campaign:
    """One line that `fencepost sim run --summary FILE` has written."""

    campaign: str
    commit: str
    began: str
    seeds: str
    runs: int
    virtual_s: float
    real_s: float
    acknowledged: int
    faults: dict[str, float]
    failures: tuple[dict[str, str], ...]
    different: int
    interrupted: bool = False
    asked: str | None = None  # its options; older lines do not say

    @property
    def id(self) -> str:
        return f"{self.began} {self.campaign} {self.commit} {self.seeds}"


@dataclass(slots=True)
class Ledger:
    """What is in record.jsonl, and what was added to it now."""

    file: Path
    runs: dict[str, Digest] = field(default_factory=dict)
    campaigns: dict[str, Campaign] = field(default_factory=dict)
    added: int = 0
    problems: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> "Ledger":
        ledger = cls(file)
        lines = JsonLines(file)
        for _, line in lines:
            if line.get("what") == CAMPAIGN and (campaign := campaign_of(line)) is not None:
                ledger.campaigns[campaign.id] = campaign
            elif line.get("what") == RUN:
                ledger._take(digests.from_dict(line))
        ledger.problems += lines.problems
        return ledger

    def _take(self, run: Digest) -> bool:
        """Whether it says something new of a run."""
        known = self.runs.get(run.id)
        if known is None:
            is_new = True
        elif known.verdict == run.verdict:
            is_new = run.seconds > known.seconds  # it has gone on since
        else:
            # What one checker found and a later one does not looks the same, whether the first cried wolf or the
            # second is blind, and no line says which checkers judged: it stands until somebody has looked.
            is_new = known.verdict != INVALID
        if is_new:
            self.runs[run.id] = run
        return is_new

    def add_run(self, run: Digest) -> None:
        if self._take(run):
            kept = {name: each for name, each in asdict(run).items() if name not in _LEFT_OUT}
            self._append({"what": RUN, **kept})

    def add_campaign(self, campaign: Campaign) -> None:
        if campaign.id not in self.campaigns:
            self.campaigns[campaign.id] = campaign
            self._append({"what": CAMPAIGN, **asdict(campaign)})

    def _append(self, line: dict[str, Any]) -> None:
        """In one write: a record that is added to from two places at once stays whole."""
        self.added += 1
        data = (json.dumps(line) + "\n").encode()
        handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)


def campaign_of(line: dict[str, Any]) -> Campaign | None:
    """None for a line that is none."""
    runs = number_of(line.get("runs"))
    if runs is None or not line.get("campaign") or not line.get("began"):
        return None
    failures = line.get("failures")
    return Campaign(
        campaign=text_of(line["campaign"]),
        commit=text_of(line.get("commit")),
        began=text_of(line["began"]),
        seeds=text_of(line.get("seeds")),
        runs=int(runs),
        virtual_s=number_of(line.get("virtual_s")) or 0.0,
        real_s=number_of(line.get("real_s")) or 0.0,
        acknowledged=int(number_of(line.get("acknowledged")) or 0),
        faults=numbers_of(line.get("faults")),
        failures=tuple(_failures(failures if isinstance(failures, list) else [])),
        different=int(number_of(line.get("different")) or 0),
        interrupted=line.get("interrupted") is True,
        asked=None if line.get("asked") is None else text_of(line["asked"]),
    )


def _failures(found: list[Any]) -> Iterator[dict[str, str]]:
    for each in found:
        if isinstance(each, dict):
            found_it = {name: text_of(each.get(name)) for name in ("seed", "kind", "what")}
            yield found_it | {"command": text_of(each.get("shrunk") or each.get("command"))}


def add_all(ledger: Ledger, places: Iterable[Path]) -> None:
    """Folders are looked through for runs and for files of campaigns; a file is one of campaigns."""
    for place in places:
        files = [place] if place.is_file() else sorted(place.glob("**/campaigns*.jsonl"))
        for file in files:
            _add_campaigns(ledger, file)
        if place.is_dir():
            for folder in run_folders(place):
                _add_run(ledger, folder)


def _add_campaigns(ledger: Ledger, file: Path) -> None:
    lines = JsonLines(file)
    for number, line in lines:
        campaign = campaign_of(line)
        asked = campaign.asked.split() if campaign and campaign.asked else []
        if campaign is None:
            ledger.problems.append(f"line {number} of {file} is no campaign: left out")
        elif found := [NOT_COUNTED[each] for each in NOT_COUNTED if each in asked]:
            ledger.problems.append(f"line {number} of {file} is of {found[0]}: left out")
        elif campaign.runs:
            ledger.add_campaign(campaign)
    ledger.problems += lines.problems


def _add_run(ledger: Ledger, folder: Path) -> None:
    run = digest_of(folder)
    if run.began:
        ledger.add_run(run)
    else:
        ledger.problems.append(f"{folder} does not say when it began: left out")
