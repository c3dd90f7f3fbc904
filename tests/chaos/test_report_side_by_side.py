"""Who stands beside whom: Kafka beside what ran as it does, and only runs of which as much was asked in one row."""

import json
from dataclasses import asdict, fields

import pytest
from fencepost.chaos.report import record_tables
from fencepost.chaos.report.digest import DIGEST, Digest, from_dict
from fencepost.chaos.report.index import digest_of, write_index
from fencepost.chaos.report.prune import prune
from fencepost.chaos.report.record import Ledger
from fencepost.chaos.report.side_by_side import compared, system_of
from fencepost.chaos.runs.plan import LOAD_OPTIONS, Plan
from report_scene import HOSTILE, bad_run, good_run
from test_report_page import read

KAFKA = {"target": "kafka", "versions": {"kafka": "4.3.0"}}
LOAD = "60 s, 5 × 10/s"


def options(**changes) -> dict:
    """As run.json has them."""
    return json.loads(json.dumps(asdict(Plan(**changes))))


def ran(target: str, a_second: float, at: int = 0, **more) -> Digest:
    """Under one workload and one kind of fault."""
    began = f"2026-11-21T16:{at:02}:00+00:00"
    versions = KAFKA["versions"] if target == "kafka" else {}
    return Digest(
        workload="pipeline", target=target, nodes=3, faults=["cut"], began=began, a_second=a_second, versions=versions, **more
    )  # fmt: skip


def rows(runs: list[Digest]) -> list[tuple[str, str, float | None]]:
    """What the clients were asked for, whose side it is, and its records a second."""
    return [
        (key.load, side.system, side.a_second)
        for key, sides in compared(runs).items()
        for side in sides
    ]


def test_kafka_runs_as_processes_and_is_compared_with_processes_alone() -> None:
    """Of one run on each, the median was that of no system: 89 of 43.5 and 133.6."""
    runs = [ran("processes", 43.5), ran("containers", 133.6), ran("simulator", 9e9)]
    assert [system_of(each) for each in runs] == [
        "Fencepost on processes",
        "Fencepost on containers",
        "Fencepost, simulated",
    ]
    assert rows([*runs, ran("kafka", 17.1)]) == [
        ("", "Fencepost on processes", 43.5),
        ("", "Kafka 4.3.0", 17.1),
    ]
    assert rows([*runs[1:], ran("kafka", 17.1)]) == []
    assert rows(runs) == []


@pytest.mark.parametrize(
    ("more", "load"),
    [
        ({"seconds": 120.0}, "120 s, 5 × 10/s"),
        ({"rate": 2.5}, "60 s, 5 × 2.5/s"),
        ({"clients": 9}, "60 s, 9 × 10/s"),
        ({"settings": ("log.roll.ms=1000",)}, f"{LOAD}, settings log.roll.ms=1000"),
        ({"at_once": 2, "crash_s": 0.0}, f"{LOAD}, at-once 2, crash-s 0"),
        ({"transactions": False, "via": ("assign",)}, f"{LOAD}, via assign, transactions no"),
    ],
)
def test_runs_of_which_not_the_same_was_asked_are_not_one_row(tmp_path, more, load) -> None:
    for at, asked in enumerate((options(), options(**more))):
        good_run(tmp_path / f"{at}", options=asked, began=f"2026-11-21T16:0{at}:00+00:00")
        good_run(tmp_path / f"{at}k", options=asked, began=f"2026-11-21T17:0{at}:00+00:00", **KAFKA)
    good_run(tmp_path / "alone", options=options(keys=3))
    found = [digest_of(each) for each in sorted(tmp_path.iterdir())]
    both = ["Fencepost on processes", "Kafka 4.3.0"]
    assert {
        key.load: [side.system for side in sides] for key, sides in compared(found).items()
    } == {
        LOAD: both,
        load: both,
    }
    assert all(len(side.runs) == 1 for sides in compared(found).values() for side in sides)
    table = record_tables._compared(found)
    assert f"| {LOAD} | Kafka 4.3.0 | 1 |" in table and f"| {load} | Kafka 4.3.0 | 1 |" in table
    _, words = read(write_index(tmp_path))
    assert f"kill {LOAD} system" in words and f"kill {load} system" in words


def test_every_option_of_a_run_is_one_that_runs_are_told_apart_by_or_known_to_be_none() -> None:
    """The first four are told beside it, the seed is to differ, final polls end when all is read, Kafka has no older build."""
    others = {"workload", "target", "faults", "nodes", "seed", "final_s", "older"}
    assert {each.name for each in fields(Plan)} - set(LOAD_OPTIONS) == others


def test_what_was_asked_is_kept_in_the_ledger_and_older_lines_stand_as_they_did(tmp_path) -> None:
    file = tmp_path / "record.jsonl"
    older = [ran("processes", 40.0), ran("processes", 60.0, 1), ran("kafka", 17.0, 2)]
    ledger = Ledger(file)
    for each in older:
        ledger.add_run(each)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        del line["options"]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    folders = [
        good_run(tmp_path / "ours", options=options()),
        good_run(tmp_path / "theirs", options=options(), **KAFKA),
    ]
    ledger = Ledger.read(file)
    for each in folders:
        ledger.add_run(digest_of(each))
    told = rows(list(Ledger.read(file).runs.values()))
    assert told[:2] == [("", "Fencepost on processes", 50.0), ("", "Kafka 4.3.0", 17.0)]
    assert [each[:2] for each in told[2:]] == [
        (LOAD, "Fencepost on processes"),
        (LOAD, "Kafka 4.3.0"),
    ]
    assert "| 3 | not kept | Kafka 4.3.0 | 1 |" in record_tables._compared(older)


def test_an_option_that_was_not_there_yet_was_as_it_is_by_default(tmp_path) -> None:
    """A new option would take every older run out of its row."""
    before = options()
    del before["age_s"], before["crash_s"]
    good_run(tmp_path / "ours", options=before)
    good_run(tmp_path / "theirs", options=options(), **KAFKA)
    found = [digest_of(tmp_path / name) for name in ("ours", "theirs")]
    assert [key.load for key in compared(found)] == [LOAD]


def test_a_run_that_was_pruned_before_this_was_kept_says_it_in_its_run_json(tmp_path) -> None:
    folder = good_run(tmp_path / "ours", options=options(rate=3.0))
    assert prune(folder)
    made = json.loads((folder / DIGEST).read_text())
    del made["options"]
    (folder / DIGEST).write_text(json.dumps(made | {"form": 4}))
    assert digest_of(folder).options["rate"] == "3"


@pytest.mark.parametrize("odd", [None, [], "x", {"seconds": {}, "via": HOSTILE, "rate": None}])
def test_options_that_are_none_and_hostile_ones_stay_text(tmp_path, odd) -> None:
    bad_run(tmp_path / "theirs", options=odd, **KAFKA)
    good_run(tmp_path / "ours", options=odd)
    page, words = read(write_index(tmp_path))
    assert "Fencepost on processes 1 (1 valid)" in words and "Kafka 4.3.0 1 (1 invalid)" in words
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    found = [digest_of(tmp_path / name) for name in ("ours", "theirs")]
    assert "<script>" not in record_tables._compared(found)
    assert from_dict(asdict(found[0])) == found[0]


def test_the_page_over_runs_has_no_containers_beside_kafka(tmp_path) -> None:
    good_run(tmp_path / "ours")
    good_run(tmp_path / "contained", target="containers", began="2026-11-21T17:00:00+00:00")
    bad_run(tmp_path / "theirs", began="2026-11-21T18:00:00+00:00", **KAFKA)
    good_run(tmp_path / "other", faults=["pause"], began="2026-11-21T19:00:00+00:00", **KAFKA)
    _, words = read(write_index(tmp_path))
    title = "Kafka and Fencepost under the same faults"
    told = words[words.index(title) : words.index("All runs")]
    assert "Fencepost on processes 1 (1 valid)" in told and "Kafka 4.3.0 1 (1 invalid)" in told
    assert "Fencepost on containers" not in told
    assert "1 × lost-write" in told and "pause" not in told
