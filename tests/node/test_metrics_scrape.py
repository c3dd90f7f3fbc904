"""A scrape of one node: its text, its turns, its bounds."""

import asyncio
import contextlib
import json
import math
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ConnectionLost
from fencepost.cluster.base.metrics import Histogram, counter, gauge
from fencepost.cluster.base.ports import Accepted, HttpRequest
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.metrics.gathering import CHUNK, Gathering
from fencepost.node.metrics.names import DECLARED
from fencepost.node.metrics.scrape import OPENMETRICS, TEXT, Scrape
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from scraping import Key, samples, value_of
from sim_node import NODE, SimNode, batch

ASKS_OPENMETRICS = (
    "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2"
)


async def ask(node: SimNode, path: str, **headers: str) -> Any:
    request = HttpRequest("GET", path, {}, b"", **headers)
    work = node.broker.admin.handle(request)
    return await node.world.on(node.world.node("node"), work)


def scrape(node: SimNode) -> dict[Key, float]:
    reply = node.run(lambda: ask(node, "/metrics"))
    assert (reply.status, reply.content_type) == (200, TEXT)
    return samples(reply.body.decode())


@pytest.fixture(scope="module")
def node():
    node = SimNode(**{"metrics.topics": "asked-*"})
    node.start()
    yield node
    node.close()


def test_every_declared_metric_appears(node: SimNode) -> None:
    """With its help and its type; and with a value, but for what there is none of on one node in a simulation."""
    text = node.run(lambda: ask(node, "/metrics")).body.decode()
    for metric in DECLARED:
        assert f"# TYPE {metric.name} {metric.kind.value}\n" in text, metric.name
        assert f"# HELP {metric.name} {metric.meaning}\n" in text
    found = {name for name, _ in samples(text)}
    without = [
        each.name for each in DECLARED
        if each.name not in found and f"{each.name}_bucket" not in found
    ]  # fmt: skip
    assert set(without) <= {
        *(
            each.name for each in DECLARED if each.name.startswith(("process_", "fencepost_accept"))
        ),  # no process
        *(each.name for each in DECLARED if each.labels == ("follower",)),  # no followers
        *(each.name for each in DECLARED if each.labels == ("topic",)),  # no such topic yet
        "fencepost_request_errors_total",  # no errors yet
        "fencepost_log_refused_batches_total",
    }


def test_connections_and_how_many_descriptors_allow_are_told(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process, which a simulation is not."""
    net = node.world.node(NODE).net
    monkeypatch.setattr(type(net), "accepted", lambda _: Accepted(7, 768, 1024, 3))
    found = scrape(node)
    assert value_of(found, "fencepost_accepted_connections") == 7
    assert value_of(found, "fencepost_accepted_connections_max") == 768
    assert value_of(found, "fencepost_accept_pauses_total") == 3


def test_openmetrics_is_told_to_who_asks_for_it(node: SimNode) -> None:
    reply = node.run(lambda: ask(node, "/metrics", accept=ASKS_OPENMETRICS))
    assert reply.content_type == OPENMETRICS
    text = reply.body.decode()
    assert text.endswith("\n# EOF\n") and text.count("# EOF") == 1
    names = [family.name for family in openmetrics_families(text)]
    assert names == [each.name.removesuffix("_total") for each in DECLARED]
    plain = node.run(lambda: ask(node, "/metrics", accept="text/plain"))
    assert plain.content_type == TEXT


def test_requests_are_counted_by_api(node: SimNode) -> None:
    node.create_topic("counted")
    before = scrape(node)
    data = batch(b"a", b"b")
    assert node.produce("counted", data).error_code == 0
    node.fetch("counted")
    after = scrape(node)

    def grew(name: str, **labels: str) -> float:
        return value_of(after, name, **labels) - before.get(
            (name, tuple(sorted(labels.items()))), 0
        )

    for api in ("Produce", "Fetch"):
        assert grew("fencepost_requests_total", api=api) == 1
        assert grew("fencepost_request_duration_seconds_count", api=api) == 1
    assert grew("fencepost_request_bytes_total", api="Produce") > len(data)
    assert grew("fencepost_response_bytes_total", api="Fetch") > len(data)
    assert grew("fencepost_log_appended_batches_total") == 1
    assert grew("fencepost_log_appended_records_total") == 2
    assert grew("fencepost_log_appended_bytes_total") == len(data)
    assert grew("fencepost_log_read_bytes_total") == len(data)
    assert grew("fencepost_log_sync_seconds_count") >= 1
    assert value_of(after, "fencepost_connections", listener="PLAINTEXT") == 1
    assert value_of(after, "fencepost_requests_in_flight", listener="PLAINTEXT") == 0


def test_errors_are_counted_by_api_and_name_at_any_depth(node: SimNode) -> None:
    before = scrape(node)
    node.ask(ApiKey.describe_groups, groups=["nobody"])
    node.ask(ApiKey.fetch, max_wait=0, session_id=77, session_epoch=3, topics=[])
    node.ask(
        ApiKey.list_offsets,
        topics=[{"name": "nowhere", "partitions": [{"partition_index": i} for i in range(3)]}],
    )
    after = scrape(node)
    name = "fencepost_request_errors_total"
    assert value_of(after, name, api="Fetch", error="FETCH_SESSION_ID_NOT_FOUND") == 1
    told = {key: count - before.get(key, 0) for key, count in after.items() if key[0] == name}
    unknown = (("api", "ListOffsets"), ("error", "UNKNOWN_TOPIC_OR_PARTITION"))
    assert told[name, unknown] == 3


def test_producers_that_repeat_skip_and_are_fenced_are_counted(node: SimNode) -> None:
    node.create_topic("produced")
    before = scrape(node)

    def send(epoch: int, sequence: int) -> int:
        data = batch(b"x", producer_id=99, producer_epoch=epoch, base_sequence=sequence)
        return int(node.produce("produced", data).error_code)

    assert [send(1, 0), send(1, 0), send(1, 5), send(0, 1)] == [0, 0, 45, 47]
    after = scrape(node)
    for name in ("duplicates", "out_of_order", "fenced"):
        metric = f"fencepost_producer_{name}_total"
        assert value_of(after, metric) - value_of(before, metric) == 1, name
    assert value_of(after, "fencepost_producer_states") >= 1
    for error in ("OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"):
        key = {"api": "Produce", "error": error}
        assert value_of(after, "fencepost_request_errors_total", **key) == 1


def test_counters_never_go_back(node: SimNode) -> None:
    rising = [
        name for each in DECLARED if each.kind.value != "gauge"
        for name in (each.name, f"{each.name}_bucket", f"{each.name}_count", f"{each.name}_sum")
    ]  # fmt: skip
    node.create_topic("asked-1", partitions=3)
    before = scrape(node)
    for step in range(4):
        node.produce("asked-1", batch(b"a"), partition=step % 3)
        node.fetch("asked-1", partition=step % 3)
        node.sleep(2)
        after = scrape(node)
        gone = before.keys() - after.keys()
        assert not {name for name, _ in gone} & set(rising)
        for key, count in before.items():
            if key[0] in rising:
                assert after[key] >= count, key
        before = after


def test_topics_have_series_only_where_they_are_asked_for(node: SimNode) -> None:
    node.create_topic("asked-2")
    node.create_topic("not-asked")
    for topic in ("asked-2", "not-asked"):
        node.produce(topic, batch(b"abc"))
        node.fetch(topic)
    found = scrape(node)
    topics = {dict(labels)["topic"] for name, labels in found if dict(labels).get("topic")}
    assert "asked-2" in topics and not topics & {"not-asked", "counted", "produced"}
    for name in ("appended_bytes_total", "read_bytes_total", "size_bytes"):
        assert value_of(found, f"fencepost_topic_{name}", topic="asked-2") > 0
    assert value_of(found, "fencepost_topic_appended_records_total", topic="asked-2") == 1
    node.ask(ApiKey.delete_topics, topics=[{"name": "asked-2", "topic_id": None}], timeout=1_000)
    assert ("fencepost_topic_size_bytes", (("topic", "asked-2"),)) not in scrape(node)
    assert "asked-2" not in node.broker.replicas.counters.topics


def test_ten_thousand_topics_make_no_series_of_their_own(node: SimNode) -> None:
    series = len(scrape(node))
    counters = node.broker.replicas.counters
    image = node.broker.image
    for number in range(10_000):
        counters.of_topic(f"t{number}").appended_bytes = 1
        image.topics[f"t{number}"] = image.topics["counted"]
    try:
        assert len(scrape(node)) == series
    finally:
        for number in range(10_000):
            del image.topics[f"t{number}"]
            del counters.topics[f"t{number}"]


def test_a_request_that_is_none_is_counted_at_its_listener(node: SimNode) -> None:
    async def garbage() -> None:
        connection = await node.env.net.connect("node", 9092)
        connection.write([b"\x00\x00\x00\x04\x7f\xff\x00\x00"])
        with contextlib.suppress(ConnectionLost):
            assert await connection.read_frame(100) is None
        connection.close()

    before = value_of(scrape(node), "fencepost_requests_malformed_total", listener="PLAINTEXT")
    node.run(garbage)
    node.sleep(0.1)
    after = value_of(scrape(node), "fencepost_requests_malformed_total", listener="PLAINTEXT")
    assert after == before + 1


def test_a_door_that_shows_its_health_shows_it_in_json(node: SimNode) -> None:
    live = node.run(lambda: ask(node, "/health/live"))
    assert (live.status, json.loads(live.body)["live"]) == (200, True)
    ready = node.run(lambda: ask(node, "/health/ready"))
    assert ready.status == 200
    assert json.loads(ready.body).keys() == {"ready", "state", "why"}


# -- the scrape by itself -------------------------------------------------------------------------------

A = counter("fencepost_a_total", "A.", "topic")
B = gauge("fencepost_b", "B.")


def alone(world: World, source: Any) -> Scrape:
    env = world.node("n")
    return Scrape(env, (A, B), [source], took=Histogram(), turns=Histogram())


def test_a_metric_of_many_series_is_one_metric() -> None:
    """It is written in pieces, and stands there as if it had been written in one."""

    async def source(gathering: Gathering) -> None:
        for number in range(2 * CHUNK + 7):
            gathering.put(A, number, f"t{number}")

    with World(seed=1) as world:
        for form, parse in (
            (TEXT, text_string_to_metric_families),
            (OPENMETRICS, openmetrics_families),
        ):
            written = world.run(world.on(world.node("n"), alone(world, source).text(form)))
            found = list(parse(written.decode()))
            assert [len(each.samples) for each in found] == [2 * CHUNK + 7, 0]
            assert written.count(b"# TYPE fencepost_a") == 1


def test_a_label_may_hold_anything() -> None:
    strange = 'a"b\\c\nd é'

    async def source(gathering: Gathering) -> None:
        gathering.put(A, 1, strange)

    with World(seed=1) as world:
        written = world.run(world.on(world.node("n"), alone(world, source).text()))
    assert samples(written.decode()) == {("fencepost_a_total", (("topic", strange),)): 1}


def test_those_who_come_while_a_scrape_runs_get_the_same_one() -> None:
    runs = 0
    gate = asyncio.Event()

    async def source(gathering: Gathering) -> None:
        nonlocal runs
        runs += 1
        await gate.wait()
        gathering.put(B, runs)

    async def many(scrape: Scrape) -> list[bytes]:
        asked = [asyncio.ensure_future(scrape.text()) for _ in range(50)]
        await asyncio.sleep(0)
        asked.pop().cancel()  # hanging up ends it for nobody else
        gate.set()
        texts = await asyncio.gather(*asked)
        return [*texts, await scrape.text()]

    with World(seed=1) as world:
        *texts, last = world.run(world.on(world.node("n"), many(alone(world, source))))
    assert len(set(texts)) == 1
    assert (value_of(samples(texts[0].decode()), "fencepost_b"), runs) == (1, 2)
    assert last != texts[0]


def test_a_scrape_lets_others_run_between_its_steps() -> None:
    """Each step takes a millisecond here: others run after every second one at the latest."""

    class Clock:
        def __init__(self) -> None:
            self.now = 0.0
            self.ran_at: list[float] = []

        def steady(self) -> float:
            return self.now

        async def sleep(self, _seconds: float) -> None:
            self.ran_at.append(self.now)

    async def steps() -> None:
        for _ in range(50):
            clock.now += 0.001
            await gathering.breathe()

    clock, turns = Clock(), Histogram()
    gathering = Gathering(clock, turns)  # type: ignore[arg-type]
    asyncio.run(steps())
    gaps = [b - a for a, b in zip([0.0, *clock.ran_at], clock.ran_at, strict=False)]
    assert max(gaps) < 0.0031
    assert math.isclose(turns.total, clock.ran_at[-1])
