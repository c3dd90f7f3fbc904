"""How long a node takes to coordinate the groups, or the transactions, of a partition that it has just begun to lead.

    .venv/bin/python tests/benchmarks/bench_loading.py [--of groups] [--count 100000] [--batch 1] [--profile]

Writes a partition of `__consumer_offsets` to a temporary folder: for each group a generation with one member and one
position; or one of `__transaction_state`: for each transactional id its beginning, its open transaction and its end.
`--batch` records a batch (1 is the worst: what a coordinator writes for one client's request). Then loads
it as after an election, on the node's own loop, and prints

    load      from the election to the first command that is taken
    read      until the last one has been decoded in the background
    stall     the longest that another task of the loop had to wait, during the load and after it

The target is a load under a second (100,000 of them) with stalls under 50 ms. What a profile said first (decoding
everything before opening; 100,000 groups, 200,000 records, batches of one): 4.9 s, of which 0.9 s went into finding
the records and 3.5 s into decoding them (1.25 million calls of one struct each, 0.55 million strings; one member is
five of those), applying them, and Python's collector, which looks at each object that stays. `loaded`, the timers of
everybody in one go, held the loop for 0.5 s.
"""

import argparse
import asyncio
import cProfile
import pstats
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import uvloop
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from fencepost.cluster.base.ports import Env
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.metadata.image import ClusterImage, ConfigType, PartitionState, TopicState
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.partition import Appended
from fencepost.txn.groups.commands import ListGroups
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.consumer_config import ConsumerConfig
from fencepost.txn.groups.records import GroupMetadata, MemberMetadata, OffsetCommitted
from fencepost.txn.groups.service import GroupService
from fencepost.txn.runtime.decision import LogRecord
from fencepost.txn.runtime.partition_log import LocalPartitions
from fencepost.txn.runtime.shard import Shard
from fencepost.txn.transactions.commands import ListTransactions
from fencepost.txn.transactions.config import TransactionConfig
from fencepost.txn.transactions.records import TransactionRecord
from fencepost.txn.transactions.service import TransactionService
from fencepost.txn.transactions.transaction import Phase, Transaction

ME = BrokerId(1)
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff\x00\x00\x00\x00"
ASSIGNMENT = (
    b"\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"
)


def of_a_group(number: int) -> Iterator[LogRecord]:
    name = f"group-{number}"
    member = MemberMetadata(
        member_id=f"consumer-{number}-5f7a52a8-5a0c-4b6b-9c3f-0d8a7a1b2c3d",
        client_id="consumer",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=300_000,
        session_timeout_ms=3_600_000,
        subscription=SUBSCRIPTION,
        assignment=ASSIGNMENT,
    )
    yield GroupMetadata(
        group_id=name,
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader=member.member_id,
        current_state_timestamp=5,
        members=(member,),
    )
    yield OffsetCommitted(
        group_id=name, topic="orders", partition=0, committed_offset=9, commit_timestamp=1
    )


def of_a_transaction(number: int) -> Iterator[LogRecord]:
    begun = Transaction(
        transactional_id=f"sink-{number}",
        producer_id=number,
        producer_epoch=3,
        timeout_ms=60_000,
        last_update_timestamp=1,
    )
    places = tuple(TopicPartition("orders", partition) for partition in range(3))
    at_work = replace(begun, phase=Phase.ONGOING, partitions=places, start_timestamp=1)
    for state in (begun, at_work, replace(begun, phase=Phase.COMPLETE_COMMIT)):
        yield TransactionRecord(state)


def groups(env: Env, cluster: ClusterImage, replicas: ReplicaManager) -> GroupService:
    return GroupService(
        env=env,
        node_id=ME,
        image=cluster,
        partitions=LocalPartitions(replicas),
        config=GroupConfig(),
        consumer_config=ConsumerConfig(),
        create_topic=_nothing,
        confirm_image=_alone,
    )


class NoDoor:
    """What has ended sends nothing."""

    def __getattr__(self, name: str) -> None:
        raise AssertionError(f"{name} was asked for")


def transactions(env: Env, cluster: ClusterImage, replicas: ReplicaManager) -> TransactionService:
    return TransactionService(
        env=env,
        node_id=ME,
        image=cluster,
        partitions=LocalPartitions(replicas),
        config=TransactionConfig(),
        create_topic=_nothing,
        producer_ids=_no_id,
        markers=NoDoor(),
        words=NoDoor(),
        confirm_image=_alone,
    )


class Kind(NamedTuple):
    topic: str
    records_of: Callable[[int], Iterator[LogRecord]]
    service: Callable[[Env, ClusterImage, ReplicaManager], GroupService | TransactionService]
    everything: Any  # the command that lists them


KINDS = {
    "groups": Kind(GROUP_OFFSETS_TOPIC, of_a_group, groups, ListGroups()),
    "transactions": Kind(
        TRANSACTION_STATE_TOPIC, of_a_transaction, transactions, ListTransactions()
    ),
}


def image(name: str, epoch: int, leader: BrokerId) -> ClusterImage:
    made = ClusterImage()
    state = PartitionState(0, leader, LeaderEpoch(epoch), PartitionEpoch(epoch), (ME,), (ME,))
    topic = TopicState(name, UUID(int=1), [state])
    made.topics[topic.name] = made.topics_by_id[topic.topic_id] = topic
    made.configs[ConfigType.TOPIC, topic.name] = {"cleanup.policy": "compact", "flush.policy": "os"}
    return made


def write(replicas: ReplicaManager, kind: Kind, count: int, per_batch: int) -> tuple[int, int]:
    """How many records, and bytes."""
    written = 0
    partition = replicas.partition(TopicPartition(kind.topic, 0))
    assert not isinstance(partition, ErrorCode)
    rows: list[Record] = []
    for number in range(count):
        for record in kind.records_of(number):
            written += 1
            key, value = record.encode()
            rows.append(Record(len(rows), 0, key, value))
            if len(rows) == per_batch or number == count - 1:
                done = partition.append_as_leader(
                    build_batch(rows), required_acks=1, now_ms=1, origin_client=False
                )
                assert isinstance(done, Appended)
                rows = []
    return written, partition.log.size_bytes


class Stalls:
    """A task that wants to run at each turn of the loop, and how long it was kept from it."""

    def __init__(self) -> None:
        self.worst_ms = 0.0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.worst_ms = max(self.worst_ms, (time.perf_counter() - began) * 1000 - 1)

    def so_far(self) -> float:
        worst, self.worst_ms = self.worst_ms, 0.0
        return worst

    def stop(self) -> None:
        self._task.cancel()


async def run(folder: str, what: str, count: int, per_batch: int, *, profile: bool) -> None:
    kind = KINDS[what]
    async with open_env() as env:
        cluster = image(kind.topic, 0, ME)
        replicas = ReplicaManager(env, folder, ME, cluster, {})
        await replicas.start()
        records, size = write(replicas, kind, count, per_batch)
        await asyncio.sleep(0.1)
        service = kind.service(env, cluster, replicas)
        stalls = Stalls()
        await asyncio.sleep(0.01)
        stalls.so_far()
        profiler = cProfile.Profile()
        if profile:
            profiler.enable()
        began = time.perf_counter()
        await service.start()
        while not isinstance(shard := service._coordinator.shard_at(0), Shard):
            await asyncio.sleep(0.001)
        load_s = time.perf_counter() - began
        profiler.disable()
        load_stall_ms = stalls.so_far()
        await shard._all_read.wait()
        read_s = time.perf_counter() - began
        read_stall_ms = stalls.so_far()
        stalls.stop()
        found = len(await shard.execute(kind.everything))
        assert found == count, found
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"{count} {what}, {records} records, {per_batch} a batch, {size >> 20} MiB: "
            f"load {load_s:.2f} s (stall {load_stall_ms:.0f} ms), "
            f"read {read_s:.1f} s (stall {read_stall_ms:.0f} ms), peak memory {peak_mb} MB"
        )
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(15)
        await service.stop()
        await replicas.stop()


async def _alone() -> bool:
    return True


async def _no_id() -> int:
    raise AssertionError("nobody begins")


async def _nothing(name: str) -> None:
    raise AssertionError(f"{name} is there")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--of", choices=KINDS, help="by default both")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--batch", type=int, help="records a batch; by default 1, then 500")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    for what in [args.of] if args.of else KINDS:
        for per_batch in [args.batch] if args.batch else [1, 500]:
            with tempfile.TemporaryDirectory() as folder:
                uvloop.run(run(folder, what, args.count, per_batch, profile=args.profile))


if __name__ == "__main__":
    main()
