"""What transactions cost a partition: appends against plain idempotent ones, committed reads against all, a large index.

    python tests/benchmarks/bench_transactional_log.py

In one process, by its CPU time, so that other work on the machine hardly shows. Rounds alternate; the best counts.
"""

import argparse
import asyncio
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

from fencepost.cluster.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.metadata.image import ClusterImage, ConfigType, PartitionState, TopicState
from fencepost.cluster.wire.records import Record, build_batch, control_batch
from fencepost.replication.log.txn_index import AbortedIndex, AbortedTxn
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.partition import Appended, Partition, Read

ME: Final = BrokerId(1)
PLAIN, TRANSACTIONAL = TopicPartition("plain", 0), TopicPartition("transactional", 0)
BATCHES_A_TRANSACTION: Final = (
    100  # 16 records of a kilobyte each: 1.6 MB, what 100 ms of a fast producer hold
)
ROUNDS: Final = 7
COMMITTED, ALL = 1, 0


def image() -> ClusterImage:
    made = ClusterImage()
    for name in (PLAIN.topic, TRANSACTIONAL.topic):
        state = PartitionState(
            partition=0, leader=ME, leader_epoch=LeaderEpoch(1), partition_epoch=PartitionEpoch(1),
            replicas=(ME,), isr=(ME,),
        )  # fmt: skip
        topic = TopicState(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), [state])
        made.topics[name] = made.topics_by_id[topic.topic_id] = topic
        made.configs[ConfigType.TOPIC, name] = {"flush.policy": "os"}
    return made


def batch(sequence: int, *, transactional: bool) -> bytearray:
    records = [Record(place, 1_000, None, bytes(1_000)) for place in range(16)]
    return build_batch(
        records,
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
    )


def append(partition: Partition, written: bytearray, *, origin_client: bool = True) -> None:
    done = partition.append_as_leader(
        written, required_acks=1, now_ms=1, origin_client=origin_client
    )
    assert isinstance(done, Appended), done


def cpu_s(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


class Writers:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._partitions = {name: _partition(replicas, name) for name in (PLAIN, TRANSACTIONAL)}
        self._sequence = 0

    def round(self) -> tuple[float, float]:
        first = self._sequence
        self._sequence += BATCHES_A_TRANSACTION * 16
        batches = {
            name: [
                batch(first + 16 * place, transactional=name is TRANSACTIONAL)
                for place in range(BATCHES_A_TRANSACTION)
            ]
            for name in (PLAIN, TRANSACTIONAL)
        }

        def write(name: TopicPartition) -> None:
            partition = self._partitions[name]
            for each in batches[name]:
                append(partition, each)
            if name is TRANSACTIONAL:
                marker = control_batch(
                    commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
                )
                append(partition, marker, origin_client=False)

        return cpu_s(lambda: write(PLAIN)), cpu_s(lambda: write(TRANSACTIONAL))


def _partition(replicas: ReplicaManager, name: TopicPartition) -> Partition:
    found = replicas.partition(name)
    assert isinstance(found, Partition), found
    return found


def read_all(partition: Partition, isolation: int, max_bytes: int) -> None:
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        read = partition.read(offset, max_bytes, isolation=isolation, min_one=True)
        assert isinstance(read, Read) and read.size, read
        offset += max(1, read.size // 16_300) * 16


def with_entries(partition: Partition, entries: int) -> float:
    """Seconds for a committed read of a megabyte, with an index of so many: all but the last begin behind it."""
    end = partition.high_watermark
    index = AbortedIndex(
        AbortedTxn(9, end + 2 * place, end + 2 * place + 1, 5) for place in range(entries)
    )
    partition.log.segments[0].aborted = index
    reads = 50

    def work() -> None:
        for _ in range(reads):
            partition.read(0, 1 << 20, isolation=COMMITTED, min_one=True)

    return min(cpu_s(work) for _ in range(ROUNDS)) / reads


async def run(folder: str, entries: int) -> None:
    async with open_env() as env:
        settings = {"transaction.partition.verification.enable": "false"}
        replicas = ReplicaManager(env, folder, ME, image(), settings)
        await replicas.start()
        writers = Writers(replicas)
        rounds = [writers.round() for _ in range(ROUNDS)]
        plain, transactional = min(each[0] for each in rounds), min(each[1] for each in rounds)
        print(f"append of {BATCHES_A_TRANSACTION} batches of 16 KiB: idempotent {plain * 1e3:.2f} ms, "
              f"in a transaction {transactional * 1e3:.2f} ms ({transactional / plain - 1:+.1%})")  # fmt: skip
        await asyncio.sleep(0.1)
        partition = _partition(replicas, TRANSACTIONAL)
        for max_bytes in (1 << 20, 1 << 14):
            times: dict[int, list[float]] = {ALL: [], COMMITTED: []}
            for _ in range(ROUNDS):
                for isolation, seen in times.items():
                    seen.append(cpu_s(partial(read_all, partition, isolation, max_bytes)))
            every, committed = min(times[ALL]), min(times[COMMITTED])
            print(f"reads of {max_bytes >> 10} KiB: all {every * 1e3:.2f} ms, committed "
                  f"{committed * 1e3:.2f} ms ({committed / every - 1:+.1%})")  # fmt: skip
        none, many = with_entries(partition, 0), with_entries(partition, entries)
        print(f"a read beside {entries} aborted transactions: +{(many - none) * 1e6:.0f} µs")
        partition.log.segments[0].aborted = AbortedIndex()
        await replicas.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(folder, args.entries))


if __name__ == "__main__":
    main()
