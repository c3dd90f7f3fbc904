"""The alert rules: promtool takes them, each fires and clears, and tells whom it wakes what to do."""

import argparse
import importlib
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from alert_scenes import SCENES
from fencepost.cluster.base.log_events import EVENTS
from fencepost.node.cli import COMMANDS
from fencepost.node.main import main
from promql import family, selectors
from promtool import promtool
from scene import Scene, as_promtool_tests

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install -e '.[test]'")
from what_is_watched import (  # noqa: E402
    BUILT_IN,
    PROMETHEUS,
    alerts,
    asked_by_rules,
    recorded,
    rule_files,
    rules,
    told_metrics,
)

SEVERITIES = {"critical", "warning", "info"}
TOLD = ["summary", "meaning", "look", "command"]
# What a sentence leaves open in a command.
PLACEHOLDERS = {
    "NODES": "1,2",
    "BYTES": "1073741824",
    "CONNECTIONS": "10000",
    "FILE": "node.toml",
    "GROUP": "billing",
    "HOST:PORT": "127.0.0.1:9644",
    "ID": "billing-1",
    "MILLISECONDS": "604800000",
    "NODE": "3",
    "OFFSET": "42",
    "PARTITION": "0",
    "TOPIC": "orders",
}
by_name = pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])


# --- promtool -------------------------------------------------------------------------------------


@pytest.mark.needs("prometheus")
def test_promtool_takes_the_configuration_and_its_rules() -> None:
    checked = promtool("check", "config", "prometheus.yml", where=PROMETHEUS)
    assert f"{len(rule_files())} rule files found" in checked
    promtool("check", "rules", "--lint=all", "--lint-fatal", *rule_files(), where=PROMETHEUS)


@pytest.mark.needs("prometheus")
@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.alert)
def test_each_alert_is_quiet_first_then_fires_and_clears(scene: Scene, tmp_path: Path) -> None:
    """Each with its own rules alone: promtool evaluates all that it is given in every step."""
    rules_of = {"groups": [{"name": scene.alert, "rules": needed(scene.alert)}]}
    (tmp_path / "alert.yml").write_text(yaml.safe_dump(rules_of, sort_keys=False))
    tests = as_promtool_tests(scene, "alert.yml")
    (tmp_path / "scene.yml").write_text(yaml.safe_dump(tests, sort_keys=False))
    promtool("test", "rules", "scene.yml", where=tmp_path)


def needed(name: str) -> list[dict[str, Any]]:
    """The alert, after what it takes from recording rules."""
    alert = next(each for each in alerts() if each["alert"] == name)
    named = {metric for metric, _ in selectors(alert["expr"])}
    return [*(each for each in rules() if each.get("record") in named), alert]


def test_there_is_a_scene_for_each_alert() -> None:
    assert sorted(scene.alert for scene in SCENES) == sorted(each["alert"] for each in alerts())


@pytest.mark.needs("prometheus")
@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(PROMETHEUS.glob("tests/*.yml")), ids=lambda file: file.stem)
def test_what_the_file_tells_comes_true(file: Path) -> None:
    promtool("test", "rules", file.name, where=file.parent)


# --- what an alert says ---------------------------------------------------------------------------


@by_name
def test_an_alert_says_what_is_so_what_it_means_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["alert"].startswith("Fencepost")
    assert list(alert["annotations"]) == TOLD
    assert list(alert["labels"]) == ["severity"]
    assert alert["labels"]["severity"] in SEVERITIES
    assert alert["annotations"]["summary"].endswith(".")
    assert "{{" in alert["annotations"]["summary"] or "absent(" in alert["expr"]


def test_no_alert_has_the_name_of_another() -> None:
    names = [each["alert"] for each in alerts()]
    assert len(names) == len(set(names))


@by_name
def test_an_alert_names_only_labels_that_its_expression_keeps(alert: dict[str, Any]) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
    assert named <= kept_labels(alert["expr"]), alert["expr"]


def kept_labels(expr: str) -> set[str]:
    """Of an aggregation those it is by; of a plain metric, or a rule's record, at least where it was scraped."""
    grouped = re.findall(r"\bby \(([^)]*)\)", expr)
    if "group_left" in expr:  # the left side's are kept
        grouped = grouped[:1]
    if grouped:
        return set.intersection(*({name.strip() for name in each.split(",")} for each in grouped))
    found = {"cluster", "instance", "job"}
    for name, matchers in selectors(expr):
        if ":" in name:
            found = set(name.split(":")[0].split("_")) | {"cluster"}
        found |= set(re.findall(r"(\w+)=", matchers))
    return found


def commands_of(alert: dict[str, Any]) -> list[str]:
    return [
        command
        for sentence in alert["annotations"].values()
        for command in re.findall(r"`(fencepost [^`]+)`", sentence)
    ]


@by_name
def test_the_commands_that_an_alert_names_are_there(alert: dict[str, Any]) -> None:
    named = commands_of(alert)
    assert named, "an alert names the command that looks or mends"
    for command in named:
        assert understood(command), command


def understood(command: str) -> bool:
    """Whether the command's own parser takes these words; nothing is done."""
    words = [PLACEHOLDERS.get(word, word) for word in command.split()[1:]]
    module, _ = COMMANDS.get(words[0], (None, ""))
    if module is None:
        return False
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(module).configure(parser)
    try:
        parser.parse_args(words[1:])
    except (argparse.ArgumentError, SystemExit):
        return False
    return True


def test_a_node_that_is_gone_for_good_can_be_replaced_in_a_cluster_of_three() -> None:
    """Its replicas can't be drained to two nodes, and a node with replicas, or a vote, is not forgotten."""
    mends = [each["annotations"]["command"] for each in alerts()]
    drained = [each for each in mends if "gone for good" in each and "node drain" in each]
    assert len(drained) == 3
    assert all("node.id" in each and "an empty folder" in each for each in drained)
    (told,) = [each for each in drained if "node forget" in each]
    assert told.index("node drain") < told.index("node voters remove") < told.index("node forget")


@by_name
def test_a_log_that_is_said_to_name_somebody_has_a_line_that_does(alert: dict[str, Any]) -> None:
    """By its event, so that it can be looked for; a sentence about a line that nobody writes costs an hour at night."""
    for sentence in re.split(r"[.;] ", " ".join(alert["annotations"].values())):
        if re.search(r"\b(node|controller|coordinator)'s log\b|\bleader logs\b", sentence):
            assert EVENTS.keys() & set(re.findall(r"\w+", sentence)), sentence


def test_who_is_woken_by_a_transaction_that_only_waits_for_its_owner_is_told_so() -> None:
    """The metric counts prepared ones and half messages too; `find-hanging` names none of those."""
    (told,) = [e["annotations"] for e in alerts() if e["alert"] == "FencepostHangingTransaction"]
    assert "for ever, if no coordinator knows it" in told["meaning"]
    assert "find-hanging" in told["look"] and "txn list --running-for" in told["look"]
    assert "txn parked --all" in told["command"]


def test_who_has_a_majority_and_no_controller_is_told_when_that_is_not_enough() -> None:
    """At a first start, and after a disk was replaced, all voters have to be there: the log says so under this name."""
    event = "quorum_waits_for_all_voters"
    assert event in EVENTS
    for name in ("FencepostNoController", "FencepostNoQuorum"):
        (told,) = [each["annotations"] for each in alerts() if each["alert"] == name]
        assert event in told["command"], name


def test_nobody_with_a_full_disk_is_sent_to_a_command_that_shows_no_sizes() -> None:
    """`topic list` has partitions and replicas; only `node list` has bytes, of a node."""
    looks = {each["alert"]: each["annotations"]["look"] for each in alerts()}
    for name in ("FencepostDiskFull", "FencepostDiskLow", "FencepostDiskFilling"):
        assert "topic list" not in looks[name], name


def test_a_command_that_is_not_there_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert understood("fencepost txn describe ID")
    assert not understood("fencepost txn hanging")
    assert not understood("fencepost node drain")
    assert not understood("fencepost nodes list")
    assert not understood("fencepost node drain NODE --force")
    capsys.readouterr()


def test_every_command_that_is_named_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for head in sorted({head_of(each) for alert in alerts() for each in commands_of(alert)}):
        with pytest.raises(SystemExit) as ended:
            main([*head, "--help"])
        assert ended.value.code == 0, head
        assert "usage: " in capsys.readouterr().out


def head_of(command: str) -> tuple[str, ...]:
    """fencepost node voters add NODE -> node voters add"""
    words = command.split()[1:]
    return tuple(itertools.takewhile(lambda word: re.fullmatch(r"[a-z][a-z-]+", word), words))


# --- names ----------------------------------------------------------------------------------------


def test_rules_name_only_metrics_that_a_node_tells() -> None:
    known = told_metrics() | recorded() | BUILT_IN
    unknown = {
        f"{asked.where}: {name}"
        for asked in asked_by_rules()
        for name, _ in selectors(asked.expr)
        if family(name) not in known and name not in known
    }
    assert sorted(unknown) == []


def test_the_readme_has_the_alerts_as_they_are() -> None:
    """`python deploy/prometheus/readme_alerts.py` writes them there."""
    script = PROMETHEUS / "readme_alerts.py"
    made: dict[str, Any] = {"__name__": "readme_alerts", "__file__": str(script)}
    exec(compile(script.read_text(), str(script), "exec"), made)
    readme = (PROMETHEUS / "README.md").read_text()
    assert readme == made["current"](readme), "run deploy/prometheus/readme_alerts.py"
