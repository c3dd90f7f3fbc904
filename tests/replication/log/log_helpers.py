"""A log on the simulated disk, and batches to put into it."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.batch import BatchHeader, headers_of
from fencepost.cluster.wire.records import Record, build_batch, control_batch, read_records
from fencepost.replication.log.config import LogSettings
from fencepost.replication.log.log import Log
from fencepost.replication.log.store import LogStore

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=0x1234)
FOLDER = "/data/logs"
START_MS = 1_767_225_600_000
LOG = "00000000000000000000.log"


def settings(**changes: Any) -> LogSettings:
    small = LogSettings(segment_bytes=4096, index_interval_bytes=256, file_delete_delay_ms=1000)
    return replace(small, **changes)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], seed: int | str = 5) -> None:
    with World(seed) as world:
        world.run(scenario(world))


class Node:
    """One node with one partition, through its restarts."""

    def __init__(self, world: World, **changes: Any) -> None:
        self.world = world
        self.config = settings(**changes)
        self.env: SimEnv = world.node("n1")
        self.store: LogStore
        self.log: Log

    async def start(self) -> Log:
        self.store = LogStore(self.env, FOLDER)
        self.store.start()
        self.log = self.store.open(PARTITION, TOPIC_ID, self.config)
        await self.store.opened([self.log])
        return self.log

    async def stop(self) -> None:
        await self.store.stop([self.log])
        self.world.kill("n1")

    async def sync(self) -> None:
        await self.store.sync([self.log])

    async def settle(self) -> None:
        await self.sync()
        await self.store.checkpoint()

    async def restart(self, how: str, *, torn: bool = True) -> Log:
        """how: "clean", "kill" or "crash"."""
        self.down(how, torn=torn) if how != "clean" else await self.stop()
        self.env = self.world.restart("n1")
        return await self.start()

    def down(self, how: str, *, torn: bool = True) -> None:
        if how == "kill":
            self.world.kill("n1")
        else:
            self.world.crash("n1", torn=torn)

    def files(self) -> list[str]:
        return self.env.disk.list(f"{FOLDER}/{PARTITION}")

    def path(self, name: str) -> str:
        return f"{FOLDER}/{PARTITION}/{name}"


def batch_at(
    offset: int,
    *,
    count: int = 1,
    size: int = 20,
    timestamp: int = START_MS,
    records: list[Record] | None = None,
    leader_epoch: int = 0,
    **fields: Any,
) -> bytes:
    if records is None:
        records = [
            Record(number, timestamp + number, b"k%d" % number, b"v" * size)
            for number in range(count)
        ]
    return bytes(build_batch(records, base_offset=offset, leader_epoch=leader_epoch, **fields))


def append(log: Log, data: bytes, now_ms: int = START_MS) -> list[tuple[int, BatchHeader]]:
    headers = headers_of(data)
    log.append(data, headers, now_ms)
    return headers


def put(log: Log, *pairs: tuple[str, str | None], **fields: Any) -> None:
    """Keys and their values, in one batch; None deletes a key."""
    end = log.log_end_offset
    records = [
        Record(end + at, START_MS, key.encode(), None if value is None else value.encode())
        for at, (key, value) in enumerate(pairs)
    ]
    append(log, batch_at(end, records=records, **fields))


def produce(log: Log, batches: int = 1, **fields: Any) -> None:
    for _ in range(batches):
        append(log, batch_at(log.log_end_offset, **fields))


def marker_at(
    offset: int, producer_id: int, *, commit: bool, epoch: int = 0, leader_epoch: int = 0
) -> bytes:
    return bytes(control_batch(
        commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=3,
        timestamp=START_MS, base_offset=offset, leader_epoch=leader_epoch,
    ))  # fmt: skip


def end_txn(log: Log, producer_id: int, *, commit: bool, **epochs: int) -> None:
    append(log, marker_at(log.log_end_offset, producer_id, commit=commit, **epochs))


def read_bytes(log: Log, offset: int, max_bytes: int = 1 << 30, *, limit: int | None = None,
               min_one: bool = True) -> bytes:  # fmt: skip
    limit = log.log_end_offset if limit is None else limit
    found = log.read(offset, max_bytes, limit=limit, min_one=min_one)
    assert found is not None
    data = b"".join(piece.file.read(piece.position, piece.length) for piece in found.slices)  # type: ignore[union-attr]
    assert len(data) == found.size
    return data


def read_all(log: Log, start: int | None = None) -> bytes:
    """Everything from `start` on, by as many reads as it takes."""
    offset = log.log_start_offset if start is None else start
    parts = []
    while offset < log.log_end_offset:
        found = log.read(offset, 1000, limit=log.log_end_offset, min_one=True)
        assert found is not None
        if not found.size:
            break
        parts += [piece.file.read(piece.position, piece.length) for piece in found.slices]  # type: ignore[union-attr]
        assert found.next_offset > offset
        offset = found.next_offset
    return b"".join(parts)


def records_in(data: bytes) -> list[Record]:
    return [record for position, _ in headers_of(data) for record in read_records(data, position)]


def offsets_in(data: bytes) -> list[int]:
    return [header.base_offset for _, header in headers_of(data)]


def rewrite(node: Node, name: str, data: bytes) -> None:
    """As another program would, with the node down."""
    file = node.world.node("n1").disk.open(node.path(name), create=True)
    file.truncate(0)
    file.append((data,))
    file.sync()
    file.close()


async def fill(node: Node, batches: int = 6, settled: int = 3) -> bytes:
    """`settled` batches are below the checkpointed recovery point, the others were only written."""
    await node.start()
    produce(node.log, settled)
    await node.settle()
    produce(node.log, batches - settled)
    return read_all(node.log)
