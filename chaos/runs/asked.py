"""Of how many faults it was asked, while they went on, whether everybody was served: a verdict says so, whatever it is.

INVARIANT  whoever reads why a run is valid reads of how many faults that was asked; on a busy machine, or of short faults, of none.
PREVENTS   a run that is valid, and never looked at progress during a fault, being taken for one that did.
PROVED BY  tests/chaos/test_queue_asked.py::test_a_run_says_of_how_many_faults_progress_was_asked
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from . import judging
from .folder import RunFolder

ASKED: Final = "asked meanwhile"  # among a run's counts
STRUCK: Final = "faults"


def judge(folder: RunFolder, say: Callable[[str], None]) -> dict[str, Any]:
    """As `judging.judge`, of which this is a sentence more."""
    summary = judging.judge(folder, say)
    if folder.history.is_file() and (more := sentence(summary.get("counts", {}))):
        summary["why"] = "; ".join(filter(None, [str(summary.get("why", "")), more]))
        folder.write(summary)
        say(more)
    return summary


def sentence(counts: Mapping[str, Any]) -> str:
    """Empty where there was nothing to ask of: no fault, or a loop, which asks for itself."""
    asked, struck = counts.get(ASKED), counts.get(STRUCK)
    if asked is None or not struck:
        return ""
    return f"progress during faults: asked of {asked} of {struck}"
