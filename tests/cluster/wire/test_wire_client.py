"""The small client, in the simulation and over a real socket, against a broker that misbehaves on demand."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ConnectionLost, ErrorCode, Outcome, Trouble
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.wire.api import SUPPORTED, ApiKey, Request, decode_request, encode_response
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.render import render

Answer = Callable[[Any, Request], Awaitable[None]]
KEYS = (ApiKey.api_versions, ApiKey.metadata, ApiKey.produce, ApiKey.heartbeat)


def reply(connection: Any, request: Request, **fields: Any) -> None:
    body = render(request.api_key, request.api_version, fields)
    connection.write(
        encode_response(request.api_key, request.api_version, request.correlation_id, body)
    )


def say_versions(connection: Any, request: Request, newest: dict[ApiKey, int]) -> None:
    keys = [
        {"api_key": key, "min_version": SUPPORTED[key][0], "max_version": newest.get(key, 99)}
        for key in KEYS
    ]
    error = ErrorCode.unsupported_version if request.unsupported else ErrorCode.none
    reply(connection, request, error_code=error, api_keys=keys)


def broker(answer: Answer, newest: dict[ApiKey, int] | None = None) -> Any:
    async def serve(connection: Any) -> None:
        while (frame := await connection.read_frame(1 << 20)) is not None:
            request = decode_request(frame)
            if request.api_key == ApiKey.api_versions:
                say_versions(connection, request, newest or {})
            else:
                await answer(connection, request)

    return serve


async def name_the_version(connection: Any, request: Request) -> None:
    reply(connection, request, cluster_id=f"v{request.api_version}")


def in_simulation(answer: Answer, use: Any, newest: dict[ApiKey, int] | None = None) -> None:
    async def run(world: World) -> None:
        server, host = world.node("broker"), world.node("client")
        await world.on(server, server.net.listen("broker", 9092, broker(answer, newest)))

        async def work() -> None:
            client = WireClient(host, "broker", 9092)
            await use(client, world)
            await client.close()

        await world.on(host, work())

    with World(seed=1) as world:
        world.run(run(world))


def test_it_speaks_the_highest_version_that_both_ends_have() -> None:
    async def use(client: WireClient, _: World) -> None:
        body = await client.request(ApiKey.metadata, topics=None)
        assert body.cluster_id == "v5"
        assert await client.version_of(ApiKey.heartbeat) == SUPPORTED[ApiKey.heartbeat][1]
        body = await client.request(ApiKey.metadata, 3, topics=None)
        assert body.cluster_id == "v3"
        with pytest.raises(Trouble) as trouble:
            await client.request(ApiKey.create_topics, topics=[])
        assert trouble.value.outcome is Outcome.REFUSED

    in_simulation(name_the_version, use, {ApiKey.metadata: 5})


def test_requests_in_flight_side_by_side_get_their_own_answers() -> None:
    async def slowly(connection: Any, request: Request) -> None:
        await asyncio.sleep(0.01)
        reply(connection, request, cluster_id=request.body.topics[0].name)

    async def use(client: WireClient, _: World) -> None:
        names = [f"topic-{number}" for number in range(50)]
        bodies = await asyncio.gather(
            *(client.request(ApiKey.metadata, topics=[{"name": name}]) for name in names)
        )
        assert [body.cluster_id for body in bodies] == names

    in_simulation(slowly, use)


def test_a_late_answer_is_not_taken_for_the_next_requests() -> None:
    async def first_is_late(connection: Any, request: Request) -> None:
        if request.body.topics[0].name == "late":
            await asyncio.sleep(2)
        reply(connection, request, cluster_id=request.body.topics[0].name)

    async def use(client: WireClient, _: World) -> None:
        with pytest.raises(Trouble) as trouble:
            await client.request(ApiKey.metadata, topics=[{"name": "late"}], timeout_s=1)
        assert trouble.value.outcome is Outcome.UNKNOWN
        body = await client.request(ApiKey.metadata, topics=[{"name": "prompt"}])
        assert body.cluster_id == "prompt"

    in_simulation(first_is_late, use)


def test_a_broken_connection_leaves_the_outcome_unknown_and_the_next_request_connects_anew() -> (
    None
):
    seen: list[str] = []

    async def cut_once(connection: Any, request: Request) -> None:
        seen.append(request.body.topics[0].name)
        if len(seen) == 1:
            connection.abort()
            return
        reply(connection, request, cluster_id="back")

    async def use(client: WireClient, _: World) -> None:
        with pytest.raises(ConnectionLost) as lost:
            await client.request(ApiKey.metadata, topics=[{"name": "a"}])
        assert lost.value.outcome is Outcome.UNKNOWN
        assert (await client.request(ApiKey.metadata, topics=[{"name": "b"}])).cluster_id == "back"
        assert seen == ["a", "b"], "nothing is sent twice"

    in_simulation(cut_once, use)


def test_nobody_there_means_refused() -> None:
    async def use(client: WireClient, world: World) -> None:
        world.kill("broker")
        with pytest.raises(Trouble) as trouble:
            await client.request(ApiKey.metadata, topics=None)
        assert trouble.value.outcome is Outcome.REFUSED

    in_simulation(name_the_version, use)


def test_a_broker_that_accepts_and_says_nothing_means_refused() -> None:
    """The request itself was never sent: only the question for versions was."""

    async def silent(connection: Any) -> None:
        await connection.read_frame(1 << 20)
        await asyncio.sleep(1000)

    async def run(world: World) -> None:
        server, host = world.node("broker"), world.node("client")
        await world.on(server, server.net.listen("broker", 9092, silent))

        async def work() -> None:
            client = WireClient(host, "broker", 9092, timeout_s=3)
            with pytest.raises(Trouble) as trouble:
                await client.request(ApiKey.metadata, topics=None)
            assert trouble.value.outcome is Outcome.REFUSED

        await world.on(host, work())

    with World(seed=1) as world:
        world.run(run(world))


@pytest.mark.parametrize("lie", ["garbage", "another id", "unasked"])
def test_an_answer_that_makes_no_sense_ends_the_connection(lie: str) -> None:
    async def answer(connection: Any, request: Request) -> None:
        if lie == "garbage":
            connection.write([b"\0\0\0\5" + request.correlation_id.to_bytes(4) + b"\x01"])
        elif lie == "another id":
            request.correlation_id += 1
            reply(connection, request)
        else:
            reply(connection, request)
            reply(connection, request)

    async def use(client: WireClient, _: World) -> None:
        if lie == "unasked":
            await client.request(ApiKey.metadata, topics=None)
            await asyncio.sleep(1)
            return
        with pytest.raises(ConnectionLost) as lost:
            await client.request(ApiKey.metadata, topics=None)
        assert lost.value.outcome is Outcome.UNKNOWN

    in_simulation(answer, use)


def test_a_broker_that_is_too_old_for_the_question_is_asked_in_version_0() -> None:
    asked: list[int] = []

    async def serve(connection: Any) -> None:
        while (frame := await connection.read_frame(1 << 20)) is not None:
            request = decode_request(frame)
            asked.append(request.api_version)
            if request.api_key == ApiKey.api_versions and request.api_version == 3:
                request.api_version, request.unsupported = 0, True
            if request.api_key == ApiKey.api_versions:
                say_versions(connection, request, {ApiKey.metadata: 1})
            else:
                await name_the_version(connection, request)

    async def run(world: World) -> None:
        server, host = world.node("broker"), world.node("client")
        await world.on(server, server.net.listen("broker", 9092, serve))

        async def work() -> None:
            client = WireClient(host, "broker", 9092)
            body = await client.request(ApiKey.metadata, topics=None)
            assert body.controller_id == -1
            await client.close()

        await world.on(host, work())

    with World(seed=1) as world:
        world.run(run(world))
    assert asked == [3, 0, 1]


def test_a_produce_without_acks_has_no_answer_and_the_next_answer_is_the_next_requests() -> None:
    async def quiet(connection: Any, request: Request) -> None:
        if request.api_key == ApiKey.metadata:
            reply(connection, request, cluster_id="answered")

    async def use(client: WireClient, _: World) -> None:
        assert await client.request(ApiKey.produce, acks=0, topic_data=[]) is None
        assert (await client.request(ApiKey.metadata, topics=None)).cluster_id == "answered"

    in_simulation(quiet, use)


def test_a_closed_client_refuses_and_tells_those_who_wait() -> None:
    async def never(connection: Any, request: Request) -> None:
        await asyncio.sleep(1000)

    async def use(client: WireClient, _: World) -> None:
        async def ask() -> Outcome:
            with pytest.raises(Trouble) as trouble:
                await client.request(ApiKey.metadata, topics=None)
            return trouble.value.outcome

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(ask())
            await asyncio.sleep(1)
            await client.close()
        assert waiting.result() is Outcome.UNKNOWN
        assert await ask() is Outcome.REFUSED

    in_simulation(never, use)


def test_it_works_over_a_real_socket() -> None:
    async def main() -> None:
        async with open_env() as env:
            listener = await env.net.listen("127.0.0.1", 0, broker(name_the_version))
            client = WireClient(env, *listener.address)
            async with asyncio.timeout(20):
                body = await client.request(ApiKey.metadata, topics=None)
                assert body.cluster_id == f"v{SUPPORTED[ApiKey.metadata][1]}"
            await client.close()
            await listener.close()

    asyncio.run(main())
