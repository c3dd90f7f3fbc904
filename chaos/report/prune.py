"""A valid run leaves its page and its counts; its history and the data of its nodes go. Of all other runs everything stays.

INVARIANT  nothing of a run is removed that is not valid, or of which no page has been written; it stays valid when it is to be
           judged again (`digest.stands`).
PREVENTS   a finding whose history is gone; a run that is unknown in its run.json and valid in an index.
PROVED BY  tests/chaos/test_report_record.py::test_only_valid_runs_are_pruned,
           tests/chaos/test_report_pruned.py::test_a_run_that_was_pruned_keeps_its_verdict_when_it_is_judged_again
"""

import shutil
from pathlib import Path
from typing import Final

from .digest import DIGEST
from .index import digest_of
from .page import PAGE
from .run_folder import RUN, VALID

KEPT: Final = frozenset({RUN, DIGEST, PAGE})


def prune(folder: Path) -> int:
    """Bytes that were freed."""
    if digest_of(folder).verdict != VALID or not (folder / PAGE).is_file():
        return 0
    freed = 0
    for each in sorted(folder.iterdir()):
        if each.name in KEPT:
            continue
        freed += sum(file.lstat().st_size for file in (each, *each.rglob("*")))
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
    return freed
