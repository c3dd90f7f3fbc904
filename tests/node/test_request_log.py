"""One client's request, followed through the nodes that have to do with it."""

import io
import json
from types import SimpleNamespace
from typing import Any

from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_name
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.metadata.image import ClusterImage, ConfigType, ImageDelta
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.node.tracing.requests import RequestTracing
from sim_cluster import CLIENT, Cluster


class Followed(Cluster):
    async def ask_as(self, client_id: str, node_id: int, key: ApiKey, **fields: Any) -> Any:
        client = self.world.node(CLIENT)

        async def work() -> Any:
            host = node_name(node_id)
            wire = WireClient(client, host, CLIENT_PORT, client_id=client_id, timeout_s=60.0)
            try:
                return await wire.request(key, **fields)
            finally:
                await wire.close()

        return await self.world.on(client, work())

    async def set_request_log(self, value: str | None) -> None:
        """Everywhere; None takes it back."""
        change = {"name": "request.log", "config_operation": 0 if value else 1, "value": value}
        await self.ask(
            1,
            ApiKey.incremental_alter_configs,
            resources=[{"resource_type": 4, "resource_name": "", "configs": [change]}],
            validate_only=False,
        )
        nodes = self.nodes.brokers.values()
        await self.until(lambda: {each.tracing.begins for each in nodes} == {bool(value)})

    def of_requests(self, node_id: int) -> list[tuple[str, str]]:
        env: Any = self.world.machine(node_name(node_id)).env
        return list(env.log.of_requests)


def new_topic(name: str) -> dict[str, Any]:
    return {
        "timeout": 10_000,
        "topics": [
            {
                "name": name,
                "num_partitions": 1,
                "replication_factor": 3,
                "assignments": [],
                "configs": [],
            }
        ],
    }


def test_what_an_admin_asks_of_any_node_has_one_id_there_and_at_the_controller() -> None:
    cluster = Followed(3, seed="followed", config=["request.log=client=prob*"])

    async def scenario() -> None:
        image = cluster.nodes.image
        assert image is not None and image.controller_id is not None
        controller = int(image.controller_id)
        asked = next(each for each in (1, 2, 3) if each != controller)
        await cluster.ask_as("somebody", asked, ApiKey.create_topics, **new_topic("quiet"))
        assert not cluster.events(asked, "request")
        await cluster.ask_as("probe", asked, ApiKey.create_topics, **new_topic("told"))
        (here,) = [
            each for each in cluster.events(asked, "request") if each["api"] == "create_topics"
        ]
        request_id = here["request_id"]
        assert request_id.split("-")[0] == str(asked)
        assert (here["outcome"], here["client"]) == ("none", "probe")
        assert here["peers_ms"] > 0 and here["total_ms"] >= here["peers_ms"]
        (sent,) = [
            each
            for each in cluster.events(asked, "peer_request_sent")
            if each["request_id"] == request_id
        ]
        (served,) = [
            each
            for each in cluster.events(controller, "peer_request")
            if each["request_id"] == request_id
        ]
        assert (sent["node"], sent["kind"], sent["outcome"]) == (controller, "controller", "done")
        assert (served["node"], served["kind"]) == (asked, "controller")
        assert (request_id, "topic_created") in cluster.of_requests(controller)

    cluster.play(scenario)


def test_the_request_log_is_turned_on_and_off_while_the_cluster_runs() -> None:
    cluster = Followed(3, seed="turned on")

    async def scenario() -> None:
        await cluster.create("t")
        await cluster.set_request_log("api=Produce")
        await cluster.produce(cluster.partition().leader)
        (told,) = cluster.events(cluster.partition().leader, "request")
        assert told["api"] == "produce"
        assert {"queue_ms", "append_ms", "sync_ms", "replicas_ms"} <= told.keys()
        await cluster.set_request_log(None)
        await cluster.produce(cluster.partition().leader)
        assert len(cluster.events(cluster.partition().leader, "request")) == 1

    cluster.play(scenario)


def test_a_slow_request_is_logged_with_where_its_time_went() -> None:
    cluster = Followed(3, seed="slow", config=["request.log.slow.ms=300"])

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.partition().leader
        await cluster.produce(leader)
        assert not cluster.events(leader, "request_slow"), "that one was not slow"
        disk = cluster.world.disk(node_name(leader))
        disk.faults.sync_s = (0.5, 0.6)
        await cluster.produce(leader)
        (told,) = cluster.events(leader, "request_slow")
        assert (told["api"], told["limit_ms"]) == ("produce", 300)
        assert 500 <= told["sync_ms"] <= 650 and told["replicas_ms"] < 50
        assert told["longest"].endswith("while the disk synced it")
        parts = ("queue_ms", "append_ms", "sync_ms", "replicas_ms")
        assert abs(sum(told[each] for each in parts) - told["total_ms"]) < 0.01
        disk.faults.sync_s = (0.0002, 0.003)
        for each in (1, 2, 3):
            if each != leader:
                cluster.world.disk(node_name(each)).faults.sync_s = (0.5, 0.6)
        await cluster.produce(leader)
        told = cluster.events(leader, "request_slow")[-1]
        assert told["replicas_ms"] > 400 > told["sync_ms"]

    cluster.play(scenario)


def test_a_fetch_that_waits_as_long_as_it_asked_to_is_not_slow() -> None:
    cluster = Followed(3, seed="waits", config=["request.log.slow.ms=300"])

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.partition().leader
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        await cluster.ask(
            leader,
            ApiKey.fetch,
            max_wait=2_000,
            min_bytes=1,
            session_epoch=-1,
            topics=[{"topic_id": cluster.topic_id, "partitions": [wanted]}],
        )
        assert not cluster.events(leader, "request_slow")

    cluster.play(scenario)


def test_levels_are_those_that_are_set_while_the_node_runs() -> None:
    stream = io.StringIO()
    log = StreamLog(stream)
    env: Any = SimpleNamespace(log=log)
    tracing = RequestTracing(env, BrokerId(1), {"log.level": "warn"}, syncs=list)
    log.info("peer_up", node=2)
    assert not stream.getvalue(), "the node's own file says warn"
    image = ClusterImage()
    delta = ImageDelta(image)
    delta.configs_changed.append((ConfigType.BROKER, "1"))
    image.configs[ConfigType.BROKER, "1"] = {"log.level": "warn,cluster=debug"}
    tracing.on_image(delta)
    log.debug("peer_up", node=2)
    log.info("node_stopping", cause="SIGTERM")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["peer_up"]
