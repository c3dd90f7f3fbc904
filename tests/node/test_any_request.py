"""Requests made from the schema alone: every field takes values that no sane client sends.

The node answers in the version that it was asked in, or closes the connection and says why. It never dies of a
request, and never meets one that it did not expect (`client_request_failed`).
"""

import random
import uuid
from collections.abc import Iterator
from typing import Any, Final

import pytest
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.wire.api import SUPPORTED, ApiKey, request_class
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.schema import EntityClass, Field, fields_of
from fencepost.node.handlers import APIS
from sim_node import NODE, PORT, SimNode, batch

EXAMPLES = 12
# Long enough for every wait that a request may ask for here, except for those without end.
PATIENCE_S = 3.0
TOPIC, COMPACTED = "topic", "compacted"
WORDS: Final = (
    "", " ", ".", "..", "a", TOPIC, COMPACTED, "missing", "__consumer_offsets", "__transaction_state", "Ongoing", "1", "group", "größe/☃", "x" * 300,
    *(TOPIC,) * 12, *(COMPACTED,) * 4, *("group",) * 6, "consumer", "range", "uniform", "retention.ms", "cleanup.policy", "-1", "compact,delete", "t*[",
)  # fmt: skip
INTS: Final = {
    "int8": (-128, -1, 0, 1, 2, 3, 4, 8, 16, 32, 127),
    "int16": (-32768, -1, 0, 1, 2, 32767),
    "uint16": (0, 1, 9092, 65535),
    "int32": (-(2**31), -2, -1, 0, 1, 2, 100, 1 << 20, 2**31 - 1),
    "int64": (-(2**63), -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 1_000, 2**40, 2**63 - 1),
    "timedelta_i32": (-(2**31), -1, 0, 1, 100, 6_000, 45_000, 2**31 - 1),
    "timedelta_i64": (-(2**63), -1, 0, 1, 2**62),
    "datetime_i64": (-1, 0, 1_000),
}
GOOD = batch(b"a", b"b")
RECORDS: Final = (
    None, b"", b"\0", GOOD, GOOD + GOOD, GOOD[:-1], GOOD + b"\0", b"\0" * 61, GOOD[:20] + b"\xff" + GOOD[21:],
    batch(b"c", producer_id=1, producer_epoch=0, base_sequence=0), batch(b"d", transactional=True),
    batch(b"d", producer_id=7, producer_epoch=0, base_sequence=5, transactional=True),
)  # fmt: skip


class Maker:
    """Draws the fields of one request."""

    def __init__(self, seed: str, topic_ids: list[uuid.UUID]) -> None:
        self.rng = random.Random(seed)
        self.topic_ids = topic_ids

    def struct(self, entity: EntityClass) -> dict[str, Any]:
        return {field.name: self.value(field) for field in fields_of(entity)}

    def value(self, field: Field) -> Any:
        if field.nullable and self.rng.random() < 0.15:
            return None
        if field.is_array:
            return [self.one(field) for _ in range(self.rng.choice((0, 1, 1, 2, 3)))]
        return self.one(field)

    def one(self, field: Field) -> Any:
        rng = self.rng
        match field.kind:
            case "struct":
                return self.struct(field.struct)
            case "string":
                return rng.choice(WORDS)
            case "bytes":
                return rng.choice((b"", b"\0\1", rng.randbytes(20)))
            case "records":
                return rng.choice(RECORDS)
            case "bool":
                return rng.random() < 0.5
            case "uuid":
                return rng.choice((None, uuid.UUID(int=5), *self.topic_ids))
            case kind:
                # Mostly what means something: otherwise the first check refuses everything.
                numbers = INTS[kind]
                return rng.choice((0, 1)) if rng.random() < 0.5 else rng.choice(numbers)


def started(seed: str) -> SimNode:
    node = SimNode(seed=seed)
    node.start()
    create_topics(node)
    return node


def create_topics(node: SimNode) -> None:
    """Those that the last requests have not deleted stay."""
    there = {each.name for each in node.ask(ApiKey.metadata, topics=None).topics}
    if TOPIC not in there:
        node.create_topic(TOPIC, 2)
    if COMPACTED not in there:
        node.create_topic(COMPACTED, 1, **{"cleanup.policy": "compact"})


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    simulated = started("any request")
    yield simulated
    simulated.close()


def fields_for(node: SimNode, key: ApiKey, version: int, example: int) -> dict[str, Any]:
    maker = Maker(f"{key.name}/{version}/{example}", list(node.topic_ids.values()))
    fields = maker.struct(request_class(key, version))
    if key is ApiKey.create_topics:
        for topic in fields["topics"]:  # ten thousand partitions are another test's work
            topic["num_partitions"] = min(topic["num_partitions"], 3)
    if key is ApiKey.create_partitions:
        for topic in fields["topics"]:
            topic["count"] = min(topic["count"], 5)
    return fields


def ask(node: SimNode, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    """The answer, or the Trouble of a closed connection or of one that waits longer than a test does."""
    wire = WireClient(node.client, NODE, PORT, client_id="hostile", timeout_s=PATIENCE_S)

    async def converse() -> Any:
        try:
            return await wire.request(key, version, **fields)
        except Trouble as trouble:
            return trouble
        finally:
            await wire.close()

    return node.run(converse)


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.name)
def test_a_request_of_any_fields_is_answered_or_its_connection_closed(
    node: SimNode, key: ApiKey
) -> None:
    low, high = SUPPORTED[key]
    for version in range(low, high + 1):
        create_topics(node)
        for example in range(EXAMPLES):
            ask_and_look(node, key, version, fields_for(node, key, version, example))


def ask_and_look(node: SimNode, key: ApiKey, version: int, fields: dict[str, Any]) -> None:
    events = node.world.machine(NODE).events
    events.clear()
    try:
        ask(node, key, version, fields)
    except AssertionError as death:
        death.add_note(f"{key.name} v{version}: {fields}")
        raise
    failed = [each for _, name, each in events if name == "client_request_failed"]
    assert not failed, f"{key.name} v{version}: {fields}\n{failed[0]['cause']}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_requests_while_the_disk_fills_up_and_empties_leave_a_node_that_starts_again(
    seed: int,
) -> None:
    rng = random.Random(f"full/{seed}")
    node = started(f"full/{seed}")
    files = node.world.disk(NODE).files
    low_high = [(key, *SUPPORTED[key]) for key in APIS]
    asked = [(key, version) for key, low, high in low_high for version in range(low, high + 1)]
    rng.shuffle(asked)
    for place, (key, version) in enumerate(asked):
        if rng.random() < 0.3:
            room = rng.choice((None, None, 0, 10, 100, 1_000, 5_000))
            files.capacity = None if room is None else files.used + room
        ask_and_look(node, key, version, fields_for(node, key, version, 1_000 * seed + place))
    files.capacity = None
    if seed % 2:
        node.world.crash(NODE)
    node.start()
    create_topics(node)
    assert TOPIC in {each.name for each in node.ask(ApiKey.metadata, topics=None).topics}
    node.close()
