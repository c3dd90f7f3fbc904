"""The record's rows are true of this checkout: each fault names a test that is there, and a commit that mended it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORD = (ROOT / "chaos" / "RECORD.md").read_text()
ROWS = [line for line in RECORD.splitlines() if line.startswith("| 20")]
FOUND = [row for row in ROWS if re.match(r"\| \d{4}-\d{2} \|", row)]
COMMIT = re.compile(r"`([0-9a-f]{7,40})`")


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.replace("\\|", "/").strip("|").split("|")]


def test_every_fault_names_a_test_that_is_there() -> None:
    assert len(FOUND) > 30
    missing = []
    for row in FOUND:
        kept = cells(row)[3]
        for path, test in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", kept):
            file = ROOT / path
            if not file.exists() or (test and f"def {test}(" not in file.read_text()):
                missing.append(f"{path}::{test}")
    assert missing == []


def test_a_failure_that_is_in_no_count_is_said_to_be_in_none() -> None:
    """Else the counts would be of what went well: a campaign that is broken off at its first failure leaves no line."""
    lines = (ROOT / "chaos" / "record.jsonl").read_text().splitlines()
    counted = {json.loads(line).get("commit", "")[:7] for line in lines}
    told = set(COMMIT.findall(RECORD.partition("<!-- counted by")[0]))
    ran = {commit for row in FOUND for commit in re.findall(r"\bat ([0-9a-f]{7})\b", cells(row)[1])}
    assert len(ran) > 10
    assert sorted(ran - counted - told) == []


def test_every_commit_that_mended_something_is_one() -> None:
    """A row that is new may name none yet: its commit has no name before it is made."""
    named = sorted(
        {commit for row in FOUND if len(cells(row)) > 5 for commit in COMMIT.findall(cells(row)[5])}
    )
    assert len(named) > 20
    asked = ["git", "-C", str(ROOT), "cat-file", "--batch-check=%(objectname) %(objecttype)"]
    try:
        done = subprocess.run(
            asked, input="\n".join(named), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout: commits can't be looked up")
    if (ROOT / ".git" / "shallow").exists():
        pytest.skip("a shallow checkout has not all commits")
    assert [line for line in done.stdout.splitlines() if not line.endswith(" commit")] == []
