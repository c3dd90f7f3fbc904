"""What fails without anybody's having been refused is counted: it is a line of the log otherwise, which nobody reads."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.quorum import store
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.replication.log.log import Log
from scraping import Key, samples, value_of
from sim_node import NODE, PORT, SimNode

BROKEN = OSError(errno.EIO, "Input/output error")


@pytest.fixture
def node() -> Iterator[SimNode]:
    node = SimNode(seed="failures", **{"log.retention.check.interval.ms": "1000"})
    node.start()
    yield node
    node.close()


def scrape(node: SimNode) -> dict[Key, float]:
    async def ask() -> bytes:
        text = node.broker.metrics.scrape.text()
        return await node.world.on(node.world.node(NODE), text)

    return samples(node.run(ask).decode())


def test_a_request_that_meets_a_fault_of_this_node_is_counted(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> dict[str, Any]:
        raise KeyError("a fault of ours")

    async def ask() -> None:
        another = WireClient(node.client, NODE, PORT, timeout_s=5.0)
        try:
            with pytest.raises(Trouble):
                await another.request(ApiKey.list_groups)
        finally:
            await another.close()

    apis = node.broker.dispatcher.apis
    monkeypatch.setitem(apis, ApiKey.list_groups, replace(apis[ApiKey.list_groups], handle=broken))
    name, label = "fencepost_requests_failed_total", {"listener": "PLAINTEXT"}
    assert value_of(scrape(node), name, **label) == 0
    node.run(ask)
    assert "client_request_failed" in node.events
    found = scrape(node)
    assert value_of(found, name, **label) == 1
    assert value_of(found, "fencepost_requests_malformed_total", **label) == 0


@pytest.mark.parametrize(
    ("kind", "method"), [("retention", "apply_retention"), ("compaction", "compact")]
)
def test_a_round_of_work_that_a_log_fails_is_counted_each_time(
    node: SimNode, monkeypatch: pytest.MonkeyPatch, kind: str, method: str
) -> None:
    def broken(*_: Any, **__: Any) -> int:
        raise BROKEN

    name = "fencepost_log_round_failures_total"
    node.create_topic("t", **{"cleanup.policy": "compact,delete"})
    node.produce("t", build_batch([Record(0, 1, b"k", b"v", ())]))
    assert value_of(scrape(node), name, type=kind) == 0
    monkeypatch.setattr(Log, method, broken)
    node.sleep(60)
    assert f"{kind}_failed" in node.events
    found = scrape(node)
    assert value_of(found, name, type=kind) >= 2
    others = {"retention", "compaction"} - {kind}
    assert [value_of(found, name, type=each) for each in others] == [0]


@pytest.mark.parametrize(("limit", "reached"), [("SNAPSHOT_ENTRIES", 5), ("SNAPSHOT_BYTES", 600)])
def test_a_snapshot_of_the_metadata_that_can_not_be_written_is_counted_and_tried_again(
    node: SimNode, monkeypatch: pytest.MonkeyPatch, limit: str, reached: int
) -> None:
    """With the next change: what made one due is as long as before."""
    name = "fencepost_quorum_snapshot_failures_total"
    assert value_of(scrape(node), name) == 0
    monkeypatch.setattr(store, limit, reached)
    node.world.disk(NODE).faults.fail("*", path="*/snapshot*", times=1000)
    for number in range(10):
        node.create_topic(f"t{number}")
    assert node.events.count("metadata_snapshot_failed") == 1
    node.sleep(15)
    node.create_topic("one-more")
    assert node.events.count("metadata_snapshot_failed") == 2
    assert value_of(scrape(node), name) == 2
