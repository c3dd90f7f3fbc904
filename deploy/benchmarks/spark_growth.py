"""What might grow with the number of batches that a query has done: watched while it runs, compared afterwards.

How many decisions the cluster keeps is no such thing: it keeps no more than it was told to. What they cost it is: the node's
memory, what a batch adds to `__transaction_state`, and how long a commit takes.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

WARM: Final = 10  # batches: what comes before them is a session that warms up
STATE: Final = "__transaction_state-*"


class Seen(NamedTuple):
    """At one moment of the stream."""

    batches: int
    resident_mb: float
    state_bytes: int


def state_bytes(data: Path) -> int:
    """Of the coordinators' logs in a node's folder."""
    return sum(file.stat().st_size for log in data.rglob(STATE) for file in log.glob("*.log"))


def early_and_late(values: Sequence[float]) -> tuple[float, float]:
    """The medians of a tenth of them from batch 10 on, and of the last tenth."""
    tenth = max(len(values) // 10, 1)
    assert len(values) >= WARM + 2 * tenth, f"{len(values)} batches show nothing"
    return median(values[WARM : WARM + tenth]), median(values[-tenth:])


def grown(
    seen: Sequence[Seen], commits_ms: Sequence[float], took_ms: Sequence[float]
) -> dict[str, float]:
    """The rows of the table, by name."""
    first = next(each for each in seen if each.batches >= WARM)
    last = seen[-1]
    middle = next(each for each in seen if each.batches >= (first.batches + last.batches) / 2)
    assert first.batches < middle.batches < last.batches, f"too few were seen: {seen}"
    early_state, late_state = _a_batch(first, middle), _a_batch(middle, last)
    early_commit, late_commit = early_and_late(commits_ms)
    early_batch, late_batch = early_and_late(took_ms)
    return {
        "growth": late_batch / early_batch,
        "growth_commit_early_ms": early_commit,
        "growth_commit_late_ms": late_commit,
        "growth_commit": late_commit / early_commit,
        "growth_resident_early_mb": first.resident_mb,
        "growth_resident_late_mb": last.resident_mb,
        "growth_resident": last.resident_mb / first.resident_mb,
        "growth_state_bytes": late_state,
        "growth_state": late_state / early_state,
        "growth_state_mb": last.state_bytes / 1e6,
        "batch_ms": median(took_ms),
    }


def _a_batch(first: Seen, last: Seen) -> float:
    return (last.state_bytes - first.state_bytes) / (last.batches - first.batches)
