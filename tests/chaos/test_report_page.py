"""The page of a run: what it says is true, whatever it was made of."""

import json
import re
import tracemalloc
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fencepost.chaos.checkers import history as history_module
from fencepost.chaos.report import digest, record_tables, run_folder
from fencepost.chaos.report.__main__ import main
from fencepost.chaos.report.index import write_index
from fencepost.chaos.report.measured import measure
from fencepost.chaos.report.page import write_page
from fencepost.chaos.report.verdict import judged
from fencepost.chaos.report.words import RULES
from report_scene import (
    FAULTS,
    HOSTILE,
    bad_run,
    good_run,
    history,
    operation,
    run_json,
    seen,
    write,
)

VOID = {"meta", "link", "input", "br"}


class Well(HTMLParser):
    """Every element that is opened is closed, in order; what the tags and the words are."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> while {self.open[-3:]} are open"
        self.open.pop()

    def handle_data(self, data) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)


def read(file) -> tuple[Well, str]:
    text = file.read_text()
    page = Well()
    page.feed(text)
    page.close()
    assert page.open == []
    return page, " ".join(" ".join(page.words).split())


def test_a_page_needs_nothing_but_itself(tmp_path) -> None:
    page, _ = read(write_page(good_run(tmp_path)))
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert attributes.get(name, "data:").startswith(("data:", "#")), (tag, attributes)
    text = (tmp_path / "report.html").read_text()
    assert not re.search(r"@import|url\(|fetch\(|XMLHttp", text)
    assert "default-src 'none'" in text


def test_a_good_run_tells_its_verdict_its_faults_its_gap_and_how_to_run_it_again(tmp_path) -> None:
    _, words = read(write_page(good_run(tmp_path)))
    assert "✓ Valid: what was acknowledged is there, once, in order" in words
    assert "4.55 s" in words  # from the last acknowledgement before 20.0 to the first at 24.5
    assert "fencepost chaos run --workload queue --target processes --faults kill,cut" in words
    for said in ("cut: 2, 3", "node 1", "commit d96f4ae", "3.10 s", "24 GiB"):
        assert said in words, said


def test_an_anomaly_is_shown_with_the_operations_that_show_it(tmp_path) -> None:
    _, words = read(write_page(bad_run(tmp_path)))
    assert "✕ Invalid: 1 × lost-write" in words
    assert "an acknowledged value was not read, though later ones of its partition were" in words
    shown = words[words.index("value 5 was acknowledged") :]
    assert "transaction 5" in shown and "t1-1 5 at 5" in shown and "transaction 9" in shown


def test_hostile_names_are_text_and_nothing_else(tmp_path) -> None:
    """Whoever names a topic writes into this page."""
    run = run_json(
        name=HOSTILE, workload=HOSTILE, faults=[HOSTILE], command=HOSTILE, why=HOSTILE, seed=HOSTILE
    )
    run |= {
        "versions": {HOSTILE: HOSTILE},
        "machine": {HOSTILE: HOSTILE},
        "verdict": "invalid",
        "counts": {HOSTILE: 1},
    }
    op = operation(1, 1.0, process=HOSTILE, why=HOSTILE) | {
        "f": HOSTILE,
        "sends": [[HOSTILE, HOSTILE, HOSTILE]],
    }
    op |= {"polls": [[HOSTILE] * 5], "offsets": {HOSTILE: HOSTILE}}
    fault = {
        "at_s": 0.5,
        "until_s": 0.9,
        "id": HOSTILE,
        "fault": HOSTILE,
        "target": HOSTILE,
        "nodes": [HOSTILE],
        "what": HOSTILE,
    }
    sample = {
        "at_s": 0.1,
        "leaders": {HOSTILE: HOSTILE},
        "isr": {HOSTILE: [HOSTILE]},
        "controller": HOSTILE,
    }
    anomaly = {"name": HOSTILE, "key": HOSTILE, "what": HOSTILE, "operations": [1, HOSTILE, None]}
    folder = write(tmp_path, run, history=[op], faults=[fault], seen=[sample], anomalies=[anomaly])
    page, words = read(write_page(folder))
    assert [tag for tag, _ in page.tags].count("script") == 1  # its own
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    text = (folder / "report.html").read_text()
    assert "<script>alert" not in text and '"x")' not in text
    assert not re.search("[\x00\u202a-\u202e\u2066-\u2069]", text)
    assert '<script>alert("x")</script>' in words  # readable, as it is


def test_a_terminal_obeys_no_name_either(tmp_path, capsys) -> None:
    run = run_json(verdict="invalid")
    lost = {"name": "\x1b]0;owned\x07\ud800", "key": "", "what": "", "operations": []}
    write(tmp_path, run, history=history(seconds=1.0), anomalies=[lost])
    assert main(["report", str(tmp_path)]) == 0
    assert "Invalid: 1 × \\u001b]0;owned\\u0007\\ud800" in capsys.readouterr().out


def test_every_rule_that_judges_a_run_is_explained() -> None:
    """Of those that look inside simulated nodes no page is made."""
    checkers = Path(history_module.__file__).parent
    inside = {
        "committed",
        "decisions",
        "deletions",
        "epochs",
        "group_offsets",
        "prefixes",
        "producer_state",
        "raft_properties",
    }
    named = {
        rule
        for file in checkers.glob("*.py")
        if file.stem not in inside
        for rule in re.findall(r'Anomaly\(\s*"([A-Za-z0-9-]+)"', file.read_text())
    }
    assert len(named) > 20
    assert sorted(named - set(RULES)) == []


def test_a_run_that_was_cut_short_says_so_and_shows_what_was_measured(tmp_path) -> None:
    run = run_json(verdict="unknown", why="", counts={}, recovery_ms={})
    folder = write(
        tmp_path,
        run,
        history=history(seconds=31.0),
        faults=[{"at_s": 30.0, "until_s": None, "id": "x", "fault": "kill"}],
    )
    _, words = read(write_page(folder))
    assert "? Unknown: the run ended before it was judged" in words
    assert (
        "It was to last 60.0 s; what was measured until second 31.0 is below." in words
        or "until second 30.9" in words
    )
    assert "1 fault had not been healed when the run ended." in words
    assert "never seen healed" in (folder / "report.html").read_text()


PROVES_NOTHING = (
    operation(1, 1.0, "info"),
    operation(1, 1.0, sends=[]),
    operation(1, 1.0, polls=[]),
)


@pytest.mark.parametrize(
    "files", [{}, {"history": []}, *({"history": [op]} for op in PROVES_NOTHING)]
)
def test_a_run_that_proved_nothing_is_not_called_valid(tmp_path, files) -> None:
    """Whatever run.json says of it."""
    folder = write(tmp_path, run_json(), **files)
    assert judged(measure(folder)).verdict == "unknown"
    _, words = read(write_page(folder))
    assert "? Unknown: the run calls itself valid, and proves nothing" in words
    assert "✓ Valid" not in words


def test_anomalies_that_are_not_allowed_stand_against_a_valid_verdict(tmp_path) -> None:
    lost = {"name": "lost-write", "key": "t0-0", "what": "gone", "operations": [1]}
    folder = write(tmp_path, run_json(), history=history(), anomalies=[lost])
    assert judged(measure(folder)).verdict == "unknown"
    folder = write(tmp_path, run_json(), anomalies=[lost | {"allowed": True}])
    assert judged(measure(folder)).verdict == "valid"
    _, words = read(write_page(folder))
    assert "Seen, and allowed by the rules of this run: 1 × lost-write." in words


def test_a_run_whose_history_lacks_lines_is_not_called_valid(tmp_path) -> None:
    """It was judged by lines of which some are gone: of what is shown nobody has said anything."""
    whole = history()
    figures = {"lines": len(whole), "blake2b": "x"}
    folder = write(tmp_path / "whole", run_json(history=figures), history=whole)
    assert judged(measure(folder)).verdict == "valid"
    folder = write(tmp_path / "cut", run_json(history=figures), history=whole[:-1])
    assert judged(measure(folder)).verdict == "unknown"
    _, words = read(write_page(folder))
    assert f"{len(whole) - 1:,} lines of {len(whole):,} of history.jsonl are there" in words
    assert "✓ Valid" not in words


def test_a_line_that_was_cut_off_is_named_and_the_rest_is_told(tmp_path) -> None:
    folder = good_run(tmp_path)
    with (folder / "history.jsonl").open("a") as file:
        file.write('nonsense\n[1]\n{"f": "txn", "type": "ok", "sends": [["t0-0", 1')
    found = measure(folder)
    assert found.operations["ok"] == len([op for op in history() if op["type"] == "ok"])
    _, words = read(write_page(folder))
    assert (
        "2 of 1,122 lines of history.jsonl could not be read, the first of them line 1,120" in words
    )
    assert "the last line of history.jsonl (line 1,122) is cut off in the middle" in words


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "{",
        "[]",
        "null",
        '{"verdict": "VALID"}',
        '{"verdict": 1e999, "seconds": "x", "counts": [1]}',
        "[" * 9_999,
    ],
)
def test_a_damaged_run_json_is_a_page_that_says_so(tmp_path, damaged) -> None:
    folder = write(tmp_path, None, history=history(seconds=2.0))
    (folder / "run.json").write_text(damaged)
    _, words = read(write_page(folder))
    assert "? Unknown" in words and "run.json" in words


@pytest.mark.parametrize(
    "at", [float("nan"), float("inf"), -5.0, 1e300, "soon", None, True, [], 10**400]
)
def test_an_operation_with_an_impossible_time_is_counted_and_not_drawn(tmp_path, at) -> None:
    good = operation(1, 1.0)
    lines = [json.dumps(good), json.dumps(good | {"ended_s": at})]
    folder = write(tmp_path, run_json())
    (folder / "history.jsonl").write_text("".join(f"{line}\n" for line in lines))
    found = measure(folder)
    # A number of five thousand digits is no JSON to Python: that line is unreadable, the others are untimed.
    assert found.operations["ok"] == 2
    assert found.without_time == 1
    assert found.end_s == 1.0
    read(write_page(folder))


def test_a_line_longer_than_memory_should_hold_is_passed_by(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(run_folder, "LINE_BYTES_MAX", 1_000)
    folder = write(tmp_path, run_json())
    long = json.dumps(operation(1, 1.0, why="x" * 5_000))
    (folder / "history.jsonl").write_text(f"{long}\n{json.dumps(operation(2, 2.0))}\n")
    found = measure(folder)
    assert found.operations["ok"] == 1
    assert "1 of 2 lines of history.jsonl could not be read" in found.problems[0]


def test_a_folder_without_a_run_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(run_folder.NoRun, match=r"holds no run: there is no run\.json"):
        write_page(tmp_path)


def test_a_history_without_times_takes_its_throughput_from_samples(tmp_path) -> None:
    folder = good_run(tmp_path)
    lines = [
        {name: value for name, value in op.items() if not name.endswith("_s")} for op in history()
    ]
    write(folder, None, history=lines)
    found = measure(folder)
    assert found.from_samples and found.a_second == pytest.approx(20.0, rel=0.1)
    _, words = read(write_page(folder))
    assert "the history has no times" in words


@pytest.mark.slow
def test_ten_times_the_history_takes_no_more_memory(tmp_path) -> None:
    """A run of an hour leaves gigabytes."""
    peaks = []
    for name, rate in (("short", 10), ("long", 100)):
        folder = write(tmp_path / name, run_json(), history=history(rate=rate))
        tracemalloc.start()
        try:
            measure(folder)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 300_000, peaks


def two_sides(folder: Path, struck: int, ours: dict, theirs: dict) -> None:
    """Runs of Fencepost and of Kafka, each struck so often by `kill`, asked for `kill` and `cut`."""
    many = [FAULTS[0] | {"id": str(number)} for number in range(struck)]
    began = "2026-11-21T18:00:00+00:00"
    kafka = {"target": "kafka", "versions": {"kafka": "4.3.0"}, "began": began}
    for name, more in (
        ("ours", {"recovery_ms": ours}),
        ("theirs", kafka | {"recovery_ms": theirs}),
    ):
        run = run_json(**more)
        write(folder / name, run, history=history(), faults=many, seen=seen(), anomalies=[])


def test_of_few_faults_there_are_no_percentiles_and_what_struck_is_told_beside_what_was_asked_for(
    tmp_path,
) -> None:
    """Four faults have no p99; and a kind that was asked for and never came compares nothing."""
    times = {"p50": 412.0, "p99": 3100.0, "max": 3100.0, "not served": 0}
    two_sides(tmp_path, 9, times, times)
    runs = [digest.read(write_page(tmp_path / name).parent) for name in ("ours", "theirs")]
    table = record_tables._compared(runs)
    assert "| faults asked for |" in table and "| hours | faults that struck |" in table
    assert table.count("| 0.02 | 9 (9 × kill; never cut) |") == 2
    assert table.count("| – | – | 3.10 s | 0 |") == 2
    _, words = read(write_index(tmp_path))
    assert "0.02 9 (9 × kill; never cut)" in words and "– – 3.10 s 0" in words
    assert "412 ms" not in words
    _, words = read(tmp_path / "ours" / "report.html")
    assert "Recovery 3.10 s max; percentiles take 10 faults" in words and "412 ms" not in words


def test_faults_that_somebody_was_never_served_again_after_are_told_beside_the_times(
    tmp_path,
) -> None:
    times = {"p50": 412.0, "p99": 3100.0, "max": 3100.0}
    two_sides(tmp_path, 13, times | {"not served": 3}, times)
    _, words = read(write_page(tmp_path / "ours"))
    assert "max 3.10 s, 3 not served" in words
    _, words = read(write_index(tmp_path))
    assert "412 ms 3.10 s 3.10 s 3" in words
    assert "412 ms 3.10 s 3.10 s –" in words, "before it was counted nobody knew"
    assert "3.10 s 3 not served" in words
    runs = [digest.read(tmp_path / name) for name in ("ours", "theirs")]
    table = record_tables._compared(runs)
    assert "| recovery p50 | p99 | max | not served |" in table
    assert "| 412 ms | 3.10 s | 3.10 s | 3 |" in table
    assert "| 3.10 s | 3.10 s | 3 |" in table and "| 3.10 s | 3.10 s | – |" in table


def test_which_node_ran_which_build_is_shown_over_time_and_as_a_table(tmp_path) -> None:
    steps = [(0.0, 1, "older"), (0.0, 2, "older"), (10.0, 1, "newer"), (20.0, 1, "older")]
    steps += [(25.0, 1, "newer"), (30.0, HOSTILE, "newer"), (31.0, 2, HOSTILE)]
    told = [{"at_s": at_s, "node": node, "build": build} for at_s, node, build in steps]
    line = {"at_s": 8.0, "id": "u", "fault": "upgrade", "nodes": [1, 2], "what": "upgraded"}
    bad = [None, {"at_s": "x", "build": "older"}]
    lines = [
        {**line, "until_s": None, "builds": told[:3]},
        {**line, "until_s": 40.0, "builds": [*told, *bad]},
    ]
    write(good_run(tmp_path), None, faults=lines)
    page, words = read(write_page(tmp_path))
    file = (tmp_path / "report.html").read_text()
    titles = unescape(file)
    for node, build, span in (
        (1, "the older build", "0.0 s to 10.0 s"),
        (1, "today's build", "10.0 s to 20.0 s"),
        (1, "the older build", "20.0 s to 25.0 s"),
        (2, "the older build", "0.0 s to"),
    ):
        assert f"node {node}: {build}, {span}" in titles
    shown = [dict(at)["class"] for tag, at in page.tags if tag == "rect" and "class" in dict(at)]
    assert (shown.count("older"), shown.count("newer")) == (3, 3)
    assert "Builds as a table" in words and "<script>alert" not in file


def test_a_page_says_how_many_clients_hung(tmp_path) -> None:
    folder = write(tmp_path / "x", run_json(counts={"hung clients": 2}))
    assert "2 clients hung in librdkafka" in write_page(folder or tmp_path / "x").read_text()
