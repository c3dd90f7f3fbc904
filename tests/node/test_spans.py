"""Spans of one request over the nodes that have to do with it, kept in memory instead of sent."""

import os
import sys
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import ClusterNodes
from fencepost.chaos.sim.node import SimEnv
from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.broker import Broker
from fencepost.node.config import NodeConfig
from fencepost.node.tracing.open import check_spans
from sim_cluster import Cluster
from test_request_log import new_topic

try:
    from fencepost.node.tracing.otel import OtelSpans, provider_of
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
except ImportError:
    assert os.environ.get("CI") != "true", "CI has the extra `otel`"
    pytest.skip("needs OpenTelemetry: pip install -e '.[otel]'", allow_module_level=True)


COARSE_NS = 2_000_000  # nodes' clocks are told in milliseconds


class Traced(Cluster):
    def __init__(self, ratio: float = 1.0, **other: Any) -> None:
        super().__init__(3, **other)
        self.kept = InMemorySpanExporter()

        def hook(node_id: int, env: SimEnv, broker: Broker) -> None:
            provider = provider_of(node_id, ratio)
            provider.add_span_processor(SimpleSpanProcessor(self.kept))
            broker.tracing.spans = OtelSpans(env.clock, provider)
            broker.tracing.read_settings(broker.image)

        self.nodes = ClusterNodes(self.world, 3, on_start=hook)

    def tree(self, root: str) -> list[tuple[str, Any, Any]]:
        """(name, node, name of its parent) of all spans of the last such request, the root first, then by time."""
        spans = self.kept.get_finished_spans()
        (top,) = [each for each in spans if each.name == root][-1:]
        mine = [each for each in spans if each.context.trace_id == top.context.trace_id]
        by_id = {each.context.span_id: each for each in mine}
        rows = []
        for each in sorted(mine, key=lambda span: (span is not top, span.start_time)):
            parent = None if each.parent is None else by_id[each.parent.span_id].name
            attributes = dict(each.attributes or {})
            rows.append((each.name, attributes.get("fencepost.node_id"), parent))
            assert top.start_time - COARSE_NS <= each.start_time <= each.end_time
        return rows


def test_one_produce_request_is_a_tree_over_its_leader_and_its_followers() -> None:
    cluster = Traced(seed="spans")

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.partition().leader
        cluster.kept.clear()
        await cluster.produce(leader)
        await cluster.until(lambda: len(cluster.tree("produce")) >= 7)
        tree = cluster.tree("produce")
        assert tree[0] == ("produce", leader, None)
        parts = [(name, None) for name in ("append", "queue", "replicas", "sync")]
        followers = [("sync", each) for each in (1, 2, 3) if each != leader]
        assert {parent for _, _, parent in tree[1:]} == {"produce"}
        beneath = [(name, node) for name, node, _ in tree[1:]]
        assert sorted(beneath, key=str) == sorted([*parts, *followers], key=str)

    cluster.play(scenario)


def test_a_topic_that_is_made_by_any_node_is_a_tree_over_it_and_the_controller() -> None:
    cluster = Traced(seed="spans of topics")

    async def scenario() -> None:
        image = cluster.nodes.image
        assert image is not None and image.controller_id is not None
        asked = next(each for each in (1, 2, 3) if each != image.controller_id)
        await cluster.ask(asked, ApiKey.create_topics, **new_topic("made"))
        controller = int(image.controller_id)
        tree = cluster.tree("create_topics")
        assert ("create_topics", asked, None) in tree
        assert (f"controller at node {controller}", asked, "create_topics") in tree
        assert ("controller", controller, "create_topics") in tree

    cluster.play(scenario)


def test_of_none_of_the_requests_nothing_is_kept() -> None:
    cluster = Traced(ratio=0.0, seed="no spans")

    async def scenario() -> None:
        await cluster.create("t")
        assert not cluster.kept.get_finished_spans()

    cluster.play(scenario)


def test_spans_that_are_wanted_and_can_not_be_made_stop_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = NodeConfig({"tracing.otlp.endpoint": "http://collector:4318/v1/traces"})
    check_spans(config)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigRefused, match=r"pip install -e '\.\[otel\]'.* checkout") as told:
        check_spans(config)
    assert "EXTRAS=clients,otel" in str(told.value), "nothing can be installed into a container"
    assert "install fencepost" not in str(told.value), "no index has it, or a stranger's"


def test_the_api_of_opentelemetry_alone_makes_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other packages bring that, without what keeps spans and sends them."""
    for name in [each for each in sys.modules if each.startswith("opentelemetry.exporter")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    with pytest.raises(ConfigRefused, match=r"OpenTelemetry is not installed"):
        check_spans(NodeConfig({"tracing.otlp.endpoint": "http://collector:4318/v1/traces"}))
