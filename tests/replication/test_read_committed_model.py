"""What may a read_committed reader see? A replica under appends, markers, cuts, deletions and restarts, against a list.

The replica leads or follows by turns. After every step its last stable offset, and what a client makes of its batches
and aborted transactions, are compared with a plain list of what was written.
"""

from typing import Final, NamedTuple, TypeVar

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import BrokerId, LeaderEpoch
from fencepost.cluster.wire.batch import splice
from fencepost.cluster.wire.records import control_batch
from fencepost.replication.divergence_machine import Cut
from fencepost.replication.partition import Appended, Partition
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replica_helpers import ME, Metadata, Node, batch, topic_of
from support.read_committed import seen_by_a_client

OTHER: Final = BrokerId(2)
PLAIN: Final = 0  # a producer that is in no transaction
SMALL_SEGMENTS: Final = {"flush.policy": "os", "internal.segment.bytes": "400"}
T = TypeVar("T")


class Row(NamedTuple):
    """A batch of the list: data, or (`commit` is not None) a marker."""

    offset: int
    pid: int
    values: tuple[bytes, ...]
    commit: bool | None = None

    @property
    def end(self) -> int:
        return self.offset + (1 if self.commit is not None else len(self.values))


class Model:
    """A log as a list, and what follows from it by looking at all of it each time."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.start = self.end = 0
        self.high_watermark = 0

    def append(self, row: Row) -> None:
        self.rows.append(row)
        self.end = row.end

    def transactions(self, since: int = 0) -> list[tuple[int, int, int | None, bool]]:
        """Producer, first offset, the marker's offset, whether it was committed; in the order of the log."""
        found: list[tuple[int, int, int | None, bool]] = []
        open_at: dict[int, int] = {}
        for row in self.rows:
            if row.end <= since:
                continue
            if row.commit is None:
                if row.pid != PLAIN:
                    open_at.setdefault(row.pid, row.offset)
            elif row.pid in open_at:
                found.append((row.pid, open_at.pop(row.pid), row.offset, row.commit))
        return found + [(pid, first, None, False) for pid, first in open_at.items()]

    def last_stable_offset(self, since: int = 0) -> int:
        unstable = [
            first
            for _, first, marker, _ in self.transactions(since)
            if marker is None or marker >= self.high_watermark
        ]
        if not unstable:
            return self.high_watermark
        return min(max(min(unstable), self.start), self.high_watermark)

    def visible(self, start: int, last_stable_offset: int) -> list[bytes]:
        committed = {
            (pid, offset)
            for pid, first, marker, is_committed in self.transactions()
            if is_committed and marker is not None
            for offset in range(first, marker)
        }
        return [
            value
            for row in self.rows
            if row.commit is None
            for offset, value in enumerate(row.values, row.offset)
            if start <= offset < last_stable_offset
            and (row.pid == PLAIN or (row.pid, row.offset) in committed)
        ]

    def cut(self, offset: int) -> None:
        self.rows = [row for row in self.rows if row.end <= offset]
        self.end = offset
        self.start = min(self.start, offset)
        self.high_watermark = min(self.high_watermark, offset)


class Replica:
    """The system: one partition of a real manager on a simulated disk."""

    def __init__(self) -> None:
        self.world = World(1)
        self.metadata = Metadata(topic_of("orders"), configs={"orders": SMALL_SEGMENTS})
        self.model = Model()
        self.sequences: dict[int, int] = {}
        self.number = 0
        self.epoch = 1
        self.node: Node
        self.start()

    def start(self) -> None:
        env = self.world.restart("a")
        self.node = Node(env, self.metadata)
        self.world.run(self.world.on(env, self.node.start()))

    @property
    def partition(self) -> Partition:
        return self.node.partition()

    def lead_by(self, leader: BrokerId) -> None:
        """Another term. Our high watermark is what we know; a leader alone commits what it has."""
        self.epoch += 1
        isr = (ME,) if leader == ME else (ME, OTHER)
        self.metadata.change(
            self.node.manager, "orders", leader=leader, isr=isr, replicas=isr,
            leader_epoch=LeaderEpoch(self.epoch),
        )  # fmt: skip
        if leader == ME:
            self.model.high_watermark = self.model.end

    # -- steps: each does the same to both -------------------------------------------------------

    def data(self, pid: int, count: int) -> None:
        values = [f"{self.number}.{each}".encode() for each in range(count)]
        self.number += 1
        sequence = self.sequences.get(pid, 0)
        self.sequences[pid] = sequence + count
        more = {} if pid == PLAIN else {"pid": pid, "sequence": sequence, "transactional": True}
        self._append(batch(*values, **more), Row(self.model.end, pid, tuple(values)))

    def marker(self, pid: int, *, commit: bool) -> None:
        written = control_batch(
            commit=commit, producer_id=pid, producer_epoch=0, coordinator_epoch=0, timestamp=5
        )
        self._append(written, Row(self.model.end, pid, (), commit))

    def _append(self, written: bytearray, row: Row) -> None:
        partition, model = self.partition, self.model
        if partition.is_leader:
            done = partition.append_as_leader(
                written, required_acks=1, now_ms=5, origin_client=False
            )
            assert isinstance(done, Appended) and done.first_offset == row.offset, done
        else:
            splice(written, 0, row.offset, self.epoch)
            partition.append_as_follower(written, self.epoch)
        model.append(row)
        if partition.is_leader:
            model.high_watermark = model.end

    def commit(self, share: float) -> None:
        """A follower hears how far its leader has committed."""
        if not self.partition.is_leader:
            model = self.model
            known = model.high_watermark
            ends = [known] + [row.end for row in model.rows if row.end > known]
            model.high_watermark = ends[round(share * (len(ends) - 1))]
            self.partition.follow_leader(model.high_watermark, model.start)

    def cut(self, batches: int) -> None:
        """The next leader lacks the last ones."""
        model = self.model
        if self.partition.is_leader:
            self.lead_by(OTHER)
        places = [row.offset for row in model.rows if row.offset >= model.start]
        if not places:
            return
        at = places[-min(batches, len(places))]
        self.partition.cut(Cut(at))
        model.cut(at)
        self.sequences = {
            pid: sum(len(row.values) for row in model.rows if row.pid == pid)
            for pid in self.sequences
        }

    def delete(self, share: float) -> None:
        model = self.model
        model.start += round((model.high_watermark - model.start) * share)
        if self.partition.is_leader:
            assert self.partition.delete_records(model.start) == model.start
        else:
            self.partition.follow_leader(model.high_watermark, model.start)

    def retain(self) -> None:
        """Whole segments go, below the high watermark."""
        log = self.partition.log
        self.model.start = max(
            self.model.start, *(base for base in log.bases if base <= self.model.high_watermark)
        )
        log.delete_records_before(self.model.start)

    def stop(self) -> None:
        self.world.run(self.world.on(self.node.env, self.node.manager.stop()))
        self._again()

    def kill(self) -> None:
        self.world.kill("a")
        self._again()

    def _again(self) -> None:
        """What a checkpoint did not have is told anew: a follower's high watermark, and where the log begins."""
        self.start()
        partition, model = self.partition, self.model
        assert partition.log_end_offset == model.end
        if partition.is_leader:
            model.high_watermark = model.end
            model.start = min(model.start, partition.log_start_offset)
        else:
            assert partition.high_watermark <= model.high_watermark
            partition.follow_leader(model.high_watermark, model.start)
        assert partition.log_start_offset == model.start

    # -- the comparison --------------------------------------------------------------------------

    def check(self) -> None:
        partition, model = self.partition, self.model
        assert partition.high_watermark == model.high_watermark
        stable = partition.last_stable_offset
        # A transaction all of whose records were deleted holds up nobody once the log was read anew.
        assert stable in (model.last_stable_offset(), model.last_stable_offset(since=model.start))
        for start in {model.start, (model.start + model.high_watermark) // 2}:
            assert seen_by_a_client(partition, start, max_bytes=200) == model.visible(start, stable)


SHARES = st.sampled_from([0.0, 0.3, 0.7, 1.0])
PIDS = st.integers(1, 3)
STEPS = st.one_of(
    st.tuples(st.just("data"), st.integers(PLAIN, 3), st.integers(1, 3)),
    st.tuples(st.just("data"), PIDS, st.integers(1, 3)),
    st.tuples(st.just("marker"), PIDS, st.booleans()),
    st.tuples(st.just("marker"), PIDS, st.booleans()),
    st.tuples(st.just("commit"), SHARES),
    st.tuples(st.just("cut"), st.integers(1, 4)),
    st.tuples(st.just("delete"), SHARES),
    st.tuples(st.sampled_from(["retain", "stop", "kill", "lead", "follow"])),
)


def play(replica: Replica, step: tuple[object, ...]) -> None:
    match step:
        case ("data", int(pid), int(count)):
            replica.data(pid, count)
        case ("marker", int(pid), bool(commit)):
            replica.marker(pid, commit=commit)
        case ("commit", float(share)):
            replica.commit(share)
        case ("cut", int(batches)):
            replica.cut(batches)
        case ("delete", float(share)):
            replica.delete(share)
        case ("retain",):
            replica.retain()
        case ("stop",):
            replica.stop()
        case ("kill",):
            replica.kill()
        case ("lead",):
            replica.lead_by(ME)
        case ("follow",):
            replica.lead_by(OTHER)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40))
@example(  # a follower is cut behind what it has committed: a marker there still counts
    [
        ("follow",), ("data", 1, 1), ("marker", 1, True), ("data", PLAIN, 1), ("commit", 0.7),
        ("cut", 1), ("commit", 1.0),
    ]
)  # fmt: skip
@example(  # the middle of a transaction is cut away, and it goes on under the next leader
    [
        ("follow",), ("data", 1, 2), ("data", 1, 1), ("marker", 1, False), ("commit", 1.0), ("cut", 2),
        ("data", 1, 1), ("commit", 1.0), ("stop",), ("marker", 1, False), ("commit", 1.0),
    ]
)  # fmt: skip
@example(  # an abort that was cut away, and is a commit under the next leader
    [
        ("follow",),
        ("data", 1, 1),
        ("marker", 1, False),
        ("cut", 1),
        ("marker", 1, True),
        ("commit", 1.0),
    ]
)
@example(  # records of an open transaction are deleted: the stable offset is where the log begins
    [("data", 1, 3), ("data", PLAIN, 2), ("delete", 0.3), ("kill",), ("marker", 1, True)]
)
def test_a_reader_sees_what_a_plain_list_would_show(steps: list[tuple[object, ...]]) -> None:
    replica = Replica()
    with replica.world:
        replica.check()
        for step in steps:
            play(replica, step)
            replica.check()
