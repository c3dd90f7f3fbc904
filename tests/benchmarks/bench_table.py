"""What is measured, what has to be reached, and the table of it. No clock, no process, no file."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

SYNCED, WRITTEN, KAFKA = "fencepost_ack", "fencepost_os", "kafka"
Values = Mapping[str, Mapping[str, list[float]]]  # measure -> system -> a value each round


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. A reach is a ratio to Kafka or a plain limit; None is for knowledge."""

    key: str
    title: str
    digits: int = 0
    ratio_at_least: float | None = None
    ratio_at_most: float | None = None
    below: float | None = None

    def reach(self) -> str:
        if self.ratio_at_least is not None:
            return f"≥ {self.ratio_at_least:g} × Kafka"
        if self.ratio_at_most is not None:
            return f"≤ {self.ratio_at_most:g} × Kafka"
        return "" if self.below is None else f"< {self.below:g}"

    def reached(self, value: float | None, kafka: float | None) -> bool | None:
        """None where there is nothing to reach or nothing to compare."""
        if value is None:
            return None
        if self.below is not None:
            return value < self.below
        if kafka is None:
            return None
        if self.ratio_at_least is not None:
            return value >= self.ratio_at_least * kafka
        return None if self.ratio_at_most is None else value <= self.ratio_at_most * kafka


ROWS = (
    Row(key="produce_mb_s", title="Produce, MB/s", ratio_at_least=1.0),
    Row(key="consume_mb_s", title="Consume, MB/s", ratio_at_least=1.0),
    Row(
        key="latency_p50_ms",
        title="Acknowledgement at 1,000 records/s, p50, ms",
        digits=2,
        ratio_at_most=0.5,
    ),
    Row(
        key="latency_p99_ms",
        title="Acknowledgement at 1,000 records/s, p99, ms",
        digits=2,
        ratio_at_most=0.5,
    ),
    Row(key="produce_cpu_s_gb", title="Node's CPU, s per GB produced", digits=2),
    Row(key="consume_cpu_s_gb", title="Node's CPU, s per GB consumed", digits=2),
    Row(key="start_s", title="Start to first acknowledgement, s", digits=2, below=1.5),
    Row(key="memory_empty_mb", title="Memory at rest, no topics, MB", below=80.0),
    Row(key="memory_topics_mb", title="Memory at rest, 10 topics, MB", below=80.0),
    Row(key="memory_worked_mb", title="Memory after the rounds above, MB"),
    Row(key="many_create_s", title="10,000 partitions: create, s", digits=1),
    Row(key="many_touch_s", title="10,000 partitions: one record into each, s", digits=1),
    Row(key="many_stop_s", title="10,000 partitions: clean stop, s", digits=1),
    Row(key="many_restart_s", title="10,000 partitions: start to ready, s", digits=2, below=5.0),
    Row(key="many_idle_cpu", title="10,000 partitions: idle CPU, % of a core", digits=2, below=2.0),
    Row(key="many_memory_mb", title="10,000 partitions: memory at rest, MB"),
)


def middle(measures: Values, key: str, system: str) -> float | None:
    values = measures.get(key, {}).get(system, [])
    return median(values) if values else None


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _ratio(value: float | None, kafka: float | None) -> str:
    return "–" if value is None or not kafka else f"{value / kafka:.2f}"


def _verdict(synced: bool | None, written: bool | None) -> str:
    """One word for both policies: `os only` when the synced one falls short."""
    if synced is None and written is None:
        return ""
    if synced is not False and written is not False:
        return "yes"
    if written:
        return "os only"
    return "ack only" if synced else "no"


def table(measures: Values) -> str:
    """The Markdown table: medians, ratios, and what was to be reached."""
    lines = [
        "| | Fencepost `ack` | Fencepost `os` | Kafka | `ack` ÷ Kafka | `os` ÷ Kafka | reach | reached |",
        "|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for row in ROWS:
        if row.key not in measures:
            continue
        synced, written, kafka = (middle(measures, row.key, s) for s in (SYNCED, WRITTEN, KAFKA))
        verdict = _verdict(row.reached(synced, kafka), row.reached(written, kafka))
        numbers = [_number(value, row.digits) for value in (synced, written, kafka)]
        ratios = [_ratio(synced, kafka), _ratio(written, kafka)]
        lines.append("| " + " | ".join([row.title, *numbers, *ratios, row.reach(), verdict]) + " |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float], digits: int) -> str:
    return f"{min(values):,.{digits}f} … {max(values):,.{digits}f}"


def report(result: Mapping[str, Any]) -> str:
    """The table with what a reader has to know to believe it."""
    machine, versions, load = result["machine"], result["versions"], result["load_average"]
    text = [
        (
            f"Measured {result['date']} on {machine['cores']} cores of {machine['cpu']}, "
            f"{machine['memory_gb']:g} GB, Linux {machine['kernel']}, Python {machine['python']}; "
            f"Fencepost {versions['fencepost']}, Kafka {versions['kafka']} ({versions['java']}), "
            f"librdkafka {versions['librdkafka']}. The load generator shared these cores. "
            f"Load average before: {load['before'][0]:.2f}, after: {load['after'][0]:.2f}. "
            f"Medians of {result['options']['rounds']} rounds, "
            f"Kafka warmed up for {result['options']['warm_up']:g} s."
        ),
        "",
        table(result["measures"]),
        (
            "`ack` syncs to the disk before it acknowledges; `os` leaves that to the operating system, "
            "as Kafka does."
        ),
    ]
    wide = [
        f"{row.title}: " + ", ".join(f"{s} {_spread(v, row.digits)}" for s, v in by_system.items())
        for row in ROWS
        if (by_system := result["measures"].get(row.key))
        and row.key.startswith(("pro", "con", "lat"))
    ]
    return (
        "\n".join([*text, "", "Least and most of the rounds:", ""] + [f"- {w}" for w in wide])
        + "\n"
    )
