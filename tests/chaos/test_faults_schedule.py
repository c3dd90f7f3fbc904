"""Plans by seed, whom faults strike, and that all is healed in the end."""

import random
import time
from types import SimpleNamespace

import pytest
from faults_straw import Known, Straw
from fencepost.chaos.faults import client_faults, kinds, network_faults
from fencepost.chaos.faults.client_faults import Sleeper
from fencepost.chaos.faults.fault import Clients, Fault, LeftOut, Stage
from fencepost.chaos.faults.network_faults import CLIENTS, isolated, ring
from fencepost.chaos.faults.plan import Kind, Strike, plan
from fencepost.chaos.faults.schedule import Schedule
from fencepost.chaos.faults.system import CannotDo
from fencepost.chaos.faults.targets import TARGETS
from fencepost.chaos.faults.zombies import Taken

KINDS = {"kill": Kind(TARGETS, (0.5, 5.0)), "cut": Kind(("one", "all"), (1.0, 2.0))}


def strike_all(straw: Straw, names: list[str], **options) -> tuple[Schedule, list[dict]]:
    """Each lane's strikes follow one another at once."""
    told: list[dict] = []
    schedule = Schedule(straw, names, 7, 60.0, Known(straw), told.append, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "sleep", lambda *_: None)
        schedule.run()
        schedule.wait()
        schedule.stop()
    return schedule, told


def test_equal_seeds_give_equal_plans() -> None:
    assert plan(KINDS, 7, 120.0) == plan(KINDS, 7, 120.0)
    assert plan(KINDS, 7, 120.0) != plan(KINDS, 8, 120.0)
    assert plan(KINDS, 7, 120.0, lane=1) != plan(KINDS, 7, 120.0, lane=0)
    first = plan(KINDS, 7, 120.0)[0]
    assert first.rng().random() == first.rng().random()


def test_a_shorter_run_is_the_beginning_of_a_longer_one_and_ends_in_time() -> None:
    long, short = plan(KINDS, 3, 300.0), plan(KINDS, 3, 60.0)
    assert 0 < len(short) < len(long) and long[: len(short)] == short
    assert all(strike.until_s <= 60.0 for strike in short)


def test_no_kind_comes_twice_before_every_other_came_once() -> None:
    """Of six kinds in a run of a minute or two, dice alone left two out."""
    six = {name: Kind(("one",), (0.5, 2.0)) for name in "abcdef"}
    for seed in range(20):
        for lane in (0, 1):
            found = [strike.kind for strike in plan(six, seed, 120.0, lane)]
            assert len(found) > 12
            for at in range(0, len(found), 6):
                assert len(set(found[at : at + 6])) == len(found[at : at + 6]), found


def test_what_a_target_is_follows_from_the_dice_and_from_who_has_the_office() -> None:
    asked = Known(Straw())

    def choose(target: str, among: tuple[int, ...] = (1, 2, 3)) -> list[int]:
        return asked.choose(target, random.Random(1), among)

    assert len(choose("one")) == len(choose("minority")) == 1
    assert len(choose("majority")) == 2 and choose("all") == [1, 2, 3]
    assert choose("controller") == [3] and choose("coordinator") == [2]
    assert choose("leaders")[0] in (1, 2)
    assert choose("controller", among=(1, 2)) == [] and choose("all", among=(1, 2)) == []


@pytest.mark.parametrize("count", [3, 4, 5, 7])
def test_in_a_ring_each_hears_a_majority_and_no_two_the_same(count: int) -> None:
    nodes = list(range(1, count + 1))
    cut = set(ring(nodes))
    heard = [frozenset(a for a in nodes if a == b or (a, b) not in cut) for b in nodes]
    assert len(set(heard)) == count, heard
    assert all(len(each) > count / 2 for each in heard), heard


def test_who_is_isolated_is_so_both_ways_and_from_clients_if_they_are_named() -> None:
    assert isolated([1], [2, CLIENTS]) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_faults_of_two_lanes_are_told_with_their_end_and_leave_nothing() -> None:
    straw = Straw()
    schedule, told = strike_all(straw, ["kill", "pause", "cut", "slow"], at_once=2)
    assert not straw.dead and not straw.paused and not straw.ways
    assert schedule.trouble == [] and sum(schedule.counts.values()) * 2 == len(told) > 4
    for line in told:
        assert set(line) == {"at_s", "until_s", "id", "fault", "target", "nodes", "what", "form"}
    begun = [line["id"] for line in told if line["until_s"] is None]
    healed = [line["id"] for line in told if line["until_s"] is not None]
    assert sorted(begun) == sorted(healed) and len(set(begun)) == len(begun)


def test_a_cut_of_one_lane_is_not_healed_by_that_of_another() -> None:
    straw = Straw()
    schedule = Schedule(straw, ["cut"], 1, 60.0, Known(straw), lambda _: None, at_once=2)
    one, other = (network_faults.Cut(schedule.stage, schedule.lanes[lane][0]) for lane in range(2))
    one.target = other.target = "one"
    one.begin()
    only_one = list(straw.ways)
    other.begin()
    assert straw.ways != only_one and set(straw.ways) >= set(only_one)
    other.heal()
    assert straw.ways == only_one
    one.heal()
    assert straw.ways == []


def test_all_is_healed_though_a_fault_fails_in_the_middle(monkeypatch) -> None:
    class Breaks(Fault):
        name = "breaks"
        needs = "kill"

        def begin(self) -> str:
            (node, *_) = self.take()
            self.system.kill(node)
            raise ZeroDivisionError("nobody foresaw this")

        def heal(self) -> str:
            return ""

    monkeypatch.setattr(kinds, "FAULTS", {**kinds.FAULTS, "breaks": Breaks})
    straw = Straw()
    with pytest.raises(ZeroDivisionError):
        strike_all(straw, ["breaks"])
    assert not straw.dead


def test_a_node_that_does_not_come_back_is_named_as_trouble() -> None:
    straw = Straw()
    straw.refuses_to_start = True
    schedule, _ = strike_all(straw, ["kill"])
    assert any("healing" in sentence for sentence in schedule.trouble)
    assert "not all came back" in schedule.trouble[-1]


def test_a_fault_whose_node_does_not_come_back_is_not_over_before_it_does(monkeypatch) -> None:
    straw = Straw()
    straw.refuses_to_start = True
    schedule, told = strike_all(straw, ["kill"])
    assert schedule.trouble and not schedule.healed
    assert all(line["until_s"] is None for line in told)
    # It comes back when all is healed.
    straw = Straw()
    straw.refuses_to_start = True
    heal = straw.heal
    monkeypatch.setattr(straw, "heal", lambda: setattr(straw, "refuses_to_start", False) or heal())
    schedule, told = strike_all(straw, ["kill"])
    assert schedule.healed and schedule.trouble
    last = {line["id"]: line["until_s"] for line in told}
    assert last and None not in last.values()


def test_a_node_that_ended_by_itself_is_started_again_and_told_of() -> None:
    straw = Straw()
    straw.dead.add(2)
    schedule = Schedule(straw, [], 7, 1.0, Known(straw), lambda _: None)
    with schedule:
        pass
    assert straw.dead == set() and schedule.healed
    assert [(each.node, each.code, each.broken) for each in schedule.exits] == [(2, 70, True)]


def test_a_disk_that_was_struck_excuses_an_end_of_its_node() -> None:
    class Disks(Straw):
        can = frozenset({"kill", "disk"})

        def world(self, node: int):
            ended = lambda **_: self.dead.add(node)  # noqa: E731
            return SimpleNamespace(set=ended, sound_disk=lambda: None)

        def said(self, node: int) -> str:
            return '{"event": "broken_invariant", "cause": "OSError(5, \'Input/output error\')"}'

    straw = Disks()
    schedule, _ = strike_all(straw, ["disk-full"])
    assert schedule.exits and all(each.excused for each in schedule.exits)
    straw.dead.add(1)
    schedule.stop()
    assert not schedule.exits[-1].excused


def test_a_fault_that_nobody_has_is_refused_by_name_before_anything_begins() -> None:
    straw = Straw()
    with pytest.raises(CannotDo, match="no fault 'kil'; there are kill, "):
        Schedule(straw, ["kil"], 1, 10.0, Known(straw), print)
    with pytest.raises(CannotDo, match="straw have no fault 'power'"):
        Schedule(straw, ["power"], 1, 10.0, Known(straw), print)


def test_a_load_without_hooks_leaves_its_clients_alone() -> None:
    schedule, told = strike_all(Straw(), ["zombie", "sleeper", "epochs"])
    assert told == [] and len(schedule.left_out) > 3
    assert not schedule.counts


def test_who_uses_no_id_now_has_none_that_could_be_worn_out(monkeypatch) -> None:
    """Not the id of a client that ended, which brokers know of for days."""

    def nobody(_rng: random.Random) -> str:
        raise LeftOut("no client of this load has transacted in the last 5 s")

    monkeypatch.setattr(client_faults, "take_over", lambda *_: pytest.fail("an id was taken"))
    schedule, told = strike_all(Straw(), ["epochs"], clients=Clients(in_use=nobody))
    assert told == [] and not schedule.counts
    assert set(schedule.left_out) == {
        "epochs of one: no client of this load has transacted in the last 5 s"
    }


def test_a_load_may_lend_its_clients(monkeypatch) -> None:
    asleep: list[str] = []
    clients = Clients(
        twin=lambda *_: "pay-1",
        pause=lambda _: asleep.append("sleeps") or "client 2",
        resume=lambda who: asleep.append(f"{who} is woken"),
        in_use=lambda _: "pay-7",
    )
    taken: list[str] = []
    monkeypatch.setattr(
        client_faults, "take_over", lambda _, name, times, __: taken.append(name) or Taken(times)
    )
    schedule, told = strike_all(Straw(), ["zombie", "sleeper", "epochs"], clients=clients)
    assert set(taken) == {"pay-7"}
    assert set(schedule.counts) == {"zombie", "sleeper", "epochs"}
    assert asleep == ["sleeps", "client 2 is woken"] * schedule.counts["sleeper"]
    assert all(line["what"] for line in told)


def alone(
    straw: Straw, asked: Known, kind: str, target: str, until_s: float
) -> tuple[Schedule, list[dict]]:
    """One strike, in real time."""
    told: list[dict] = []
    schedule = Schedule(straw, [kind], 1, 10.0, asked, told.append)
    schedule.lanes[0][:] = [Strike(1, kind, target, 0.0, until_s, "dice")]
    with schedule:
        schedule.wait()
    return schedule, told


def test_a_fault_begins_when_it_strikes_and_lasts_as_long_as_it_was_to(monkeypatch) -> None:
    """It was told to have begun when it was drawn; one that found nobody for a second stood still for none of it."""

    class Late(Known):
        def controller(self) -> int:
            time.sleep(0.3)
            return 3

    at: dict[str, float] = {}
    straw = Straw()
    for name in ("pause", "resume"):
        of = getattr(straw, name)
        monkeypatch.setattr(
            straw, name, lambda node, n=name, of=of: at.update({n: time.monotonic()}) or of(node)
        )
    _, (_, line) = alone(straw, Late(straw), "pause", "controller", 0.2)
    assert at["resume"] - at["pause"] > 0.19
    assert line["at_s"] >= 0.3
    assert line["until_s"] - line["at_s"] == pytest.approx(at["resume"] - at["pause"], abs=0.1)


def test_what_failed_has_struck_nobody(monkeypatch) -> None:
    """Nobody knows what it did: its nodes are excused, and it counts for nothing."""
    straw = Straw()

    def pause(_node: int) -> None:
        raise OSError("unable to freeze")

    monkeypatch.setattr(straw, "pause", pause)
    schedule, told = alone(straw, Known(straw), "pause", "one", 0.2)
    assert {line["struck"] for line in told} == {False}
    assert not schedule.counts and schedule.trouble


@pytest.mark.parametrize("seed", range(8))
def test_a_node_that_is_alone_is_cut_off_from_nobody(seed) -> None:
    straw = Straw()
    straw.nodes = (1,)
    cut = network_faults.Cut(
        Stage(straw, Known(straw), Clients()), Strike(1, "cut", "one", 0, 1, str(seed))
    )
    try:
        cut.begin()
    except LeftOut:
        assert straw.ways == []
    else:
        assert straw.ways


def test_who_sleeps_is_not_woken_by_another_fault_that_found_nobody() -> None:
    """Two of them go on at once, and one is healed before the other."""
    awake = ["client 1", "client 2"]
    asleep: list[str] = []

    def pause(_rng: random.Random) -> str:
        if not awake:
            raise LeftOut("no client of this load transacts now")
        asleep.append(awake.pop())
        return asleep[-1]

    straw = Straw()
    stage = Stage(straw, Known(straw), Clients(pause=pause, resume=asleep.remove))
    one, two, three = (
        Sleeper(stage, Strike(1, "sleeper", "one", 0.0, 9.0, dice)) for dice in "abc"
    )
    assert one.begin() == "stopped client 2 between its sends and its commit"
    two.begin()
    with pytest.raises(LeftOut):
        three.begin()
    three.heal()
    assert asleep == ["client 2", "client 1"]
    one.heal()
    assert asleep == ["client 1"]


def test_a_schedule_that_is_stopped_does_not_wait_for_its_plan() -> None:
    straw = Straw()
    began = time.monotonic()
    with Schedule(straw, ["kill"], 1, 3_600.0, Known(straw), lambda _: None) as schedule:
        assert not schedule.is_over
    assert schedule.is_over and time.monotonic() - began < 30.0


def test_every_kind_says_what_it_needs_and_whom_it_may_strike() -> None:
    for name, kind in kinds.FAULTS.items():
        assert kind.name == name and kind.__doc__, name
        assert set(kind.targets) <= set(TARGETS) and kind.targets, name
        assert 0 < kind.hold_s[0] <= kind.hold_s[1], name
