"""Transaction groups: many producers' transactions, one decision."""

from dataclasses import replace

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.runtime import encoding
from fencepost.txn.transactions import group_commit_machine
from fencepost.txn.transactions.commands import NEEDS_PRODUCER_ID, EndTransaction
from fencepost.txn.transactions.group_commit_commands import (
    DescribeDecision,
    DescribeGroup,
    GroupEnded,
    Identity,
    Refusal,
)
from fencepost.txn.transactions.group_commit_records import GroupDecided
from fencepost.txn.transactions.registry import CODEC
from support.added_scene import AddedScene

E = ErrorCode
DAY_MS = 86_400_000


def two_open(**settings: int) -> tuple[AddedScene, Identity, Identity]:
    scene = AddedScene(**settings)
    return scene, scene.opened("job::a"), scene.opened("job::b")


def decision(scene: AddedScene, number: int, group: str = "job"):
    return scene.do(DescribeDecision(group=group, number=number))


# -- one outcome for all --------------------------------------------------------------------------


@pytest.mark.parametrize(("commit", "phase"), [(True, "PrepareCommit"), (False, "PrepareAbort")])
def test_all_members_are_ended_by_one_batch_that_also_holds_the_decision(commit, phase) -> None:
    scene, a, b = two_open()
    batches = len(scene.log)
    ended = scene.end_group("job", 7, commit=commit, a=a, b=b)
    assert isinstance(ended, GroupEnded)
    assert (ended.is_new, ended.decision.commit, ended.decision.number) == (True, commit, 7)
    assert len(scene.log) == batches + 1
    kinds = [type(CODEC.decode(*row)).__name__ for row in scene.log[-1]]
    assert kinds == ["TransactionRecord", "TransactionRecord", "GroupDecided"]
    assert (scene.phase("job::a"), scene.phase("job::b")) == (phase, phase)
    assert [each.commit for each in scene.markers] == [commit, commit]


def test_members_own_ends_are_told_what_was_decided_for_them() -> None:
    """Librdkafka thinks that its transaction is open: its commit afterwards finds it committed."""
    scene, a, b = two_open()
    scene.end_group("job", 7, commit=True, a=a, b=b)
    assert scene.ends("job::a", a, commit=True) == a
    scene.finish()
    assert scene.ends("job::b", b, commit=True) == b
    assert scene.ends("job::b", b, commit=False) is E.invalid_txn_state


def test_a_member_of_the_newer_protocol_gets_its_next_epoch_when_it_asks() -> None:
    scene = AddedScene()
    a = scene.starts("job::a")
    scene.writes("job::a", a, version=2)
    scene.end_group("job", 1, commit=True, a=a)
    found = scene.machine.find("job::a")
    assert found is not None
    assert found.producer_epoch == a.producer_epoch + 1


@pytest.mark.parametrize("epoch", [32764, 32765, 32766])
def test_a_member_whose_epochs_run_out_is_ended_and_goes_on(epoch) -> None:
    """KAFKA-19367. The group's end draws no new id: its member does, when it asks how its transaction ended."""
    scene = AddedScene()
    a = Identity(scene.starts("job::a").producer_id, epoch)
    known = scene.machine.transactions["job::a"]
    scene.machine.transactions["job::a"] = replace(known, producer_epoch=epoch)
    scene.writes("job::a", a, version=2)
    assert scene.end_group("job", 1, commit=True, a=a).is_new
    scene.finish()
    asked = EndTransaction(
        transactional_id="job::a",
        producer_id=a.producer_id,
        producer_epoch=epoch,
        commit=True,
        bumps_epoch=True,
    )
    given = scene.do(asked)
    if epoch == 32766:
        assert given == NEEDS_PRODUCER_ID
        given = scene.do(replace(asked, fresh_producer_id=777))
        assert given == (777, 0)
    assert scene.writes("job::a", Identity(*given), version=2) is E.none


def test_an_end_without_members_decides_the_number() -> None:
    """A batch that wrote nothing commits, and a driver that gives up may close a number for good."""
    scene = AddedScene()
    assert scene.end_group("job", 3, commit=False).is_new
    late = scene.end_group("job", 3, commit=True, a=scene.opened("job::a"))
    assert (late.is_new, late.decision.commit) == (False, False)
    assert scene.phase("job::a") == "Ongoing"


# -- a number is decided once -----------------------------------------------------------------------


@pytest.mark.parametrize("wish", [True, False])
def test_a_second_end_of_a_number_answers_the_first_and_changes_nothing(wish) -> None:
    scene, a, b = two_open()
    first = scene.end_group("job", 7, commit=True, a=a, b=b)
    scene.finish()
    for member, identity in (("a", a), ("b", b)):
        assert scene.writes(f"job::{member}", identity) is E.none, "the next transactions are open"
    log = len(scene.log)
    again = scene.end_group("job", 7, commit=wish, a=a, b=b)
    assert again == GroupEnded(first.decision, is_new=False)
    assert len(scene.log) == log
    assert scene.phase("job::a") == "Ongoing", "a late end of one number never ends the next one"


def test_a_driver_that_died_asks_what_was_decided_at_another_coordinator() -> None:
    scene, a, b = two_open()
    scene.end_group("job", 7, commit=True, a=a, b=b)
    moved = scene.moved()
    found = decision(moved, 7)
    assert isinstance(found, GroupDecided)
    assert found.commit
    assert [each.member for each in found.members] == ["a", "b"]
    assert decision(moved, 8) == (False,)
    assert moved.end_group("job", 7, commit=False).is_new is False


def test_whenever_the_coordinator_dies_all_members_are_decided_or_none() -> None:
    """Every prefix of the log, batch by batch: there is no step in between."""
    scene, a, b = two_open()
    before = len(scene.log)
    scene.end_group("job", 7, commit=True, a=a, b=b)
    scene.finish()
    for batches in range(before, len(scene.log) + 1):
        moved = scene.moved(batches)
        decided = isinstance(decision(moved, 7), GroupDecided)
        phases = {moved.phase("job::a"), moved.phase("job::b")}
        assert decided == (batches > before)
        assert phases <= ({"PrepareCommit", "CompleteCommit"} if decided else {"Ongoing"})
        if decided:
            assert moved.end_group("job", 7, commit=True, a=a, b=b).is_new is False
        else:
            assert moved.end_group("job", 7, commit=True, a=a, b=b).is_new is True


# -- refused whole ------------------------------------------------------------------------------------


def _other_id(identity: Identity) -> Identity:
    return Identity(identity.producer_id + 50, identity.producer_epoch)


def test_one_member_that_cannot_be_ended_keeps_all_from_being_ended() -> None:
    scene, a, b = two_open()
    idle = scene.starts("job::idle")
    rows = [
        ({"a": a, "stranger": b}, E.invalid_producer_id_mapping, "job::stranger"),
        ({"a": a, "b": _other_id(b)}, E.invalid_producer_id_mapping, "member b of job"),
        ({"a": a, "b": Identity(b[0], b[1] + 1)}, E.producer_fenced, "member b of job"),
        ({"a": a, "idle": idle}, E.invalid_txn_state, "member idle of job"),
    ]
    log = len(scene.log)
    for members, code, said in rows:
        for commit in (True, False):
            refusal = scene.end_group("job", 7, commit=commit, **members)
            assert isinstance(refusal, Refusal)
            assert refusal.code is code
            assert said in refusal.message
    assert len(scene.log) == log
    assert decision(scene, 7) == (False,)
    assert scene.end_group("job", 7, commit=True, a=a, b=b).is_new, "and the right ones still can"


def test_a_member_that_was_fenced_meanwhile_keeps_the_old_end_out() -> None:
    """The driver died, its members were started anew: what it had sent before comes too late."""
    scene, a, b = two_open()
    successor = scene.starts("job::a")
    assert successor.producer_epoch > a.producer_epoch
    refusal = scene.end_group("job", 7, commit=True, a=a, b=b)
    assert refusal.code is E.producer_fenced
    assert scene.phase("job::b") == "Ongoing"


def test_a_member_whose_time_was_up_keeps_all_from_being_committed() -> None:
    scene, a, b = two_open()
    scene.pass_ms(30_000)
    c = scene.opened("job::c")
    scene.pass_ms(31_000)
    refusal = scene.end_group("job", 7, commit=True, a=a, b=b, c=c)
    assert refusal.code is E.producer_fenced
    assert scene.phase("job::c") == "Ongoing"


def test_members_whose_decision_does_not_fit_one_batch_are_refused() -> None:
    """Two batches could be cut apart by a crash."""
    scene = AddedScene()
    names = [f"{number:05}-{'x' * 900}" for number in range(700)]
    members = {name: scene.opened(f"job::{name}") for name in names}
    refusal = scene.end_group("job", 1, commit=True, **members)
    assert refusal.code is E.message_too_large
    assert scene.phase(f"job::{names[0]}") == "Ongoing"
    fewer = {name: members[name] for name in names[:300]}
    assert scene.end_group("job", 1, commit=True, **fewer).is_new


def test_the_limits_of_a_batch_are_the_shards() -> None:
    assert group_commit_machine.BATCH_BYTES_MAX == encoding.BATCH_BYTES_MAX
    assert group_commit_machine.RECORD_OVERHEAD == encoding.RECORD_OVERHEAD


def test_a_group_shows_its_members_and_no_others() -> None:
    scene, a, b = two_open()
    scene.opened("job")
    scene.opened("jobs::x")
    scene.end_group("job", 1, commit=True, a=a)
    members = scene.do(DescribeGroup(group="job")).members
    assert members == (("a", *a, "PrepareCommit"), ("b", *b, "Ongoing"))


# -- what is remembered ---------------------------------------------------------------------------------


def test_only_so_many_numbers_are_remembered_and_lower_ones_never_decided_again() -> None:
    scene = AddedScene(transaction_group_decisions_max=3)
    for number in (1, 2, 5, 6):
        assert scene.end_group("job", number, commit=True).is_new
    for each in (scene, scene.moved()):
        assert decision(each, 1) == (True,), "forgotten, and it says so"
        assert each.end_group("job", 1, commit=True).code is E.invalid_txn_state
        assert decision(each, 0) == (True,)
        assert isinstance(decision(each, 2), GroupDecided)
        view = each.do(DescribeGroup(group="job"))
        assert [one.number for one in view.decisions] == [2, 5, 6]


def test_numbers_in_between_may_be_decided_while_there_is_room_for_them() -> None:
    scene = AddedScene(transaction_group_decisions_max=3)
    for number in (10, 20):
        scene.end_group("job", number, commit=True)
    assert scene.end_group("job", 5, commit=True).is_new
    assert scene.end_group("job", 3, commit=True).code is E.invalid_txn_state, (
        "full, and it is lower"
    )
    assert scene.end_group("job", 15, commit=True).is_new
    assert decision(scene, 5) == (True,)
    newest = scene.do(DescribeGroup(group="job", decisions_max=2))
    assert [each.number for each in newest.decisions] == [15, 20]


def test_decisions_with_many_members_are_forgotten_sooner(monkeypatch) -> None:
    """A thousand numbers of a thousand members each would be a hundred megabytes."""
    monkeypatch.setattr(group_commit_machine, "MEMBERS_KEPT_MAX", 3)
    scene, a, b = two_open()
    scene.end_group("job", 1, commit=True, a=a, b=b)
    scene.finish()
    c, d = scene.opened("job::c"), scene.opened("job::d")
    assert scene.end_group("job", 2, commit=True, c=c, d=d).is_new
    for each in (scene, scene.moved()):
        assert decision(each, 1) == (True,)
        assert isinstance(decision(each, 2), GroupDecided)


def test_of_a_group_that_nobody_uses_the_highest_number_is_left_for_long() -> None:
    """A weekly job died before it noted its last batch: to be told "undecided" it would write all of it again."""
    scene, a, b = two_open()
    for number in (3, 5):
        scene.end_group("job", number, commit=False)
    scene.end_group("job", 7, commit=True, a=a, b=b)
    scene.finish()
    scene.pass_ms(8 * DAY_MS)
    for each in (scene, scene.moved()):
        left = decision(each, 7)
        assert isinstance(left, GroupDecided) and left.commit
        assert [member.member for member in left.members] == ["a"], "whose it was"
        assert [decision(each, number) for number in (3, 4, 5)] == [(True,)] * 3
        assert each.end_group("job", 5, commit=True).code is E.invalid_txn_state
        assert not each.end_group("job", 7, commit=True).is_new
        assert decision(each, 8) == (False,)
    before = len(scene.log)
    scene.pass_ms(DAY_MS)
    assert len(scene.log) == before, "what is left is not written again and again"


def test_a_group_that_nobody_has_used_for_very_long_is_forgotten() -> None:
    scene = AddedScene(transaction_group_expiration_ms=30 * DAY_MS)
    scene.end_group("job", 1, commit=True)
    scene.pass_ms(29 * DAY_MS)
    scene.end_group("busy", 1, commit=True)
    assert isinstance(decision(scene, 1), GroupDecided)
    scene.pass_ms(2 * DAY_MS)
    assert decision(scene, 1) == (False,)
    assert isinstance(decision(scene, 1, "busy"), GroupDecided)
    assert sorted(scene.moved().groups.groups) == ["busy"]


def test_members_that_are_not_shown_are_counted() -> None:
    """A job that ended only those that it was shown would commit in part."""
    scene = AddedScene()
    for name in "cab":
        scene.opened(f"job::{name}")
    view = scene.do(DescribeGroup(group="job", decisions_max=0, members_max=2))
    assert [each.member for each in view.members] == ["a", "b"]
    assert view.members_left_out == 1
    assert scene.do(DescribeGroup(group="job")).members_left_out == 0


# -- notes ------------------------------------------------------------------------------------------------


def test_a_note_is_kept_with_its_decision_and_told_by_whoever_coordinates_next() -> None:
    scene, a, b = two_open()
    scene.end_group("job", 7, commit=True, note="of seven", a=a)
    late = scene.end_group("job", 7, commit=True, note="of another run", b=b)
    assert (late.is_new, late.decision.note) == (False, "of seven")
    scene.finish()
    for each in (scene, scene.moved()):
        assert decision(each, 7).note == "of seven"
    scene.pass_ms(8 * DAY_MS)
    assert decision(scene.moved(), 7).note == "of seven", "what is left for long has it, too"


def test_what_a_build_without_notes_left_of_a_decision_is_read() -> None:
    """It read over the note, and wrote what is left of the idle group without it."""
    scene, a, b = two_open()
    scene.end_group("job", 7, commit=True, note="of seven", a=a, b=b)
    left = replace(decision(scene, 7).remnant(6), note="")
    scene.log.append([left.encode()])
    assert decision(scene.moved(), 7) == left
    scene.log[-1] = [replace(left, decided_ms=0).encode()]
    with pytest.raises(AssertionError, match="is decided again"):
        scene.moved()
