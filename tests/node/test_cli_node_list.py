"""`node list`: what each node has is what it says of itself."""

import json
from types import SimpleNamespace as Answer
from typing import Any

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.main import main

LIST = ("node", "list", "--bootstrap", "127.0.0.1:9001")


class Sized(ToldCluster):
    """All nodes have a replica of orders-0, node 2 in the second of its folders; node 3 does not say how much it takes."""

    def _ask_at(self, address: tuple[str, int], key: ApiKey, fields: dict[str, Any]) -> Any:
        if key is not ApiKey.describe_log_dirs:
            return super()._ask_at(address, key, fields)
        match address[1]:
            case 9001:
                return Answer(results=[folder(("orders", 700))])
            case 9002:
                return Answer(results=[folder(), folder(("orders", 20), ("old", 5))])
        raise Trouble("no answer")


def folder(*logs: tuple[str, int]) -> Any:
    topics = [
        Answer(name=name, partitions=[Answer(partition_index=0, partition_size=size)])
        for name, size in logs
    ]
    return Answer(error_code=ErrorCode.none, topics=topics)


def test_the_size_of_a_node_is_that_of_its_own_replicas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each had the largest replica of each partition: no node could be told from one whose disk is filling."""
    Sized(monkeypatch)
    assert main([*LIST, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["node"]: row["size"] for row in rows} == {1: 700, 2: 25, 3: None}
    assert main(LIST) == 0
    assert [row.split()[-1] for row in capsys.readouterr().out.splitlines()[1:]] == ["B", "B", "-"]
