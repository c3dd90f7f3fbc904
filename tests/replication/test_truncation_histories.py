"""Any history of leaders, clean or not, with producers and transactions: what is derived from a log follows it.

Each step is done by hand (no streams): a leader writes, another leads, a follower asks, is cut and copies. After each copy
the follower is, in every way that can be asked, what a replay of its batches is.
"""

import random
from collections.abc import Sequence

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import FileSlice
from fencepost.cluster.wire.records import control_batch
from fencepost.replication.divergence_machine import (
    GoOn,
    Parted,
    answer,
    cut_out_of_range,
    cut_where_parted,
)
from fencepost.replication.log import snapshots
from fencepost.replication.partition import Appended, Partition
from replica_campaign import known
from replica_cluster import Cluster, log_bytes
from replica_helpers import batch

NODES = (1, 2, 3)
ORDERS = TopicPartition("orders", 0)


class Histories:
    def __init__(self, world: World) -> None:
        self.rng = world.stream("histories")
        self.world = world
        self.cluster = Cluster(world)
        self.leader = 1
        self.sequences: dict[int, int] = {}
        self.open: dict[int, bool] = {}
        self.rounds = self.copies = self.cuts = 0

    async def run(self, steps: int) -> None:
        await self.cluster.start()
        for node in NODES:
            self.world.net.isolate(f"node-{node}")
        self.cluster.create(segment_ms="40", flush_policy="os")
        for _ in range(steps):
            match self.rng.choices(("write", "elect", "copy", "sync"), (6, 1, 3, 1))[0]:
                case "write":
                    self.write()
                case "elect":
                    self.leader = self.rng.choice(NODES)
                    self.cluster.elect(self.leader)
                    self.forget_unknown()
                case "copy":
                    self.copy(self.rng.choice(NODES))
                case "sync":
                    node = self.cluster[self.rng.choice(NODES)]
                    await self.world.on(node.env, node.manager.rounds.checkpoint())
            self.world.machine("node-1").wall.jump(self.rng.randrange(10))
        for node in NODES:
            self.copy(node, whole=True)
        ends = {self.partition(node).log_end_offset for node in NODES}
        assert len(ends) == 1

    def partition(self, node: int) -> Partition:
        return self.cluster[node].partition()

    # -- what a leader writes --------------------------------------------------------------------------

    def forget_unknown(self) -> None:
        """Clients go on from what the new leader knows: after an unclean election they would start anew."""
        states = known(self.partition(self.leader).producers.states())
        self.sequences = {pid: state.last_sequence for pid, state in states.items()}
        self.open = {pid: state.txn_first_offset >= 0 for pid, state in states.items()}

    def write(self) -> None:
        pid = self.rng.randrange(6)
        leader = self.cluster[self.leader]
        now = int(self.world.loop.time() * 1000) + self.rng.randrange(1_000)
        if self.open.get(pid) and self.rng.random() < 0.5:
            marker = control_batch(
                commit=self.rng.random() < 0.5, producer_id=pid, producer_epoch=0,
                coordinator_epoch=0, timestamp=now,
            )  # fmt: skip
            done = leader.do(
                self.partition(self.leader).append_as_leader,
                marker, required_acks=1, now_ms=now, origin_client=False,
            )  # fmt: skip
            self.open[pid] = False
        else:
            is_transactional = pid % 2 == 0
            sequence = self.sequences.get(pid, -1) + 1
            values = [f"{pid}:{sequence + n}" for n in range(self.rng.randrange(1, 4))]
            done = leader.produce(
                batch(
                    *values,
                    pid=pid,
                    sequence=sequence,
                    timestamp=now,
                    transactional=is_transactional,
                ),
                acks=1,
            )
            self.sequences[pid] = sequence + len(values) - 1
            self.open[pid] = is_transactional
        assert isinstance(done, Appended), done

    # -- what a follower does --------------------------------------------------------------------------

    def copy(self, node: int, *, whole: bool = False) -> None:
        if node == self.leader:
            return
        follower, leader = self.partition(node), self.partition(self.leader)
        self.agree(node, follower, leader)
        self.copies += 1
        limit = leader.log_end_offset
        if not whole and self.rng.random() < 0.5:
            limit = follower.log_end_offset + 5
        while follower.log_end_offset < min(limit, leader.log_end_offset):
            found = leader.log.read(
                follower.log_end_offset, self.rng.randrange(1, 2_000),
                limit=leader.log_end_offset, min_one=True,
            )  # fmt: skip
            assert found is not None
            data = b"".join(
                piece.file.read(piece.position, piece.length)
                for piece in found.slices
                if isinstance(piece, FileSlice)
            )
            self.cluster[node].do(follower.append_as_follower, data, leader.leader_epoch)
        end = follower.log_end_offset
        assert log_bytes(follower) == log_bytes(leader, end)
        self.check(follower)

    def agree(self, node: int, follower: Partition, leader: Partition) -> None:
        for _ in range(50):
            found = answer(
                leader.log.epochs,
                (leader.leader_epoch, leader.machine.epoch_start_offset),
                leader.log_start_offset,
                leader.log_end_offset,
                last_epoch=follower.log.epochs.latest,
                end_offset=follower.log_end_offset,
            )
            if isinstance(found, GoOn):
                return
            self.rounds += 1
            end = follower.log_end_offset
            if isinstance(found, Parted):
                cut = cut_where_parted(follower.log.epochs, end, found)
            else:
                cut = cut_out_of_range(end, found)
            self.cluster[node].do(follower.cut, cut)
            self.cuts += 1
        raise AssertionError("they do not agree")

    def check(self, partition: Partition) -> None:
        log = partition.log
        fresh = snapshots.new_machine(log)
        aborted = []
        epochs: list[tuple[int, int]] = []
        for segment, position, header in log.headers_from(0, log.log_end_offset):
            if not epochs or epochs[-1][0] != header.leader_epoch:
                epochs.append((header.leader_epoch, header.base_offset))
            completed = snapshots.replay(fresh, segment, position, header, 0)
            if completed is not None and completed.aborted:
                aborted.append(
                    (completed.producer_id, completed.first_offset, completed.last_offset)
                )
        assert known(partition.producers.states()) == known(fresh.states())
        # Whatever ended above the high watermark holds the end back as well, here as there.
        assert log.first_unstable_offset == fresh.first_unstable_offset
        told = [each[:3] for each in log.aborted_between(0, log.log_end_offset)]
        assert sorted(told) == sorted(aborted)
        assert list(zip(log.epochs.epochs, log.epochs.starts, strict=True)) == epochs


def play_histories(seeds: Sequence[int]) -> Histories:
    for seed in seeds:
        with World(f"histories {seed}") as world:
            told = Histories(world)
            world.run(told.run(120))
    return told


@pytest.mark.parametrize("seed", range(8))
def test_what_is_derived_from_a_log_is_cut_with_it(seed: int) -> None:
    play_histories([seed])


def test_the_histories_do_cut() -> None:
    """Else the test above would show nothing."""
    told = play_histories([random.Random(3).randrange(8)])
    assert told.copies > 10
    assert told.cuts > 3
