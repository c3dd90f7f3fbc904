"""What is counted into the record, pruned, and put side by side."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest
from fencepost.chaos.report import digest, measured, page, record_tables
from fencepost.chaos.report.__main__ import main
from fencepost.chaos.report.index import digest_of, write_index
from fencepost.chaos.report.nodes_code import NOW
from fencepost.chaos.report.prune import prune
from fencepost.chaos.report.record import Ledger, add_all, campaign_of
from fencepost.chaos.report.run_folder import HISTORY
from fencepost.chaos.sim.plan import Plan
from report_scene import HOSTILE, bad_run, good_run, history, run_json, write
from test_report_page import read

CAMPAIGN = {
    "campaign": "cluster",
    "commit": "d96f4ae1234",
    "began": "2026-11-21T12:00:00+00:00",
    "seeds": "0..1000",
    "runs": 1_000,
    "virtual_s": 36_000.0,
    "real_s": 900.0,
    "acknowledged": 5_000_000,
    "faults": {"kill": 4_000, "pause": 2_500},
    "failures": [
        {"seed": 17, "kind": "lost", "what": "x", "command": "fencepost sim run --seeds 17 | x"}
    ],
    "different": 0,
}


def record_folder(folder):
    folder.mkdir()
    text = f"# Record\n\nby hand\n\n{record_tables.BEGIN}\nold\n{record_tables.END}\n\n| more | by hand |\n"
    (folder / "RECORD.md").write_text(text)
    return folder


def test_what_is_added_again_counts_once(tmp_path) -> None:
    """Also from a folder that was moved, and after its history has been pruned."""
    into, runs = record_folder(tmp_path / "into"), tmp_path / "runs"
    good_run(runs / "a")
    bad_run(runs / "b", began="2026-11-21T17:00:00+00:00")
    (runs / "campaigns.jsonl").write_text(json.dumps(CAMPAIGN) + "\n")
    for _ in range(2):
        assert main(["record", str(runs), "--into", str(into)]) == 0
    prune(runs / "a")
    runs.rename(tmp_path / "moved")
    assert main(["record", str(tmp_path / "moved"), "--into", str(into)]) == 0
    assert len((into / "record.jsonl").read_text().splitlines()) == 3
    text = (into / "RECORD.md").read_text()
    assert text.startswith("# Record\n\nby hand\n\n") and text.endswith("| more | by hand |\n")
    assert "\nold\n" not in text
    assert (
        "| **simulator, all** | 1,000 seeds | 10.0 virtual | 6,500 | 5,000,000 | 1 | 0 | – |"
        in text
    )
    assert "| **Fencepost on real nodes, all** | 2 runs | 0.0 | 4 |" in text
    assert "| `d96f4ae` | 2026-11-21 | 1,000 | 1 | 2 | 0.03 | 0.00 | 1 | 0 |" in text


def all_of_the_simulator(tmp_path, *campaigns) -> str:
    """The row of all seeds, of these lines in one file."""
    into = record_folder(tmp_path / "into")
    text = "".join(f"{json.dumps(CAMPAIGN | each)}\n" for each in campaigns)
    (into / "campaigns.jsonl").write_text(text)
    assert main(["record", str(into), "--into", str(into)]) == 0
    text = (into / "RECORD.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| **simulator, all**")]
    seeds = row.split("|")[2].split()[0]
    assert any("commit" in each for each in campaigns) or (
        f"| `d96f4ae` | 2026-11-22 | {seeds} |" in text
    )
    return row


LATER = {"began": "2026-11-22T12:00:00+00:00", "asked": ""}
ONCE = "| **simulator, all** | 1,000 seeds | 10.0 virtual | 6,500 | 5,000,000 | 1 | 0 | – |"
TWICE = "| **simulator, all** | 2,000 seeds | 20.0 virtual | 13,000 | 10,000,000 | 2 | 0 | – |"


@pytest.mark.parametrize(
    ("first", "again", "row"),
    [
        ({"asked": ""}, {}, ONCE),
        ({"asked": "--faults kill"}, {"asked": "--faults kill"}, ONCE),
        ({"asked": ""}, {"asked": "--faults kill"}, TWICE),
        ({}, {"asked": None}, TWICE),  # older lines do not say what was asked for
        ({"asked": "", "commit": "d96f4ae+"}, {"commit": "d96f4ae+"}, TWICE),  # changed in between?
    ],
)
def test_seeds_that_were_run_again_with_the_same_options_count_once(
    tmp_path, first, again, row
) -> None:
    assert all_of_the_simulator(tmp_path, first, LATER | again) == row


def test_of_seeds_that_were_run_again_only_the_new_ones_count(tmp_path) -> None:
    """And what failed in one that had not failed before: the same plan is to be the same run."""
    failed = CAMPAIGN["failures"][0]
    more = {"seeds": "900..1100,2000", "runs": 201, "virtual_s": 7_236.0, "acknowledged": 201_000}
    more |= {"faults": {"kill": 402}, "failures": [failed, failed | {"seed": 950}]}
    row = all_of_the_simulator(tmp_path, {"asked": ""}, LATER | more)
    assert (
        row == "| **simulator, all** | 1,101 seeds | 11.0 virtual | 6,702 | 5,101,000 | 2 | 0 | – |"
    )


JUDGED_AGAIN = [
    # verdicts, one after the other; those that get a line; what the run counts as
    (["unknown", "valid"], 2, "valid"),
    (["unknown", "invalid"], 2, "invalid"),
    (["valid", "invalid"], 2, "invalid"),
    (["valid", "unknown"], 2, "unknown"),
    (["invalid", "valid"], 1, "invalid"),
    (["invalid", "unknown", "valid"], 1, "invalid"),
    (["valid", "valid"], 1, "valid"),
]


@pytest.mark.parametrize(("verdicts", "lines", "counts_as"), JUDGED_AGAIN)
def test_a_run_that_was_judged_again_counts_as_what_it_is_now(
    tmp_path, verdicts, lines, counts_as
) -> None:
    """But for one that was invalid: whether it was so is for somebody to look at, not for the newest checker."""
    file, folder = tmp_path / "record.jsonl", tmp_path / "a"
    for verdict in verdicts:
        write(folder, run_json(verdict=verdict), history=history(2.0))
        add_all(Ledger.read(file), [folder])
    assert len(file.read_text().splitlines()) == lines
    (kept,) = Ledger.read(file).runs.values()
    assert kept.verdict == counts_as


def test_a_line_that_would_take_an_invalid_run_back_does_not_count(tmp_path) -> None:
    """Two may have added at once, and of one file each knew its own beginning alone."""
    parts = []
    for verdict in ("invalid", "valid"):
        ledger = Ledger(tmp_path / f"{verdict}.jsonl")
        ledger.add_run(digest.Digest(name="a", began="2026", verdict=verdict))
        parts.append(ledger.file.read_text())
    both = tmp_path / "record.jsonl"
    for text in (parts[0] + parts[1], parts[1] + parts[0]):
        both.write_text(text)
        assert [run.verdict for run in Ledger.read(both).runs.values()] == ["invalid"]


def test_a_run_that_was_added_while_it_went_on_counts_whole_when_it_has_ended(tmp_path) -> None:
    file, folder = tmp_path / "record.jsonl", tmp_path / "a"
    for seconds in (2.0, 4.0):
        write(folder, run_json(verdict="unknown"), history=history(seconds))
        add_all(Ledger.read(file), [folder])
    (kept,) = Ledger.read(file).runs.values()
    assert kept.acknowledged == 80


NOBODY_KNOWS = "d0d0d0d+"


def of_four_commits(tmp_path) -> Ledger:
    ledger = Ledger(tmp_path / "record.jsonl")
    for day, commit in enumerate(("aaaaaaa", "bbbbbbb", "ccccccc", NOBODY_KNOWS)):
        line = {"commit": commit, "began": f"2026-11-2{day}", "failures": [], "runs": 10 + day}
        ledger.add_campaign(campaign_of(CAMPAIGN | line))
    return ledger


def codes_of(now: str) -> Callable[[str], str]:
    codes = {"aaaaaaa": "1", "bbbbbbb": "1", "ccccccc": "2", NOBODY_KNOWS: "", NOW: now}
    return codes.__getitem__


def test_what_was_run_counts_for_every_commit_of_the_same_nodes(tmp_path) -> None:
    """Also for one that nothing was run on: that nothing was is the first row then."""
    ledger = of_four_commits(tmp_path)
    run = digest.Digest(
        name="a", began="2026-11-25", commit="aaaaaaa", seconds=1_800.0, verdict="valid"
    )
    ledger.add_run(run)
    begun_on = {"versions": {"older build": "0f0f0f0"}, "name": "b", "seconds": 900.0}
    ledger.add_run(replace(run, **begun_on))

    def rows(now: str) -> list[str]:
        told = record_tables.tables(ledger, codes_of(now))
        part = told.partition("### By the nodes' code")[2].partition("### By commit")[0]
        return [line for line in part.splitlines() if line.startswith("|")][2:]

    first, second = "`aaaaaaa`, `bbbbbbb` | 21 | 0 | 2 | 0.75 | 0.25 | 0 | 0 |", "`ccccccc` | 12 | 0 | 0 | 0.00 | 0.00 | 0 | 0 |"  # fmt: skip
    last = "| unknown | 13 | 0 | 0 | 0.00 | 0.00 | 0 | 0 |"
    assert rows("1") == [f"| **as it stands**: {first}", f"| {second}", last]
    assert rows("2") == [f"| **as it stands**: {second}", f"| {first}", last]
    none = "| **as it stands**: nothing was run on it yet | 0 | 0 | 0 | 0.00 | 0.00 | 0 | 0 |"
    for now in ("3", ""):  # "": what runs is in no commit
        assert rows(now) == [none, f"| {first}", f"| {second}", last]


def test_seeds_that_were_not_the_same_run_twice_failed(tmp_path) -> None:
    into = record_folder(tmp_path / "into")
    different = CAMPAIGN | {"failures": [], "different": 3}
    (into / "campaigns.jsonl").write_text(json.dumps(different) + "\n")
    assert main(["record", str(into), "--into", str(into)]) == 0
    text = (into / "RECORD.md").read_text()
    assert (
        "| **simulator, all** | 1,000 seeds | 10.0 virtual | 6,500 | 5,000,000 | 3 | 0 | – |"
        in text
    )
    assert "| `d96f4ae` | 2026-11-21 | 1,000 | 3 |" in text
    said = "another run the second time: 3 seeds | `fencepost sim run --campaign cluster --seeds 0..1000`"
    assert f"| 2026-11-21 | `d96f4ae` | simulator | {said} |" in text


def test_each_of_many_faults_is_counted_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(measured, "FAULTS_MAX", 20)
    begun = [{"id": str(n), "at_s": float(n), "until_s": None, "fault": "kill"} for n in range(25)]
    healed = [each | {"until_s": each["at_s"] + 0.5} for each in begun]
    in_turn = [line for pair in zip(begun, healed, strict=True) for line in pair]
    for lines in (in_turn, begun + healed):
        found = measured.measure(write(tmp_path / "a", run_json(), faults=lines))
        assert found.fault_counts == {"kill": 25}
        assert len(found.faults) == 20
    failed = [each | {"struck": False} for each in in_turn]
    assert not measured.measure(write(tmp_path / "b", run_json(), faults=failed)).fault_counts


def test_hostile_names_are_no_rows_of_the_record(tmp_path) -> None:
    into, runs = record_folder(tmp_path / "into"), tmp_path / "runs"
    bad_run(
        runs / "a",
        name="x | y\n| z",
        workload=HOSTILE,
        faults=["|"],
        target="kafka",
        versions={"kafka": "<b>"},
    )
    good_run(runs / "b", workload=HOSTILE, faults=["|"])
    assert main(["record", str(runs), "--into", str(into)]) == 0
    text = (into / "RECORD.md").read_text()
    assert "<script>" not in text.replace("\\<script\\>", "") and "\n| z" not in text
    for line in text.splitlines():
        if line.startswith("| when") or "x \\| y" in line:
            assert line.replace("\\|", "").count("|") == 6


def test_seeds_of_nodes_with_a_planted_bug_are_none_of_the_record(tmp_path) -> None:
    planted = Plan(campaign="cluster", seed=7, planted="commit-alone")
    blind = Plan(campaign="cluster", seed=7, watch="clients")
    lines = [
        CAMPAIGN | {"asked": each.asked, "began": f"2026-11-21T03:00:0{at}+00:00"}
        for at, each in enumerate((Plan(campaign="cluster", seed=7), planted, blind))
    ]
    file, ledger = tmp_path / "campaigns.jsonl", Ledger(tmp_path / "record.jsonl")
    file.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    add_all(ledger, [file])
    assert len(ledger.campaigns) == 1
    assert ledger.problems == [
        f"line 2 of {file} is of nodes with a bug: left out",
        f"line 3 of {file} is of nodes that nobody looked into: left out",
    ]


def test_a_line_of_the_ledger_that_was_cut_off_is_told_and_the_others_count(
    tmp_path, capsys
) -> None:
    into = record_folder(tmp_path / "into")
    ledger = Ledger(into / "record.jsonl")
    add_all(ledger, [])
    (into / "campaigns.jsonl").write_text(json.dumps(CAMPAIGN) + "\n{}\n")
    add_all(ledger, [into / "campaigns.jsonl"])
    with ledger.file.open("a") as file:
        file.write('{"what": "run", "na')
    assert len(Ledger.read(ledger.file).campaigns) == 1
    assert main(["record", "--into", str(into)]) == 0
    assert "is cut off in the middle" in capsys.readouterr().err
    assert "line 2 of" in ledger.problems[0]


def test_only_valid_runs_are_pruned(tmp_path) -> None:
    good, bad = good_run(tmp_path / "good"), bad_run(tmp_path / "bad")
    cut = write(tmp_path / "cut", run_json(verdict="unknown"), history=[])
    (good / "nodes").mkdir()
    (good / "nodes" / "log").write_text("x" * 1_000)
    before = {file.name for file in bad.iterdir()}
    assert prune(good) > 1_000
    assert {file.name for file in good.iterdir()} == {"run.json", "report.json", "report.html"}
    assert prune(bad) == 0 and prune(cut) == 0
    assert before <= {file.name for file in bad.iterdir()}
    made = (good / "report.html").read_text()
    assert main(["report", str(good)]) == 0
    assert (good / "report.html").read_text() == made
    assert digest.read(good).verdict == "valid"


def test_an_index_links_each_run_to_its_page(tmp_path) -> None:
    good_run(tmp_path / "ours")
    bad_run(tmp_path / "theirs", target="kafka", began="2026-11-21T18:00:00+00:00")
    page, words = read(write_index(tmp_path))
    assert "✕ 1 run broke a promise" in words
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert sorted(links) == ["./ours/report.html", "./theirs/report.html"]
    assert all((tmp_path / link).is_file() for link in links)


def test_a_run_on_a_busy_machine_is_told_apart(tmp_path) -> None:
    """Its gaps are those of a starved system."""
    busy = {"cores": "2", "load at the beginning": "27.9"}
    for name, machine in (
        ("busy", busy),
        ("calm", busy | {"load at the beginning": "0.4"}),
        ("odd", busy | {"cores": "x"}),
    ):
        good_run(tmp_path / name, machine=machine, name=name)
    _, words = read(write_index(tmp_path))
    assert words.count("load 28 on 2 cores") == 1
    _, words = read(tmp_path / "busy" / "report.html")
    assert "The machine was busy when the run began (load 28 on 2 cores)" in words


def test_an_index_of_hostile_folders_and_names_links_only_into_itself(tmp_path) -> None:
    good_run(tmp_path / "javascript:alert(1)", name=HOSTILE)
    good_run(tmp_path / '"><img src=x>', name="", began="")
    page, _ = read(write_index(tmp_path))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert len(links) == 2 and all(link.startswith("./") for link in links)
    assert not any(tag == "img" for tag, _ in page.tags)


def test_an_index_says_that_there_is_nothing_and_strict_fails_for_what_is_not_valid(
    tmp_path,
) -> None:
    _, words = read(write_index(tmp_path))
    assert "There are no runs yet" in words and "✓" not in words
    good_run(tmp_path / "a")
    assert main(["index", str(tmp_path), "--strict"]) == 0
    write(tmp_path / "b", run_json(verdict="unknown"))
    assert main(["index", str(tmp_path)]) == 0
    assert main(["index", str(tmp_path), "--strict"]) == 1


def test_a_digest_is_made_anew_when_the_run_has_gone_on(tmp_path) -> None:
    good_run(tmp_path / "a", verdict="unknown")
    write_index(tmp_path)
    assert digest.read(tmp_path / "a").verdict == "unknown"
    good_run(tmp_path / "a")
    assert digest.read(tmp_path / "a") is None
    write_index(tmp_path)
    assert digest.read(tmp_path / "a").verdict == "valid"


def test_a_run_that_goes_on_while_it_is_read_counts_and_is_read_again(
    tmp_path, monkeypatch
) -> None:
    """Else all that is not yet read stays uncounted, or what was read first stands for the whole."""
    folder = good_run(tmp_path / "a", verdict="unknown")
    measured_before = page.measure

    def measure(of):
        found = measured_before(of)
        with (folder / HISTORY).open("a") as history:
            history.write("{}\n")
        return found

    monkeypatch.setattr(page, "measure", measure)
    assert digest_of(folder).verdict == "unknown"
    assert digest.read(folder) is None
    monkeypatch.undo()
    assert digest_of(folder) == digest.read(folder)


def test_commands_refuse_what_is_not_there_and_say_what_would_be(tmp_path, capsys) -> None:
    for words in (
        ["report", str(tmp_path)],
        ["index", str(tmp_path / "x")],
        ["prune", str(tmp_path / "x")],
    ):
        assert main(words) == 2
    assert main(["record", str(tmp_path / "x")]) == 2
    assert main(["record", "--into", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert (
        "a run is a folder with a run.json in it" in said and "name its folder with --into" in said
    )
    shutil.rmtree(tmp_path)
