"""Every checker of a cluster's inside sees its anomaly in at most seven observations, and nothing in good ones."""

from dataclasses import replace

from fencepost.chaos.checkers.committed import Commits
from fencepost.chaos.checkers.epochs import Epochs
from fencepost.chaos.checkers.group_offsets import GroupOffsets
from fencepost.chaos.checkers.history import Anomaly
from fencepost.chaos.checkers.observations import (
    NOBODYS,
    Batch,
    Committed,
    Described,
    Held,
    Leads,
    Marker,
    Position,
    Told,
)
from fencepost.chaos.checkers.prefixes import Prefixes
from fencepost.chaos.checkers.producer_state import Known, check, replay

KEY = "t-0"


def rules(checker, *seen) -> list[str]:
    found: list[Anomaly] = []
    for each in seen:
        found += checker.see(each)
    return [anomaly.rule for anomaly in found]


def image(
    leader: int,
    epochs: tuple[int, int],
    *,
    isr=(1, 2, 3),
    elr=(),
    node=1,
    replicas=(1, 2, 3),
    adding=(),
) -> Described:
    leader_epoch, partition_epoch = epochs
    return Described(
        node, 1, KEY, leader, leader_epoch, partition_epoch, replicas, isr, elr, adding
    )


def leads(node: int, epoch: int, start: int = 0) -> Leads:
    return Leads(node, 1, KEY, epoch, start)


def shows(node: int, epoch: int, end: int, *, stable: int | None = None, isr=(1, 2)) -> Committed:
    stable = end if stable is None else stable
    return Committed(node, 1, KEY, epoch, end, stable, isr, min_isr=2)


# -- epochs --


def test_an_orderly_failover_is_no_anomaly() -> None:
    first, shrunk = image(1, (0, 0)), image(2, (1, 1), isr=(2, 3))
    on_another = [replace(first, node=2), replace(shrunk, node=2)]
    assert rules(Epochs(), first, leads(1, 0), shrunk, leads(2, 1), *on_another) == []


def test_two_leaders_of_one_epoch_are_an_anomaly() -> None:
    assert rules(Epochs(), leads(1, 4), leads(2, 4)) == ["two-leaders"]
    assert rules(Epochs(), image(1, (4, 7)), leads(2, 4)) == ["two-leaders"]


def test_a_partition_epoch_with_two_states_is_an_anomaly() -> None:
    other = image(1, (4, 7), isr=(1, 2), node=2)
    assert rules(Epochs(), image(1, (4, 7)), other) == ["two-images"]


def test_an_epoch_that_a_node_takes_back_is_an_anomaly() -> None:
    assert rules(Epochs(), image(1, (4, 7)), image(1, (4, 6))) == ["epoch-back"]
    restarted = replace(image(1, (4, 6)), life=2)
    assert rules(Epochs(), image(1, (4, 7)), restarted) == [], "it replays its metadata log"


def test_an_epoch_between_the_first_and_the_last_of_a_node_is_taken_back() -> None:
    first, last, back = (image(1, (epoch, epoch)) for epoch in (1, 5, 3))
    assert rules(Epochs(), first, last, back) == ["epoch-back"]
    by_leader = image(1, (4, 6))
    assert rules(Epochs(), first, last, by_leader) == ["epoch-back"], "of the leader's alone"


def test_a_leader_from_outside_isr_and_elr_is_an_anomaly() -> None:
    shrunk = image(1, (4, 7), isr=(1,), elr=(2,))
    assert rules(Epochs(), shrunk, image(3, (5, 8), isr=(3,))) == ["unclean"]
    assert rules(Epochs(), shrunk, image(2, (5, 8), isr=(2,))) == []


def test_the_change_that_ends_a_move_may_let_in_whoever_leads_then() -> None:
    """Seed 3001 of the cluster: 3 led, was to go, and let 4 in, which had lagged."""
    moving = image(3, (1, 5), replicas=(4, 2, 1, 3), isr=(1, 2, 3))
    done = image(4, (2, 6), replicas=(4, 2, 1), isr=(1, 2, 4))
    assert rules(Epochs(), moving, done) == []
    alone = image(4, (2, 6), replicas=(4, 2, 1), isr=(4,))
    assert rules(Epochs(), moving, alone) == ["unclean"]
    nobody_left = image(4, (2, 6), replicas=(4, 2, 1), isr=(1, 2, 4))
    stays = image(3, (1, 5), replicas=(4, 2, 1, 3), isr=(3,))
    assert rules(Epochs(), stays, nobody_left) == ["unclean"]


def test_a_replica_that_a_move_adds_leads_only_when_the_leader_has_let_it_in() -> None:
    moving = image(3, (1, 5), replicas=(4, 3, 1), isr=(1, 3), adding=(4,))
    assert rules(Epochs(), moving, image(4, (2, 6), replicas=(4, 1), isr=(1, 4))) == []
    alone = image(3, (1, 5), replicas=(4, 3), isr=(3,), adding=(4,))
    assert rules(Epochs(), alone, image(4, (2, 6), replicas=(4,), isr=(4,))) == []
    # 3 has died: 4 may have nothing yet.
    empty = image(4, (2, 6), replicas=(4, 3, 1), isr=(4,), adding=(4,))
    assert rules(Epochs(), moving, empty) == ["unclean"]
    leaderless = image(-1, (1, 5), replicas=(4, 3), isr=(3,), adding=(4,))
    assert rules(Epochs(), leaderless, image(4, (2, 6), replicas=(4,), isr=(4,))) == ["unclean"]


def test_what_a_person_has_given_up_by_name_may_be_led_by_anybody_where_nobody_leads() -> None:
    """Seed 126654 of the cluster: the one copy was on a disk that was replaced, and a move had added a replica by then."""
    leaderless = image(-1, (1, 5), replicas=(1, 4), isr=(4,), adding=(1,))
    elected = image(1, (2, 6), replicas=(1, 4), isr=(1,), adding=(1,))
    asked = Epochs()
    asked.given_up.add(KEY)
    assert rules(asked, leaderless, elected) == []
    another = Epochs()
    another.given_up.add("t-1")
    assert rules(another, leaderless, elected) == ["unclean"]
    assert rules(asked, image(2, (3, 8)), image(4, (4, 9), isr=(4,))) == ["unclean"], "2 led"


def test_an_image_that_says_something_else_of_a_move_or_a_failed_log_is_an_anomaly() -> None:
    here = image(1, (4, 7), adding=(3,))
    assert rules(Epochs(), here, image(1, (4, 7), node=2)) == ["two-images"]
    assert rules(Epochs(), here, replace(here, node=2, offline=(2,))) == ["two-images"]


# -- committed --


def test_a_watermark_that_a_leader_takes_back_is_an_anomaly() -> None:
    assert rules(Commits(), shows(1, 0, 5), shows(1, 0, 4)) == ["commit-back", "commit-back"]
    assert rules(Commits(), shows(1, 0, 5), shows(1, 0, 6, stable=3)) == ["commit-back"]
    assert rules(Commits(), shows(1, 0, 5), shows(2, 1, 4)) == [], "a new leader learns it again"


def test_what_an_epoch_committed_past_the_start_of_the_next_is_lost() -> None:
    assert rules(Commits(), shows(1, 0, 5), leads(2, 1, start=4)) == ["commit-lost"]
    assert rules(Commits(), leads(2, 1, start=4), shows(1, 0, 5)) == ["commit-lost"]
    assert rules(Commits(), shows(1, 0, 5), leads(2, 1, start=5)) == []


def test_a_commit_by_fewer_than_the_minimum_is_an_anomaly() -> None:
    alone = shows(1, 0, 6, isr=(1,))
    assert rules(Commits(), shows(1, 0, 5), alone) == ["under-min-isr"]
    assert rules(Commits(), shows(1, 0, 5), shows(1, 0, 5, isr=(1,))) == []
    first = shows(2, 1, 6, isr=(2,))
    assert rules(Commits(), shows(1, 0, 5), first) == ["under-min-isr"], "of its epoch"
    assert rules(Commits(), shows(1, 0, 6), first) == []


def test_a_watermark_that_a_client_sees_go_back_is_an_anomaly() -> None:
    told = Told("c", KEY, 3, 10)
    assert rules(Commits(), told, replace(told, high_watermark=9)) == ["commit-back"]
    assert rules(Commits(), told, Told("c", KEY, 4, 9)) == []


# -- prefixes --


def batch(offset: int, *, epoch: int = 0, crc: int = 7) -> Batch:
    return Batch(offset, offset + 1, epoch, crc, 70)


def held(node: int, batches: list[Batch], committed: int, *, counted: bool = False) -> Held:
    return Held(node, KEY, 0, batches, committed, counted)


LOG = [batch(0), batch(1), batch(2)]


def test_replicas_that_lag_or_hold_more_are_no_anomaly() -> None:
    behind, ahead = held(2, LOG[:1], 1), held(3, [*LOG, batch(3, epoch=1)], 3, counted=True)
    assert rules(Prefixes(), held(1, LOG, 3, counted=True), behind, ahead) == []


def test_a_replica_with_another_batch_below_its_watermark_has_diverged() -> None:
    other = [batch(0), batch(1, crc=8)]
    assert rules(Prefixes(), held(1, LOG, 3), held(2, other, 2)) == ["diverged"]
    assert rules(Prefixes(), held(1, LOG, 3), held(2, other, 1)) == [], "it may truncate that yet"


def test_a_member_of_the_isr_without_a_committed_batch_is_an_anomaly() -> None:
    assert rules(Prefixes(), held(1, LOG, 3), held(2, LOG[:2], 2)) == []
    lacks = held(2, LOG[:2], 2, counted=True)
    assert rules(Prefixes(), held(1, LOG, 3), lacks) == ["commit-missing"]


def test_what_nobody_has_of_what_is_committed_is_seen_by_the_gap() -> None:
    """No replica differs from another there."""
    gap, after = [batch(0), batch(2)], [*LOG, batch(5)]
    assert rules(Prefixes(), held(1, gap, 3)) == ["commit-missing"]
    assert rules(Prefixes(), held(1, LOG, 3), held(1, after, 6)) == ["commit-missing"]
    assert rules(Prefixes(), held(1, LOG, 4)) == ["commit-missing"], "it ends below"
    assert rules(Prefixes(), held(1, LOG, 3), held(1, LOG, 5)) == ["commit-missing"]


def test_what_was_deleted_from_the_beginning_is_no_gap() -> None:
    assert rules(Prefixes(), held(1, LOG, 3), Held(1, KEY, 5, [batch(5)], 6, counted=True)) == []
    within = Batch(3, 6, 0, 7, 70)
    begun = Held(1, KEY, 4, [within, batch(6)], 7, counted=True)
    assert rules(Prefixes(), held(1, LOG, 3), begun) == []
    assert rules(Prefixes(), Held(1, KEY, 9, [], 9, counted=True)) == []
    ahead = Held(1, KEY, 2, [batch(3)], 4, counted=True)
    assert rules(Prefixes(), ahead) == ["commit-missing"]


# -- producer state --


def produced(offset: int, sequence: int, *, epoch: int = 0) -> Batch:
    return Batch(offset, offset + 2, 0, 7, 70, 9, epoch, sequence)


def test_a_replay_keeps_five_batches_and_begins_anew_with_an_epoch() -> None:
    log = [produced(2 * place, 2 * place) for place in range(7)]
    assert replay(log)[9].batches[0] == (4, 5, 4, 5)
    assert replay([*log, produced(14, 0, epoch=1)])[9] == Known(1, ((0, 1, 14, 15),))


def test_a_marker_says_which_epoch_its_producer_has_until_compaction_has_emptied_it() -> None:
    before = produced(0, 0, epoch=4)
    fence = produced(2, -1, epoch=5)._replace(marker=Marker(commit=False, coordinator_epoch=3))
    assert replay([before, fence]) == {9: Known(5, ())}
    emptied = fence._replace(marker=Marker(commit=False, coordinator_epoch=NOBODYS))
    assert replay([before, emptied]) == replay([before]) == {9: Known(4, ((0, 1, 0, 1),))}


def test_a_producer_state_that_the_log_does_not_show_is_an_anomaly() -> None:
    log = [produced(0, 0), produced(2, 2)]
    right = {9: Known(0, ((0, 1, 0, 1), (2, 3, 2, 3)))}
    assert check(1, KEY, replay(log), right) == []
    assert [each.rule for each in check(1, KEY, replay(log[:1]), right)] == ["producer-state"]
    assert [each.rule for each in check(1, KEY, replay(log), {})] == ["producer-state"]


# -- group offsets --


def position(kind, offset: int) -> Position:
    return Position("g", kind, offset)


def test_a_group_that_finds_less_than_it_committed_is_an_anomaly() -> None:
    found_less = [position("ok", 1), position("ok", 2), position("read", 1)]
    assert rules(GroupOffsets(), *found_less) == ["offset-back"]
    assert rules(GroupOffsets(), position("ok", 1), position("read", 1)) == []


def test_a_commit_without_an_answer_may_come_late() -> None:
    late = [position("sent", 1), position("ok", 2), position("read", 1)]
    assert rules(GroupOffsets(), *late) == []


def test_a_position_that_was_refused_and_is_found_is_nobody_s() -> None:
    """Nor is one that nobody has sent."""
    refused = [position("ok", 1), position("sent", 2), position("refused", 2)]
    assert rules(GroupOffsets(), *refused, position("read", 2)) == ["phantom"]
    assert rules(GroupOffsets(), position("ok", 1), position("read", 2)) == ["phantom"]
    assert rules(GroupOffsets(), position("read", -1), position("read", 0)) == ["phantom"]


def test_a_position_may_be_found_before_its_commit_is_answered() -> None:
    found = [position("sent", 2), position("read", 2), position("ok", 2), position("read", 2)]
    assert rules(GroupOffsets(), *found) == []


def test_a_commit_that_was_answered_does_not_come_once_more() -> None:
    answered = [position("sent", 1), position("ok", 1), position("sent", 2), position("ok", 2)]
    assert rules(GroupOffsets(), *answered, position("read", 1)) == ["offset-back"]
    assert rules(GroupOffsets(), position("sent", 1), *answered, position("read", 1)) == []


def test_what_a_group_has_found_is_there_from_then_on() -> None:
    """A consumer may have gone on from 9, so nobody may find 5 again, though 9 was never acknowledged."""
    found = [position("ok", 5), position("sent", 9), position("read", 9)]
    assert rules(GroupOffsets(), *found, position("read", 5)) == ["offset-back"]
    older = [position("sent", 3), *found]
    assert rules(GroupOffsets(), *older, position("read", 3), position("read", 9)) == []
