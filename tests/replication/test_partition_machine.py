"""A partition's watermarks and answers: scenes first, then any order of events."""

import dataclasses

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, LeaderEpoch, PartitionEpoch
from fencepost.cluster.metadata.image import PartitionState
from fencepost.replication.isr_machine import Proposal
from fencepost.replication.partition_machine import PartitionMachine, Role
from hypothesis import given, settings
from hypothesis import strategies as st

ME = 1
LAG = 30_000


def state(
    *isr: int, leader: int = ME, epoch: int = 1, version: int = 1, replicas: tuple[int, ...] = ()
) -> PartitionState:
    return PartitionState(
        partition=0,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(version),
        replicas=tuple(BrokerId(b) for b in replicas or isr),
        isr=tuple(BrokerId(b) for b in isr),
    )


def machine(
    end: int = 0, hw: int = 0, min_isr: int = 1, *, sync_counts: bool = True
) -> PartitionMachine:
    made = PartitionMachine(ME, log_end=end, durable_end=end, high_watermark=hw)
    made.min_insync_replicas, made.sync_counts = min_isr, sync_counts
    return made


def leading(*isr: int, end: int = 0, hw: int = 0, min_isr: int = 1, sync_counts: bool = True,
            replicas: tuple[int, ...] = ()) -> PartitionMachine:  # fmt: skip
    made = machine(end, hw, min_isr, sync_counts=sync_counts)
    made.on_image(state(*isr, replicas=replicas), 0)
    return made


def ack(
    made: PartitionMachine, broker: int, end: int, *, durable: int | None = None, at: int = 0
) -> bool:
    return made.on_ack(
        broker,
        log_end=end,
        counted_end=end if durable is None else durable,
        may_join=True,
        now_ms=at,
    )


# -- alone -------------------------------------------------------------------------------------------


def test_alone_what_is_synced_is_committed() -> None:
    one = leading(ME)
    assert not one.on_append(10, 0)
    assert one.outcome_of(9) is None
    assert one.on_durable(10, 0)
    assert one.high_watermark == 10
    assert one.outcome_of(9) is ErrorCode.none


def test_alone_without_sync_what_is_written_is_committed() -> None:
    one = leading(ME, sync_counts=False)
    assert one.on_append(10, 0)
    assert one.high_watermark == 10


def test_a_restarted_leader_of_one_commits_what_recovery_found() -> None:
    """The checkpointed watermark lags; the log was checked and synced."""
    one = machine(end=50, hw=20)
    assert one.on_image(state(ME), 0) == (True, True)
    assert one.high_watermark == 50


def test_a_change_of_policy_counts_at_once() -> None:
    one = leading(ME)
    one.on_append(10, 0)
    one.sync_counts = False
    assert one.look_again(now_ms=0)
    assert one.high_watermark == 10
    one.sync_counts = True
    assert not one.look_again(now_ms=0)
    assert one.high_watermark == 10  # never back


def test_a_minimum_above_the_replicas_means_all_of_them() -> None:
    """Kafka's effectiveMinIsr: a topic of one replica with min.insync.replicas=2 still takes writes."""
    one = leading(ME, min_isr=2)
    one.on_append(1, 0)
    assert one.on_durable(1, 0)
    assert one.check_append(-1) is ErrorCode.none


# -- with others -------------------------------------------------------------------------------------


def test_the_watermark_is_what_all_in_sync_have() -> None:
    three = leading(ME, 2, 3)
    three.on_append(10, 0)
    three.on_durable(10, 0)
    assert not ack(three, 2, 10)
    assert ack(three, 3, 7)
    assert three.high_watermark == 7


def test_what_a_follower_has_not_synced_does_not_count() -> None:
    two = leading(ME, 2)
    two.on_append(10, 0)
    two.on_durable(10, 0)
    assert ack(two, 2, 10, durable=4)
    assert two.high_watermark == 4


def test_the_leaders_own_sync_is_waited_for_too() -> None:
    two = leading(ME, 2)
    two.on_append(10, 0)
    assert not ack(two, 2, 10)
    assert two.on_durable(10, 0)


def test_below_the_minimum_nothing_is_committed() -> None:
    two = leading(ME, replicas=(ME, 2, 3), min_isr=2)
    two.on_append(10, 0)
    assert not two.on_durable(10, 0)
    assert two.check_append(-1) is ErrorCode.not_enough_replicas
    assert two.check_append(1) is ErrorCode.none


def test_a_write_whose_isr_shrank_meanwhile_is_told() -> None:
    two = leading(ME, 2, replicas=(ME, 2, 3), min_isr=2)
    two.on_append(10, 0)
    two.on_durable(10, 0)
    ack(two, 2, 10)
    two.on_image(state(ME, version=2, replicas=(ME, 2, 3)), 0)
    assert two.outcome_of(9) is ErrorCode.not_enough_replicas_after_append


def test_a_new_leader_waits_to_hear_from_its_followers() -> None:
    two = machine(end=10, hw=5)
    assert two.on_image(state(ME, 2), 0) == (True, False)
    assert two.high_watermark == 5
    assert ack(two, 2, 8)
    assert two.high_watermark == 8


def test_one_that_keeps_pace_is_waited_for_before_it_is_in() -> None:
    """Else under a steady load it would chase the watermark for ever."""
    one = leading(ME, replicas=(ME, 2))
    one.on_append(10, 0)
    ack(one, 2, 10)
    one.on_append(20, 5)
    one.on_durable(20, 5)
    assert one.high_watermark == 10
    assert one.joiner() == 2


def test_one_far_behind_is_not_waited_for() -> None:
    one = leading(ME, replicas=(ME, 2))
    one.on_append(10, LAG * 2)
    ack(one, 2, 3, at=LAG * 2)
    assert one.on_durable(10, LAG * 2)
    assert one.high_watermark == 10
    assert one.joiner() is None


def test_one_must_reach_the_leaders_epoch_to_join() -> None:
    """Committed data may lie between the watermark and the end where this leader began."""
    one = machine(end=10, hw=4)
    one.on_image(state(ME, 3, replicas=(ME, 2, 3)), 0)
    ack(one, 2, 9)
    assert one.joiner() is None
    ack(one, 2, 10)
    assert one.joiner() == 2


def test_one_that_is_fenced_may_not_join() -> None:
    one = leading(ME, replicas=(ME, 2))
    one.on_ack(2, log_end=0, counted_end=0, may_join=False, now_ms=0)
    assert one.joiner() is None


def test_one_that_stops_is_waited_for_no_longer_once_its_stream_has_ended() -> None:
    """It left the ISR and may come in again; then its stream ends, and nothing is written that would ask again."""
    three = leading(ME, 2, 3)
    three.on_append(10, 0)
    three.on_durable(10, 0)
    ack(three, 2, 0)
    ack(three, 3, 10)
    _, moved = three.on_image(state(ME, 3, replicas=(ME, 2, 3), version=2), 0)
    assert not moved
    assert three.on_may_join(2, 0, may_join=False)
    assert three.high_watermark == 10


def test_one_that_may_be_elected_has_to_delete_before_it_is_said_that_records_are_deleted() -> None:
    """It has left the ISR, as its disk is full, and can't follow. Deleted records came back when it was elected."""
    three = leading(ME, 2, 3)
    for broker in (2, 3):
        ack(three, broker, 0)
        three.replicas[broker].log_start = 7
    three.replicas[3].log_start = 0
    three.on_may_join(3, 0, may_join=False)
    without = dataclasses.replace(state(ME, 2, replicas=(ME, 2, 3), version=2), elr=(BrokerId(3),))
    three.on_image(without, 0)
    assert three.low_watermark(7) == 0
    three.on_image(state(ME, 2, replicas=(ME, 2, 3), version=3), 0)
    assert three.low_watermark(7) == 7


def test_laggards_leave_after_the_limit() -> None:
    three = leading(ME, 2, 3)
    three.on_append(10, 0)
    ack(three, 2, 10, at=100)
    assert three.tick(LAG) is None
    assert three.tick(LAG + 1) == Proposal(isr=(ME, 2), leader_epoch=1, partition_epoch=1)
    assert three.tick(LAG + 2) is None  # one change at a time


@pytest.mark.parametrize("asked_anew", [False, True])
def test_one_whose_disk_hangs_in_a_sync_leaves_though_it_has_written_everything(
    asked_anew: bool,
) -> None:
    two = leading(ME, 2, replicas=(ME, 2))
    two.on_append(10, 0)
    two.on_durable(10, 0)
    ack(two, 2, 10, durable=4)
    if asked_anew:  # nothing is appended after it: clients of an idempotent producer only try again
        ack(two, 2, 10, durable=4, at=20_000)
    assert two.tick(LAG) is None
    left = two.tick(LAG + 1)
    assert left is not None and left.isr == (ME,)


def test_one_whose_syncs_take_long_keeps_pace_for_as_long_as_they_end() -> None:
    two = leading(ME, 2, replicas=(ME, 2))
    step = LAG // 3
    for turn in range(20):  # what was synced in one turn is all that there was a turn before
        two.on_append(10 * turn + 10, turn * step)
        ack(two, 2, 10 * turn + 10, durable=10 * turn, at=turn * step)
        assert two.tick(turn * step) is None


def test_one_always_a_little_behind_keeps_pace() -> None:
    """Replica.updateFetchStateOrThrow: it has what there was when it last spoke."""
    two = leading(ME, 2)
    for turn in range(1, 200):
        two.on_append(turn * 10, turn * 1000)
        ack(two, 2, turn * 10 - 5, at=turn * 1000)
        assert two.tick(turn * 1000) is None


def test_a_follower_takes_the_leaders_word_as_far_as_it_has_the_data() -> None:
    one = machine(end=10, hw=3)
    one.on_image(state(2, ME, leader=2), 0)
    assert one.role is Role.FOLLOWER
    assert one.on_leader_high_watermark(20)
    assert one.high_watermark == 10
    one.on_truncated(8, 8)
    assert one.high_watermark == 8
    assert not one.on_leader_high_watermark(5)


def test_lost_leadership_is_told_to_who_waits() -> None:
    one = leading(ME)
    one.on_append(10, 0)
    one.on_image(state(2, leader=2, epoch=2, version=2), 0)
    assert one.outcome_of(9) is ErrorCode.not_leader_or_follower
    assert one.check_append(1) is ErrorCode.not_leader_or_follower


def test_a_new_epoch_of_the_same_leader_begins_at_its_end() -> None:
    one = leading(ME)
    one.on_append(10, 0)
    assert one.on_image(state(ME, epoch=2, version=2), 0) == (True, False)
    assert one.epoch_start_offset == 10


def test_all_that_is_committed_is_everywhere_only_while_every_replica_is_in_sync() -> None:
    """What compaction forgets, a replica that lacks it could never copy any more."""
    assert leading(ME).is_everywhere
    assert leading(ME, 2).is_everywhere
    assert not leading(ME, replicas=(ME, 2)).is_everywhere
    assert not machine().is_everywhere, "no image has come yet"
    one = leading(ME, 2)
    one.on_image(state(ME, 2, version=2, replicas=(ME, 2, 3)), 0)
    assert not one.is_everywhere, "a move adds one"
    one.on_image(state(2, leader=2, epoch=2, version=3, replicas=(ME, 2)), 0)
    assert not one.is_everywhere, "followers clean, too, and may lead next"


@pytest.mark.parametrize(("epoch", "version"), [(0, 5), (1, 0)])
def test_an_old_image_is_not_followed(epoch: int, version: int) -> None:
    one = leading(ME)
    one.on_image(state(2, leader=2, epoch=epoch, version=version), 0)
    assert one.role is Role.LEADER


# -- answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, "none"), (5, "none"), (4, "fenced_leader_epoch"), (6, "unknown_leader_epoch")],
)
def test_leader_epochs_are_compared_as_kafka_does(asked: int, answer: str) -> None:
    one = machine()
    one.on_image(state(ME, epoch=5), 0)
    assert one.check_leader_epoch(asked) is ErrorCode[answer]


@pytest.mark.parametrize(("unstable", "stable"), [(None, 10), (3, 3), (10, 10), (15, 10)])
def test_the_stable_end_is_below_what_is_undecided(unstable: int | None, stable: int) -> None:
    one = leading(ME, end=20)
    one.high_watermark = 10
    assert one.last_stable_offset(unstable) == stable


# -- any order ---------------------------------------------------------------------------------------

events = st.tuples(
    st.sampled_from(["append", "sync", "ack", "ack", "join", "tick", "log", "answer", "lead"]),
    st.integers(2, 3),
    st.integers(0, 5),
    st.booleans(),
)


class World:
    """A leader, two followers whose real ends are kept apart, and a metadata log."""

    def __init__(self, min_isr: int, *, sync_counts: bool) -> None:
        self.machine = leading(ME, 2, replicas=(ME, 2, 3), min_isr=min_isr, sync_counts=sync_counts)
        self.logged = state(ME, 2, replicas=(ME, 2, 3))
        self.now = 0
        self.ends = {2: (0, 0), 3: (0, 0)}  # what each follower has, and has synced
        self.sent: Proposal | None = None

    def step(self, kind: str, who: int, much: int, flag: bool) -> None:
        made = self.machine
        self.now += much * 6_000 * flag
        match kind:
            case "append":
                made.on_append(made.log_end + much, self.now)
            case "sync":
                made.on_durable(max(made.durable_end, made.log_end - much), self.now)
            case "ack":
                end, durable = self.ends[who]
                end = min(made.log_end, end + much)
                self.ends[who] = (end, end if flag else durable)
                made.on_ack(
                    who, log_end=end, counted_end=self.ends[who][1], may_join=True, now_ms=self.now
                )
            case "join":
                joining = made.joiner()
                if joining is not None:
                    self.sent = made.isr.expand(joining)
            case "tick":
                self.sent = made.tick(self.now) or self.sent
            case "log":
                if self.sent and self.sent.partition_epoch == self.logged.partition_epoch:
                    isr = tuple(BrokerId(b) for b in self.sent.isr)
                    version = PartitionEpoch(self.logged.partition_epoch + 1)
                    self.logged = dataclasses.replace(self.logged, isr=isr, partition_epoch=version)
            case "answer":
                made.on_image(self.logged, self.now)
            case "lead":  # elected again, by the log's own ISR
                epoch = LeaderEpoch(self.logged.leader_epoch + 1)
                version = PartitionEpoch(self.logged.partition_epoch + 1)
                self.logged = dataclasses.replace(
                    self.logged, leader_epoch=epoch, partition_epoch=version
                )


@given(st.lists(events, min_size=20, max_size=60), st.integers(1, 3), st.booleans())
@settings(max_examples=200)
@pytest.mark.slow
def test_nothing_is_committed_that_an_in_sync_replica_lacks(
    steps: list[tuple[str, int, int, bool]], min_isr: int, sync_counts: bool
) -> None:
    world = World(min_isr, sync_counts=sync_counts)
    made = world.machine
    for step in steps:
        before = made.high_watermark
        world.step(*step)
        assert made.high_watermark >= before
        if made.high_watermark == before:
            continue
        assert len(made.isr.isr) >= made.effective_min_isr
        # Whoever the metadata log may elect has it: that is what a commit means.
        for broker in set(world.logged.isr) | made.isr.maximal_isr:
            end, durable = (made.log_end, made.durable_end) if broker == ME else world.ends[broker]
            assert made.high_watermark <= (durable if sync_counts else end)
