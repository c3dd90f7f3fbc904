"""Whole runs of the simulator's clients in real processes, on three real nodes, short ones; and what can't be had."""

import json
from pathlib import Path

import pytest
from fencepost.chaos.checkers.worked import MUST
from fencepost.chaos.faults.kinds import FAULTS
from fencepost.chaos.runs.plan_words import NOT_IN, NOT_ON, TARGETS, WORKLOADS
from fencepost.node.main import main
from spoilt_history import put_in_place

# A client lives two to six seconds from its first note on, and is followed by another.
SHORT = ["--keys", "4", "--crash-s", "4", "--clients", "3", "--rate", "20", "--faults", "kill"]


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def run(out: Path, workload: str) -> dict:
    main(
        [
            "chaos",
            "run",
            "--workload",
            workload,
            *SHORT,
            "--seed",
            "5",
            "--seconds",
            "7",
            "--out",
            str(out),
        ]
    )
    return json.loads((out / "run.json").read_text())


def judged_again(out: Path, history: list[dict]) -> set[str]:
    put_in_place(out, history)
    assert main(["chaos", "check", str(out)]) == 1
    return {each["name"] for each in lines(out / "anomalies.jsonl")}


def at_the_end(history: list[dict], topic: str) -> list:
    """Polls of the final pass, in which such a record is."""
    return next(
        op["polls"]
        for op in history
        if op["process"] == "final" and any(each[0].startswith(topic) for each in op["polls"])
    )


def is_sound(found: dict, out: Path) -> list[dict]:
    assert found["verdict"] == "valid", found["why"]
    assert found["counts"]["faults"] == 1, "all nodes were killed in the fifth second"
    assert found["counts"]["crashed clients"] > 0
    for name, _ in MUST.get(found["workload"], ()):
        assert found["counts"][name] > 0
    history = lines(out / "history.jsonl")
    assert {op["f"] for op in history} >= {"crash", "read"}
    return history


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_pipeline_whose_nodes_and_workers_are_killed_makes_one_output_of_each_input(
    tmp_path,
) -> None:
    out = tmp_path / "run"
    found = run(out, "pipeline")
    history = is_sound(found, out)
    assert found["left"] == ""
    # As if one output had been made twice, of another input's.
    polls = at_the_end(history, "out-")
    outputs = [each for each in polls if each[0].startswith("out-")]
    outputs[0][4] = outputs[-1][4]
    assert {"doubled", "left-out"} <= judged_again(out, history)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_half_messages_and_groups_whose_nodes_and_clients_are_killed_come_to_one_end(
    tmp_path,
) -> None:
    out = tmp_path / "run"
    history = is_sound(run(out, "added"), out)
    # As if a half message that was committed had been rolled back for somebody.
    half = next(op for op in history if "committed" in op.get("told", {}).values())
    (name,) = half["told"]
    history.append({**half, "f": "told", "sends": [], "told": {name: "rolled_back"}})
    assert "decision-changed" in judged_again(out, history)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("workload", ["append"])  # each takes a minute: the others are rounds'
def test_nothing_is_lost_by_clients_of_the_simulator_whose_nodes_are_killed(
    tmp_path, workload
) -> None:
    out = tmp_path / "run"
    history = is_sound(run(out, workload), out)
    del at_the_end(history, "")[0]
    assert "unseen" in judged_again(out, history)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_table_whose_nodes_are_killed_while_they_compact_it_keeps_the_newest_of_each_key(
    tmp_path,
) -> None:
    out = tmp_path / "run"
    history = is_sound(run(out, "compacted"), out)
    # As if a key had gone back to what it was first.
    acknowledged = [op for op in history if op["f"] == "txn" and op["type"] == "ok"]
    final = [op for op in history if op["process"] == "final" and op.get("polls")]
    # Below zero stands the number of a tombstone's key.
    newest = {(each[0], abs(each[4])): each for op in final for each in op["polls"]}
    older = min(
        [place, offset, value, op["number"], extra]
        for op in acknowledged
        for place, value, offset, extra in op.get("sends", ())
        if offset is not None and newest.get((place, abs(extra)), (place, -1))[1] > offset
    )
    for op in final:
        op["polls"] = [
            each for each in op["polls"] if (each[0], abs(each[4])) != (older[0], abs(older[4]))
        ]
    final[-1]["polls"].append(older)
    assert "key-back" in judged_again(out, history)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["added", "--target", "kafka"], "no transaction groups and no half messages"),
        (["added", "--faults", "kill,zombie"], "can't have the fault zombie"),
        (["streams", "--faults", "epochs"], "no transactional ids"),
        (["pipeline", "--clients", "2"], "needs more clients: with --clients 2 there is no member"),
        (["added", "--clients", "1"], "there is no checker and no shop"),
    ],
)
def test_what_a_workload_cannot_have_is_refused_with_its_reason(
    tmp_path, words, said, capsys
) -> None:
    assert main(["chaos", "run", "--workload", *words, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_every_exclusion_names_what_there_is() -> None:
    for workload, target in NOT_ON:
        assert workload in WORKLOADS and target in TARGETS
    for workload, fault in NOT_IN:
        assert workload in WORKLOADS and fault in FAULTS
