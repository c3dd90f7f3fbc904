"""The benchmark's own parts; of what they measure nothing is held to a time but a gap where there is none."""

import json
import subprocess
import sys
from xml.etree import ElementTree as ET

import bench_plot
import pytest
import readme_numbers
from bench_rows import ONE_NODE, THREE_NODES
from bench_table import KAFKA, SYNCED, WRITTEN, report, table
from support.alone import held_to
from support.fencepost_process import fencepost

pytestmark = pytest.mark.needs("python:confluent_kafka")

RESULT = {
    "date": "2026-01-01T00:00:00+00:00",
    "machine": {"cores": 2, "cpu": "a CPU", "memory_gb": 8.0, "kernel": "6.1", "python": "3.11"},
    "versions": {"fencepost": "abc", "kafka": "4.3.0", "java": "openjdk 21", "librdkafka": "2.1"},
    "options": {"rounds": 3, "warm_up": 120.0},
    "load_average": {"before": (0.1, 0.1, 0.1), "after": (1.5, 1.0, 0.5)},
    "measures": {
        "produce_mb_s": {SYNCED: [90.0, 300.0, 80.0], WRITTEN: [200.0], KAFKA: [100.0]},
        "latency_p99_ms": {SYNCED: [2.0], WRITTEN: [1.0], KAFKA: [1.5]},
        "start_s": {SYNCED: [1.6], KAFKA: [4.0]},
        "many_idle_cpu": {SYNCED: [0.0], KAFKA: [9.0]},
    },
}


def test_the_table_shows_medians_ratios_and_whether_each_reach_was_reached() -> None:
    lines = table(ONE_NODE, RESULT["measures"]).splitlines()
    assert lines[2:] == [
        "| Produce, MB/s | 90 | 200 | 100 | 0.90 | 2.00 | ≥ 1 × Kafka | os only |",
        (
            "| Acknowledgement at 1,000 records/s, p99, ms (once) "
            "| 2.00 | 1.00 | 1.50 | 1.33 | 0.67 | ≤ 1/2 × Kafka | no |"
        ),
        "| Start to first acknowledgement, s (once) | 1.60 | – | 4.00 | 0.40 | – | < 1.5 | no |",
        "| 10,000 partitions: idle CPU, % of a core (once) | 0.00 | – | 9.00 | 0.00 | – | < 2 | yes |",
    ]


def test_the_report_names_the_machine_the_versions_and_how_busy_it_was() -> None:
    text = report(ONE_NODE, RESULT)
    for part in ("2 cores of a CPU", "Kafka 4.3.0 (openjdk 21)", "before: 0.10, after: 1.50"):
        assert part in text
    assert "Produce, MB/s: fencepost_ack 80 … 300" in text


def test_a_row_that_was_measured_once_says_so_and_the_legend_what_is_held_to_what() -> None:
    """Medians of three rounds are said of the whole table."""
    rows = [line for line in report(ONE_NODE, RESULT).splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0].endswith("(once)") for line in rows[1:]] == [
        False,
        True,
        True,
        True,
    ]
    legend = report(ONE_NODE, RESULT).partition("`ack` syncs")[2]
    assert "(once): one value" in legend
    assert "Only where a reach names `ack` by itself" in legend


@pytest.mark.parametrize("name", readme_numbers.NAMES)
def test_the_report_of_a_run_is_what_its_values_say(name: str) -> None:
    """`python deploy/benchmarks/readme_numbers.py` writes both it and the README."""
    assert (readme_numbers.RESULTS / f"{name}.md").read_text() == readme_numbers.told(name)


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.timeout(150)
def test_a_second_of_load_reaches_a_node_and_comes_back_whole() -> None:
    import bench_load  # finds librdkafka's shared library: not on every machine

    def load(command: str, **options: float) -> dict[str, float]:
        flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        target = ["--bootstrap", node.bootstrap, "--topic", "load"]
        run = [sys.executable, bench_load.__file__, command, *target, *flags]
        return json.loads(subprocess.run(run, check=True, capture_output=True, timeout=100).stdout)

    with fencepost() as node:
        load("first_acknowledgement")
        wrote = load("produce", seconds=1)
        read = load("consume", partitions=1, records=wrote["records"] + 1)
        slow = load("latency", seconds=0.5, rate=200)
        gap = load("gap", partition=0, seconds=0.5, rate=200)
    assert wrote["records"] > 1 and wrote["mb_per_s"] > 0
    assert read["records"] == wrote["records"] + 1
    assert 0 < gap["longest_s"] < held_to(0.5) and gap["records"] == 101
    assert 0 < slow["p50_ms"] <= slow["p99_ms"] and slow["records"] == 100


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_second_of_transactions_is_committed_and_read_at_both_levels() -> None:
    import bench_load
    import bench_txn_load

    def load(program: str, command: str, **options: float | str) -> dict[str, float]:
        flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        run = [sys.executable, program, command, "--bootstrap", node.bootstrap, *flags]
        return json.loads(subprocess.run(run, check=True, capture_output=True, timeout=100).stdout)

    with fencepost() as node:
        common = {"seconds": 0.5, "name": "bench"}
        one = {"producers": 3, "partition": -1, "topic": "small"}
        small = load(bench_txn_load.__file__, "transactions", **common, **one)
        wrote = load(bench_txn_load.__file__, "stream", transactional=1, topic="many", **common)
        amount = {"partitions": 1, "records": wrote["records"], "topic": "many"}
        for level in ("read_committed", "read_uncommitted"):
            read = load(bench_load.__file__, "consume", isolation=level, **amount)
            assert read["records"] == wrote["records"] > 0
    assert small["transactions"] > 0 and small["aborted"] == 0
    assert 0 < small["p50_ms"] <= small["p99_ms"] <= small["longest_s"] * 1000


def test_the_readme_shows_the_numbers_of_the_last_whole_runs() -> None:
    readme = readme_numbers.README.read_text()
    assert readme_numbers.current(readme) == readme


def test_a_disk_may_cost_the_synced_policy_a_quarter_and_no_more() -> None:
    values = {SYNCED: [74.0], WRITTEN: [100.0], KAFKA: [90.0]}
    assert table(THREE_NODES, {"produce_mb_s": values}).splitlines()[2].endswith("| os only |")
    values[SYNCED] = [76.0]
    assert table(THREE_NODES, {"produce_mb_s": values}).splitlines()[2] == (
        "| Produce, MB/s (once) | 76 | 100 | 90 | 0.84 | 1.11 | ≥ 1 × Kafka, `ack` ≥ 0.75 × `os` | yes |"
    )


def test_the_picture_has_a_bar_for_every_value_and_is_well_formed() -> None:
    picture = ET.fromstring(bench_plot.plot(ONE_NODE, RESULT["measures"]))
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Produce, MB/s", "90", "200", "100", "≥ 1 × Kafka"} <= set(texts)
    bars = list(picture.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(bars) == 1 + 3 + 3 + 3 + 2 + 2  # the ground, the legend, and the rows' values
