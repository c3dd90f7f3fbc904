"""What the benchmark of the data source has to reach, and what it says."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from statistics import median
from typing import Any, Final

from bench_table import ONCE, titled

OURS, THEIRS = "fencepost", "kafka"
# The measure, what it is called, what has to be reached: the ratio to the connector's, or a value of ours.
RATIOS: Final = (
    ("read_small_s", "Read records of 100 bytes, in Spark, records/s", 1.0),
    ("read_large_s", "Read records of 1 KiB, in Spark, records/s", 1.0),
    ("read_arrow_small_s", "… of 100 bytes, handed to Python as Arrow, records/s", 1.0),
    ("read_arrow_large_s", "… of 1 KiB, handed to Python as Arrow, records/s", 1.0),
    (
        "write_small_s",
        "Write records of 100 bytes, under a number (theirs: at least once), records/s",
        0.8,
    ),
    (
        "write_large_s",
        "Write records of 1 KiB, under a number (theirs: at least once), records/s",
        0.8,
    ),
)
VALUES: Final = (
    ("commit_ms", "Commit of a micro-batch of {tasks} tasks, p50 of {commits}, ms", 200.0),
    ("commit_max_ms", "… the slowest, ms", None),
    ("growth", "Time of a batch, the last tenth of {batches} ÷ a tenth from batch 10 on, p50", 1.3),
    ("growth_commit_early_ms", "Commit of a small batch, from batch 10 on, p50, ms", None),
    ("growth_commit_late_ms", "… of the last tenth of {batches}, p50, ms", None),
    ("growth_commit", "… the ratio of both", 1.3),
    ("growth_resident_early_mb", "Memory of the node after 10 batches, MB", None),
    ("growth_resident_late_mb", "… after {batches}, MB", None),
    ("growth_resident", "… the ratio of both", 1.2),
    (
        "growth_state_bytes",
        "What a batch adds to `__transaction_state`, second half of {batches}, bytes",
        None,
    ),
    ("growth_state", "… ÷ the first half's", 1.1),
    (
        "growth_state_mb",
        "`__transaction_state` at the end (not compacted below 100 MB a partition), MB",
        None,
    ),
    ("growth_members", "Members of the group: at the end − after 10 batches", 0.0),
    ("batch_ms", "Time of a small micro-batch, p50, ms", None),
)
# Spark's way from rows to Python, mapInArrow, wants it; our data source does not.
ARROW_NEEDS: Final = "pandas"


def missing(parts: Sequence[str], find: Callable[[str], object] = find_spec) -> str | None:
    """Why these parts can't be measured, in a sentence. No row is left out in silence."""
    if "read" in parts and find(ARROW_NEEDS) is None:
        return (
            f"the rows 'handed to Python as Arrow' are measured with Spark's mapInArrow, which needs the package {ARROW_NEEDS}: "
            "`make benchmark-spark` installs it, and so does pip install -e '.[benchmark]'; or leave them out: --only "
            "write,commit,growth"
        )
    return None


def without_values(measures: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """The rows that the table would not have. Of a whole run there are none."""
    ratios = [
        name for name, *_ in RATIOS for of in (OURS, THEIRS) if not _median(measures, name, of)
    ]
    values = [name for name, *_ in VALUES if _median(measures, name, OURS) is None]
    return sorted({*ratios, *values})


def table(result: Mapping[str, Any]) -> str:
    measures, options = result["measures"], result["options"]
    lines = [
        _about(result),
        "",
        "| | Fencepost | the connector | ratio | reach | reached |",
        "|---|--:|--:|--:|---|---|",
    ]
    for name, title, least in RATIOS:
        ours, theirs = _median(measures, name, OURS), _median(measures, name, THEIRS)
        if ours is not None and theirs is not None:
            ratio = ours / theirs
            reached = "yes" if ratio >= least else "no"
            lines.append(
                f"| {titled(title, measures[name])} | {ours:,.0f} | {theirs:,.0f} | {ratio:.2f} | ≥ {least:g} | {reached} |"
            )
    for name, title, most in VALUES:
        ours = _median(measures, name, OURS)
        if ours is not None:
            reach = "" if most is None else f"≤ {most:g}"
            reached = "" if most is None else ("yes" if ours <= most else "no")
            told = titled(title.format(**options), measures[name])
            lines.append(f"| {told} | {ours:,.2f} | | | {reach} | {reached} |")
    return "\n".join(lines) + "\n"


def _about(result: Mapping[str, Any]) -> str:
    machine, versions, load = result["machine"], result["versions"], result["load_average"]
    return (
        f"Measured {result['date']} on {machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, Linux "
        f"{machine['kernel']}, Python {machine['python']}; Fencepost {versions['fencepost']}, PySpark and connector "
        f"{versions['pyspark']}, librdkafka {versions['librdkafka']}, {versions['java']}. Spark, Python and the node shared "
        f"these cores. flush.policy={result['options']['flush']}. Load average before: {load['before'][0]:.2f}, after: "
        f"{load['after'][0]:.2f}. Medians of {result['options']['rounds']} rounds. {ONCE}: one value, no median."
    )


def _median(measures: Mapping[str, Mapping[str, Sequence[float]]], name: str, of: str) -> Any:
    found = measures.get(name, {}).get(of)
    return median(found) if found else None
