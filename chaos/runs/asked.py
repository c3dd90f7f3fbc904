"""Of how many faults it was asked, while they went on, whether everybody was served: a verdict says so, whatever it is.

INVARIANT  whoever reads why a run is valid reads of how many faults that was asked; on a busy machine, or of short faults, of none.
PREVENTS   a run that is valid, and never looked at progress during a fault, being taken for one that did.
PROVED BY  tests/chaos/test_queue_asked.py::test_a_run_says_of_how_many_faults_progress_was_asked
"""

from typing import Final

ASKED: Final = "asked meanwhile"  # among a run's counts
STRUCK: Final = "faults"


def with_asked(why: str, counts: object) -> str:
    """As it was where there was nothing to ask of: no fault, or a loop, which asks for itself; or a run.json that is damaged."""
    known = counts if isinstance(counts, dict) else {}
    asked, struck = known.get(ASKED), known.get(STRUCK)
    if asked is None or not struck:
        return why
    return "; ".join(filter(None, [why, f"progress during faults: asked of {asked} of {struck}"]))
