"""What following requests costs those who are not followed, and what clients can make of it."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_name
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.request_scope import RequestScope
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.node.tracing.requests import CLIENT_CHARS_MAX, RequestTracing
from fencepost.node.tracing.spans import Attributes, Span
from sim_cluster import CLIENT
from test_request_log import Followed, new_topic

SENT = ("info", "peer_request_sent")


class Sampled:
    """`Spans`: what is begun is noted, and sampled or not."""

    def __init__(self, span: Any = None) -> None:
        self.span = span
        self.begun: list[Attributes] = []

    def begin(self, name: str, begin_s: float, attributes: Attributes) -> Span | None:
        self.begun.append(attributes)
        return self.span

    def remote(self, *parts: Any) -> None:
        raise AssertionError("nothing was asked of others")

    async def close(self) -> None: ...


class Log:
    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []

    def warn(self, event: str, **fields: Any) -> None:
        self.said.append((event, fields))


def tracing_of(log: Log, settings: dict[str, str], spans: Any = None) -> RequestTracing:
    env: Any = SimpleNamespace(log=log, clock=SimpleNamespace(steady=lambda: 0.0))
    return RequestTracing(env, BrokerId(1), settings, syncs=no_syncs, spans=spans)


def no_syncs() -> Any:
    raise AssertionError("nobody is told where its time went")


def call_of(key: ApiKey, client_id: str = "c", **body: Any) -> Any:
    parks = key is ApiKey.fetch
    origin = SimpleNamespace(host="h", port=1, connection=1)
    return SimpleNamespace(
        api=SimpleNamespace(key=key, name=key.name, parks=parks, begin=None if parks else 1),
        context=SimpleNamespace(client_id=client_id, origin=origin, api_version=1),
        request=SimpleNamespace(body=SimpleNamespace(**body), correlation_id=1),
        arrived_s=0.0,
        is_told=False,
        span=None,
    )


def test_a_request_that_is_not_in_the_sample_is_not_asked_where_its_time_went() -> None:
    """With one request in a hundred sampled, the other 99 paid 5 to 15 µs for what was thrown away."""
    log = Log()
    tracing = tracing_of(log, {}, Sampled())
    call = call_of(ApiKey.produce)
    tracing.began(RequestScope("1-1"), call)
    tracing.answered(call, 0.0, 0.001, {})
    assert not log.said


def test_a_fetch_that_asks_for_less_than_no_wait_is_not_slow() -> None:
    log = Log()
    tracing = tracing_of(log, {"request.log.slow.ms": "1000"}, Sampled())
    tracing.answered(
        call_of(ApiKey.fetch, max_wait=timedelta(milliseconds=-(2**31))), 0.0, 0.001, {}
    )
    assert not log.said


def test_a_client_without_end_in_its_name_has_a_short_one_in_spans_and_lines() -> None:
    """2,048 spans are kept for a collector that is away: of names of 32 KiB they took 64 MiB."""
    log, spans = Log(), Sampled()
    tracing = tracing_of(log, {"request.log.slow.ms": "0"}, spans)
    call = call_of(ApiKey.fetch, "n" * 32_767, max_wait=timedelta())
    tracing.began(RequestScope("1-1"), call)
    tracing.answered(call, 0.0, 1.0, {})
    ((_, fields),) = log.said
    names = (spans.begun[0]["messaging.client.id"], fields["client"])
    assert [len(str(each)) for each in names] == [CLIENT_CHARS_MAX, CLIENT_CHARS_MAX]


def test_a_connection_that_was_told_of_is_told_of_no_more_when_the_log_is_turned_off() -> None:
    cluster = Followed(3, seed="turned off")

    async def on_one_connection(asked: int) -> None:
        def told() -> int:
            logged = cluster.world.machine(node_name(asked)).events
            return len([level for level, event, _ in logged if (level, event) == SENT])

        client = cluster.world.node(CLIENT)
        wire = WireClient(client, node_name(asked), CLIENT_PORT, client_id="probe")
        try:
            await cluster.set_request_log("client=probe")
            await wire.request(ApiKey.create_topics, **new_topic("told"))
            assert told() == 1
            await cluster.set_request_log(None)
            await wire.request(ApiKey.create_topics, **new_topic("quiet"))
            assert told() == 1
        finally:
            await wire.close()

    async def scenario() -> None:
        image = cluster.nodes.image
        assert image is not None and image.controller_id is not None
        asked = next(each for each in (1, 2, 3) if each != image.controller_id)
        await cluster.world.on(cluster.world.node(CLIENT), on_one_connection(asked))

    cluster.play(scenario)
