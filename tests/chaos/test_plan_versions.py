"""What run.json says of the nodes: a commit is that of their code, an image and a release of Kafka those that are run."""

import json
import os
from argparse import Namespace
from pathlib import Path

import pytest
from fencepost.chaos.faults.containers import IMAGE_VARIABLE, Containers
from fencepost.chaos.faults.kafka_processes import LIBS, KafkaProcesses
from fencepost.chaos.harness import checkout
from fencepost.chaos.harness.kept_run import KeptRun
from fencepost.chaos.harness.processes import DidNotStart
from fencepost.chaos.report import record_tables
from fencepost.chaos.report.digest import Digest
from fencepost.chaos.report.nodes_code import NOW
from fencepost.chaos.report.record import Ledger
from fencepost.chaos.runs.folder import RunFolder
from fencepost.chaos.runs.plan import Plan, versions
from fencepost.chaos.runs.run import Run
from support.some_git import git

ID = f"sha256:{'5e' * 32}"
# It has each image that was pulled, `here` from the beginning, and writes down what it was asked.
ENGINE = """#!/bin/sh
echo "$@" >>{folder}/asked
case "$1 $2" in
"image inspect") [ -e "{folder}/$5" ] || {{ echo "No such image: $5" >&2; exit 1; }}; echo {id} ;;
"pull far") touch "{folder}/far" ;;
"ps -a" | "network ls" | "volume ls") ;;
*) echo "no $1 here" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def asked(tmp_path, monkeypatch) -> Path:
    """What the engine was asked."""
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "here").touch()
    (folder / "docker").write_text(ENGINE.format(folder=folder, id=ID))
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "asked"


@pytest.mark.needs("git")
def test_a_copy_in_the_checkout_of_somebody_else_has_no_commit(tmp_path, monkeypatch) -> None:
    """As it lies in a folder that is ignored there: `git describe` tells their commit."""
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    git(tmp_path, "init")
    (tmp_path / "theirs").touch()
    git(tmp_path, "add", "theirs")
    git(tmp_path, "commit", "-m", "theirs")
    assert checkout.said("describe", "--always")
    assert "commit" not in versions(Plan(), {})


def test_nodes_and_campaigns_have_one_commit() -> None:
    assert versions(Plan(), {}).get("commit", "") == checkout.commit()


def test_of_an_image_that_was_given_the_id_is_told_and_no_commit(
    tmp_path, asked, monkeypatch
) -> None:
    """It was not built from this checkout, or nobody knows whether it was."""
    monkeypatch.setenv(IMAGE_VARIABLE, "here")
    run = Run(Plan(target="containers"), RunFolder(tmp_path / "run"), print)
    run.go()
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["versions"]["image"] == ID
    assert "commit" not in told["versions"]
    assert told["verdict"] == "unknown", "this engine has nothing but images"


def test_an_image_is_asked_for_once_and_run_by_its_id(tmp_path, asked) -> None:
    """Another build may be given the name meanwhile."""
    nodes = Containers(tmp_path / "nodes", nodes=1, image="far")
    assert nodes.foreign == nodes.foreign == {"image": ID}
    inspect = "image inspect --format {{.Id}} far"
    assert asked.read_text().splitlines() == [inspect, "pull far", inspect]
    assert nodes._image_of(1) == ID


def test_what_is_built_here_is_not_foreign_and_what_is_nowhere_does_not_start(
    tmp_path, asked, monkeypatch
) -> None:
    monkeypatch.delenv(IMAGE_VARIABLE, raising=False)
    assert Containers(tmp_path / "nodes", nodes=1).foreign == {}
    with pytest.raises(DidNotStart, match="no image nowhere"):
        assert Containers(tmp_path / "nodes", nodes=1, image="nowhere").foreign


@pytest.mark.parametrize(
    ("jars", "told"),
    [
        (["kafka_2.13-4.3.0.jar", "kafka-clients-4.3.0.jar"], {"kafka": "4.3.0"}),
        (["kafka_2.12-3.9.1.jar", "scala-library-2.12.19.jar"], {"kafka": "3.9.1"}),
        (["kafka-clients-4.2.0-rc1.jar", "kafka-raft-4.1.0.jar"], {"kafka": "4.2.0-rc1"}),
        (["kafka_2.13-4.2.0.jar", "kafka_2.13-4.2.0-sources.jar"], {"kafka": "4.2.0"}),
        (["kafka_2.13-4.2.0.jar", "kafka_2.13-4.10.0.jar"], {"kafka": "4.10.0, 4.2.0"}),
        (["kafka-clients-4.2.0-test.jar", "other.jar"], {}),
    ],
)
def test_the_release_of_kafka_is_that_of_the_jars_that_are_run(
    tmp_path, monkeypatch, jars, told
) -> None:
    """Whoever named their folder was told the release that is fetched by default."""
    libs = tmp_path / "libs"
    libs.mkdir()
    for name in jars:
        (libs / name).touch()
    monkeypatch.setenv(LIBS, str(libs))
    assert KafkaProcesses(tmp_path / "nodes").foreign == told
    found = versions(Plan(target="kafka"), told)
    assert found.get("kafka") == told.get("kafka")
    assert found.get("commit", "") == checkout.commit(), "of who struck it, and judged"


@pytest.mark.parametrize(("command", "commit"), [("java -jar x", ""), (None, checkout.commit())])
def test_a_loop_against_another_broker_claims_no_commit(tmp_path, command, commit) -> None:
    chosen = Namespace(seed=1, seconds=1.0, command=command)
    KeptRun(tmp_path / "run").create("kill-loop", chosen)
    told = json.loads((tmp_path / "run" / "run.json").read_text())["versions"]
    assert (told.get("commit", ""), told.get("broker")) == (commit, command)


def test_the_record_counts_nodes_of_no_known_commit_for_none(tmp_path) -> None:
    ledger = Ledger(tmp_path / "record.jsonl")
    some = {"began": "2026-11-30", "verdict": "invalid", "seconds": 36.0, "why": "lost"}
    image = {"target": "containers", "versions": {"image": ID}}
    ledger.add_run(Digest(name="a", **image, **some))
    ledger.add_run(Digest(name="b", target="another broker", **some))
    told = record_tables.tables(ledger, {"": "", NOW: "1"}.__getitem__)
    assert "| unknown | 0 | 0 | 1 | 0.01 | 0.00 | 1 | 0 |" in told
    assert "| not known | 2026-11-30 | 0 | 0 | 1 | 0.01 | 0.00 | 1 | 0 |" in told
    assert "| 2026-11-30 | image `5e5e5e5e5e5e` | Fencepost on containers | lost |" in told
    assert "| 2026-11-30 | not known | another broker | lost |" in told
    assert "| **Fencepost on real nodes, all** | 1 run |" in told
