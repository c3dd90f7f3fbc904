"""What Kafka 4.3.0 answered, and what we answer (`group_answers.py` is the conversation)."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.render import render, render_request
from group_answers import Conversation, hold
from support.group_node import GroupNode

KAFKA = json.loads((Path(__file__).parent / "kafka_4_3_group_answers.json").read_text())


def answers_of_ours() -> dict[str, Any]:
    with World(seed=1) as world:
        said: list[Any] = []

        async def go() -> None:
            node = GroupNode(world, partitions=10)
            await node.service.start()
            node.make_topic("t", 2)
            await node.service.coordinator_of("g")

            async def ask(client: str, api: str, version: int, **fields: Any) -> Any:
                key = ApiKey[api]
                ctx = SimpleNamespace(
                    api_version=version, client_id=client, client_host="127.0.0.1"
                )
                body = render_request(key, version, fields)
                return render(key, version, await getattr(node.service, api)(ctx, body))

            talk = Conversation(ask)
            await hold(talk)
            said.extend(talk.said)
            await node.service.stop()

        world.run(world.on(world.node("n"), go()))
        return {label: json.loads(json.dumps(answer)) for label, _, _, answer in said}


OURS = answers_of_ours()


@pytest.mark.parametrize(
    ("label", "api", "version", "answer"), KAFKA, ids=[f"{row[1]}: {row[0]}" for row in KAFKA]
)
def test_we_answer_as_kafka_did(label: str, api: str, version: int, answer: Any) -> None:
    assert OURS[label] == answer


def test_the_whole_conversation_was_held() -> None:
    assert sorted(row[0] for row in KAFKA) == sorted(OURS)
