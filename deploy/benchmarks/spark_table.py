"""What the benchmark of the data source has to reach, and what it says."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

OURS, THEIRS = "fencepost", "kafka"
# The measure, what it is called, what has to be reached: the ratio to the connector's, or a value of ours.
RATIOS: Final = (
    ("read_small_s", "Read records of 100 bytes, in Spark, records/s", 1.0),
    ("read_large_s", "Read records of 1 KiB, in Spark, records/s", 1.0),
    ("read_arrow_small_s", "… of 100 bytes, handed to Python as Arrow, records/s", 1.0),
    ("read_arrow_large_s", "… of 1 KiB, handed to Python as Arrow, records/s", 1.0),
    ("write_small_s", "Write records of 100 bytes (theirs: at least once), records/s", 0.8),
    ("write_large_s", "Write records of 1 KiB (theirs: at least once), records/s", 0.8),
)
VALUES: Final = (
    ("commit_ms", "Commit of a micro-batch of {tasks} tasks, p50, ms", 200.0),
    ("commit_max_ms", "… the slowest, ms", None),
    ("growth", "Time of a batch, the last tenth of {batches} ÷ the first but one, p50", 1.3),
    ("growth_members", "Members of the group: at the end − after a tenth", 0.0),
    ("growth_decisions", "Decisions that are kept at the end", 1000.0),
    ("batch_ms", "Time of a small micro-batch, p50, ms", None),
)


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
                f"| {title} | {ours:,.0f} | {theirs:,.0f} | {ratio:.2f} | ≥ {least:g} | {reached} |"
            )
    for name, title, most in VALUES:
        ours = _median(measures, name, OURS)
        if ours is not None:
            reach = "" if most is None else f"≤ {most:g}"
            reached = "" if most is None else ("yes" if ours <= most else "no")
            lines.append(f"| {title.format(**options)} | {ours:,.2f} | | | {reach} | {reached} |")
    return "\n".join(lines) + "\n"


def _about(result: Mapping[str, Any]) -> str:
    machine, versions, load = result["machine"], result["versions"], result["load_average"]
    return (
        f"Measured {result['date']} on {machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, Linux "
        f"{machine['kernel']}, Python {machine['python']}; Fencepost {versions['fencepost']}, PySpark and connector "
        f"{versions['pyspark']}, librdkafka {versions['librdkafka']}, {versions['java']}. Spark, Python and the node shared "
        f"these cores. flush.policy={result['options']['flush']}. Load average before: {load['before'][0]:.2f}, after: "
        f"{load['after'][0]:.2f}. Medians of {result['options']['rounds']} rounds."
    )


def _median(measures: Mapping[str, Mapping[str, Sequence[float]]], name: str, of: str) -> Any:
    found = measures.get(name, {}).get(of)
    return median(found) if found else None
