from fencepost.cluster.controller.election_policy import Wish, changed
from fencepost.cluster.metadata.image import PartitionState
from fencepost.cluster.metadata.records import PartitionChange
from hypothesis import given
from hypothesis import strategies as st

BROKERS = (1, 2, 3)


def state(leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(0, leader, 5, 7, BROKERS, isr, elr)


def outcome(now: PartitionState, wish: Wish, alive: set[int], min_isr: int = 2):
    change = changed(now, wish, alive=alive, min_isr=min_isr)
    if change is None:
        return None
    assert change.expects_partition_epoch == 7
    return change.leader, change.leader_epoch, change.isr, change.elr


def test_the_next_of_the_isr_leads_when_the_leader_is_gone() -> None:
    now = state(1, (1, 2, 3))
    assert outcome(now, Wish(isr=(2, 3)), {2, 3}) == (2, 6, (2, 3), ())


def test_a_replica_that_leaves_an_isr_too_small_stays_eligible() -> None:
    """KIP-966: nothing is committed below min.insync.replicas, so it still has all that was."""
    now = state(1, (1, 2))
    assert outcome(now, Wish(isr=(1,)), {1}) == (1, 5, (1,), (2,))


def test_an_eligible_replica_leads_when_the_isr_is_gone() -> None:
    now = state(1, (1,), elr=(2,))
    assert outcome(now, Wish(isr=()), {2, 3}) == (2, 6, (2,), (1,))


def test_the_last_member_stays_eligible_when_another_one_leads() -> None:
    """It was alone below the minimum, so nothing was committed that it has not: to give up data for it was needless."""
    now = state(1, (1,), elr=(2,))
    assert outcome(now, Wish(), {2, 3}) == (2, 6, (2,), (1,))


def test_whoever_comes_back_into_a_large_enough_isr_makes_the_elr_needless() -> None:
    now = state(1, (1,), elr=(2, 3))
    assert outcome(now, Wish(isr=(1, 2)), {1, 2}) == (1, 5, (1, 2), ())


def test_the_last_member_stays_in_the_isr_and_leads_when_it_is_back() -> None:
    now = state(1, (1,))
    gone = changed(now, Wish(isr=None), alive={2, 3}, min_isr=1)
    assert gone is not None and (gone.leader, gone.isr) == (-1, (1,))
    back = PartitionState(0, -1, 6, 7, BROKERS, (1,))
    assert outcome(back, Wish(), {1, 2, 3}, min_isr=1) == (1, 7, (1,), ())


def test_a_replica_that_may_lack_what_it_had_leaves_isr_and_elr() -> None:
    assert outcome(state(1, (1, 2)), Wish(lost=1), {1, 2}) == (2, 6, (2,), ())
    assert outcome(state(1, (1,), (2, 3)), Wish(lost=2), {1, 2, 3}) == (1, 5, (1,), (3,))


def test_a_leader_that_starts_anew_leads_under_a_new_epoch() -> None:
    assert outcome(state(1, (1, 2, 3)), Wish(new_epoch=True), {1, 2, 3}) == (1, 6, (1, 2, 3), ())


def test_the_preferred_leader_leads_when_it_can() -> None:
    assert outcome(state(2, (1, 2)), Wish(preferred=True), {1, 2}) == (1, 6, (1, 2), ())
    assert outcome(state(2, (2, 3)), Wish(preferred=True), {1, 2, 3}) is None


def test_nothing_is_changed_when_nothing_changes() -> None:
    assert outcome(state(1, (1, 2, 3)), Wish(), {1, 2, 3}) is None
    assert outcome(state(-1, (1,)), Wish(), {2, 3}, min_isr=1) is None


members = st.lists(st.sampled_from(BROKERS), unique=True).map(lambda each: tuple(sorted(each)))


@given(members, members, st.data())
def test_no_one_but_isr_and_elr_is_ever_elected(isr, alive, data) -> None:
    """And the epoch of a leader belongs to one leader; the ISR is never empty; nobody is in ISR and ELR."""
    isr = isr or (1,)
    elr = tuple(each for each in data.draw(members) if each not in isr)
    leader = data.draw(st.sampled_from((-1, *isr)))
    now = PartitionState(0, leader, 5, 7, BROKERS, isr, elr)
    wish = Wish(
        isr=data.draw(st.none() | members),
        lost=data.draw(st.none() | st.sampled_from(BROKERS)),
        new_epoch=data.draw(st.booleans()),
        preferred=data.draw(st.booleans()),
    )
    change = changed(now, wish, alive=alive, min_isr=data.draw(st.integers(1, 3)))
    if change is None:
        return
    assert isinstance(change, PartitionChange)
    assert change.isr and not set(change.isr) & set(change.elr)
    had_all = {*isr, *elr, *(wish.isr or ())}
    assert set(change.isr) | set(change.elr) <= had_all
    if change.leader != -1:
        assert change.leader in change.isr and change.leader in alive
    assert change.leader_epoch >= now.leader_epoch
    if change.leader != now.leader:
        assert change.leader_epoch == now.leader_epoch + 1
