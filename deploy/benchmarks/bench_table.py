"""What is measured, what has to be reached, and the table of it. No clock, no process, no file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

SYNCED, WRITTEN, KAFKA = "fencepost_ack", "fencepost_os", "kafka"
Values = Mapping[str, Mapping[str, list[float]]]  # measure -> system -> a value each round
ONCE = "(once)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. A reach is a ratio to Kafka or a plain limit; without one it is for knowledge.

    `synced_share` is for what a disk can slow down: with `ack` it need only reach that share of `os`.
    """

    key: str
    title: str
    digits: int = 0
    ratio_at_least: float | None = None
    ratio_at_most: float | None = None
    below: float | None = None
    at_least: float | None = None
    synced_share: float | None = None

    def reach(self) -> str:
        if self.ratio_at_least is not None:
            share = f", `ack` ≥ {self.synced_share:g} × `os`" if self.synced_share else ""
            return f"≥ {self.ratio_at_least:g} × Kafka{share}"
        if self.ratio_at_most is not None:
            return f"≤ {_fraction(self.ratio_at_most)} × Kafka"
        if self.at_least is not None:
            return f"≥ {self.at_least:,g}"
        return "" if self.below is None else f"< {self.below:g}"

    def reached(self, value: float | None, kafka: float | None) -> bool | None:
        """None where there is nothing to reach or nothing to compare."""
        if value is None:
            return None
        if self.below is not None:
            return value < self.below
        if self.at_least is not None:
            return value >= self.at_least
        if kafka is None:
            return None
        if self.ratio_at_least is not None:
            return value >= self.ratio_at_least * kafka
        return None if self.ratio_at_most is None else value <= self.ratio_at_most * kafka

    def synced_reached(
        self, value: float | None, written: float | None, kafka: float | None
    ) -> bool | None:
        if self.synced_share is None or value is None or written is None:
            return self.reached(value, kafka)
        return value >= self.synced_share * written


def _fraction(value: float) -> str:
    return f"1/{1 / value:.0f}" if value < 1 else f"{value:g}"


def middle(measures: Values, key: str, system: str) -> float | None:
    values = measures.get(key, {}).get(system, [])
    return median(values) if values else None


def titled(title: str, by_system: Mapping[str, Sequence[float]]) -> str:
    """A median of one value is none: the row says so."""
    return f"{title} {ONCE}" if max(map(len, by_system.values())) == 1 else title


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


def table(rows: Sequence[Row], measures: Values) -> str:
    """The Markdown table: medians, ratios, and what was to be reached."""
    lines = [
        "| | Fencepost `ack` | Fencepost `os` | Kafka | `ack` ÷ Kafka | `os` ÷ Kafka | reach | reached |",
        "|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for row in rows:
        if row.key not in measures:
            continue
        synced, written, kafka = (middle(measures, row.key, s) for s in (SYNCED, WRITTEN, KAFKA))
        verdict = _verdict(row.synced_reached(synced, written, kafka), row.reached(written, kafka))
        numbers = [_number(value, row.digits) for value in (synced, written, kafka)]
        ratios = [_ratio(synced, kafka), _ratio(written, kafka)]
        title = titled(row.title, measures[row.key])
        lines.append("| " + " | ".join([title, *numbers, *ratios, row.reach(), verdict]) + " |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float], digits: int) -> str:
    return f"{min(values):,.{digits}f} … {max(values):,.{digits}f}"


def report(rows: Sequence[Row], result: Mapping[str, Any]) -> str:
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
        table(rows, result["measures"]),
        (
            "`ack` syncs to the disk before it acknowledges; `os` leaves that to the operating system, "
            "as Kafka does. A reach holds for both: `ack` is held to Kafka's value, though Kafka does not sync. "
            "Only where a reach names `ack` by itself is it held to that share of `os` instead. "
            f"{ONCE}: one value, no median."
        ),
    ]
    wide = [
        f"{row.title}: " + ", ".join(f"{s} {_spread(v, row.digits)}" for s, v in by_system.items())
        for row in rows
        if (by_system := result["measures"].get(row.key)) and max(map(len, by_system.values())) > 1
    ]
    return (
        "\n".join([*text, "", "Least and most of the rounds:", ""] + [f"- {w}" for w in wide])
        + "\n"
    )
