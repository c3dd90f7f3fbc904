"""A history that somebody has changed, and that passes for the one that was written: what a checker finds in it is looked at."""

import json
from collections.abc import Sequence
from pathlib import Path

from fencepost.chaos.runs.folder import FIGURES, HISTORY, RunFolder


def put_in_place(out: Path, history: Sequence[dict]) -> None:
    (out / HISTORY).write_text("".join(f"{json.dumps(op)}\n" for op in history))
    forget_figures(RunFolder(out))


def forget_figures(folder: RunFolder) -> None:
    """As of a folder that was made before there were any."""
    summary = folder.read()
    for name, _ in FIGURES.values():
        summary.pop(name, None)
    folder.write(summary)
