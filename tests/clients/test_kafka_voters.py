"""Kafka's own tool for the metadata quorum, on a cluster whose voters change."""

import re
from pathlib import Path

import pytest
from fencepost.chaos.harness.local_cluster import LocalCluster
from kafka_tools import run_tool

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka"), pytest.mark.timeout(300)]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
ANY_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAQ"  # the tool wants one; nodes have none


def test_the_tool_removes_a_voter_and_is_told_of_one_that_is_none(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", nodes=4) as cluster:

        def tool(*words: str, code: int = 0) -> str:
            return run_tool(QUORUM, "--bootstrap-server", cluster.bootstrap, *words, code=code)

        def observers() -> list[str]:
            rows = tool("describe", "--replication").splitlines()
            return sorted(row.split()[0] for row in rows if row.rstrip().endswith("Observer"))

        assert observers() == ["4"]
        remove = ["remove-controller", "--controller-id", "3"]
        remove += ["--controller-directory-id", ANY_DIRECTORY]
        assert re.search(r"Removed\s+KRaft controller 3", tool(*remove))
        assert "VoterNotFoundException: Node 3 is no voter." in tool(*remove, code=1)
        assert observers() == ["3", "4"]
