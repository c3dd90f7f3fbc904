"""A classic group under everything that clients and time can do to it, in any order."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.classic_group import ClassicGroup, Phase
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.runtime.decision import Parked
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from support.group_scene import Scene

E = ErrorCode
PROTOCOLS = st.sampled_from(
    [
        (("range", b"1"), ("sticky", b"1")),
        (("sticky", b"2"), ("range", b"2")),
        (("range", b"3"),),
        (("sticky", b"4"),),
    ]
)
INSTANCES = st.sampled_from([None, None, "i1", "i2"])
LONG_MS = 3_600_000


class Group(RuleBasedStateMachine):
    """Clients that know what they were last told, and say things that are sometimes wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(GroupConfig(group_max_size=4))
        self.known: list[tuple[str, str | None]] = []  # member ids that somebody was given
        self.parked: dict[int, str | None] = {}  # tickets not seen answered yet, and whose
        # For each generation: who was told that it leads. There must never be two.
        self.leaders: dict[int, set[str]] = {}

    # -- what clients do -------------------------------------------------------------------------

    @initialize(instances=st.lists(INSTANCES, max_size=3), patience_ms=st.sampled_from([0, 10_000]))
    def begin(self, instances, patience_ms) -> None:
        for instance in instances:
            self._seen(self.scene.join(instance=instance, version=3), instance)
        self.scene.pass_ms(patience_ms)
        if patience_ms:
            self.everyone_syncs()

    @rule(instance=INSTANCES, protocols=PROTOCOLS, version=st.sampled_from([3, 9]))
    def enter(self, instance, protocols, version) -> None:
        reply = self.scene.join(instance=instance, protocols=protocols, version=version)
        self._seen(reply, instance)

    @rule(data=st.data(), protocols=PROTOCOLS)
    def join_again(self, data, protocols) -> None:
        member_id, instance = self._some(data)
        self._seen(self.scene.join(member_id, instance=instance, protocols=protocols), instance)

    @rule(data=st.data(), ahead=st.sampled_from([0, 0, 0, -1, 1]))
    def sync(self, data, ahead) -> None:
        member_id, instance = self._some(data)
        group = self._group()
        if group is None:
            return
        generation = group.generation_id + ahead
        assign = [(member, f"{generation} {member}".encode()) for member in group.members]
        reply = self.scene.sync(
            member_id,
            generation,
            instance=instance,
            protocol_name=None,
            assign=assign,
        )
        if isinstance(reply, Parked):
            self.parked[reply.ticket] = instance
        elif reply["error_code"] is E.none:
            given, _, whom = reply["assignment"].decode().partition(" ")
            # A static member that came back under another id has what it was given under the one before.
            same = whom == member_id or (instance is not None and whom.startswith(f"{instance}-"))
            assert not given or (int(given) == generation and same)

    @rule()
    def everyone_syncs(self) -> None:
        group = self._group()
        if group is None or group.phase is not Phase.COMPLETING_REBALANCE:
            return
        generation = group.generation_id
        assign = [(member, f"{generation} {member}".encode()) for member in group.members]
        for member in list(group.members.values()):
            reply = self.scene.sync(
                member.member_id,
                generation,
                instance=member.group_instance_id,
                assign=assign,
                protocol_name=None,
            )
            if isinstance(reply, Parked):
                self.parked[reply.ticket] = member.group_instance_id

    @rule(data=st.data())
    def heartbeat(self, data) -> None:
        member_id, instance = self._some(data)
        group = self._group()
        if group is not None:
            self.scene.heartbeat(member_id, group.generation_id, instance=instance)

    @rule(data=st.data())
    def leave(self, data) -> None:
        member_id, instance = self._some(data)
        self.scene.leave((member_id, instance))

    @rule(passed_ms=st.sampled_from([1, 1_000, 3_000, 10_000, 61_000]))
    def wait(self, passed_ms) -> None:
        self.scene.pass_ms(passed_ms)

    @rule()
    def take_over(self) -> None:
        """Whoever waited was told that the coordinator is gone; what was only promised is forgotten."""
        self._collect()
        for ticket in self.scene.parked:
            del self.parked[ticket]
        self.scene.reload()
        group = self._group()
        generation = 0 if group is None else group.generation_id
        # Generations above the logged one led to nothing and may be given out again.
        self.leaders = {g: who for g, who in self.leaders.items() if g <= generation}

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        self._collect()
        for generation, leaders in self.leaders.items():
            assert len(leaders) == 1, f"generation {generation} is led by {leaders}"

    @invariant()
    def the_numbers_are_those_of_the_members(self) -> None:
        group = self._group()
        if group is None:
            return
        waiting = [m for m in group.members.values() if m.join_ticket is not None]
        assert group.awaiting_joins == len(waiting)
        counted: dict[str, int] = {}
        for member in group.members.values():
            for name, _ in member.protocols:
                counted[name] = counted.get(name, 0) + 1
        assert group.supported_protocols == counted
        assert set(group.static_members.values()) <= set(group.members)
        assert group.leader_id in group.members or not group.members
        assert group.pending_syncs <= set(group.members)
        assert not group.pending_joins.keys() & group.members.keys()

    @invariant()
    def a_phase_means_what_it_says(self) -> None:
        group = self._group()
        if group is None:
            return
        assert bool(group.members) == (group.phase is not Phase.EMPTY) or (
            group.phase is Phase.PREPARING_REBALANCE
        )
        for member in group.members.values():
            if group.phase in (Phase.STABLE, Phase.COMPLETING_REBALANCE):
                assert member.join_ticket is None
            if group.phase is not Phase.COMPLETING_REBALANCE:
                assert member.sync_ticket is None

    @invariant()
    def whoever_waits_is_known_to_the_group(self) -> None:
        group = self._group()
        members = [] if group is None else list(group.members.values())
        tickets = [t for m in members for t in (m.join_ticket, m.sync_ticket) if t is not None]
        assert sorted(tickets) == sorted(self.scene.parked)

    def teardown(self) -> None:
        """Every client falls silent."""
        self.scene.pass_ms(LONG_MS)
        assert not self.scene.parked, "somebody waits for ever"
        assert self.scene.phase() in ("Empty", "none")
        self.scene.reload()
        assert self.scene.phase() in ("Empty", "none"), "the log would bring back the dead"

    # -- bookkeeping -----------------------------------------------------------------------------

    def _group(self) -> ClassicGroup | None:
        return self.scene.machine.classic.groups.get("g")

    def _some(self, data) -> tuple[str, str | None]:
        return data.draw(st.sampled_from([("nobody", None), *self.known[-8:]]))

    def _seen(self, reply, instance) -> None:
        if isinstance(reply, Parked):
            self.parked[reply.ticket] = instance
        else:
            self._told(reply, instance)

    def _collect(self) -> None:
        for ticket in sorted(self.parked.keys() & self.scene.answers.keys()):
            instance = self.parked.pop(ticket)
            answer = self.scene.answers[ticket]
            if "members" in answer:
                self._told(answer, instance)

    def _told(self, answer, instance) -> None:
        if answer["error_code"] in (E.none, E.member_id_required):
            self.known.append((answer["member_id"], instance))
        if answer["error_code"] is E.none and answer["leader"] == answer["member_id"]:
            # A static member that comes back under a new id leads in place of the old one.
            name = instance or answer["member_id"]
            self.leaders.setdefault(answer["generation_id"], set()).add(name)


@pytest.mark.slow
@pytest.mark.hypothesis  # it has no mark of its own, and the night looks for that
def test_every_parked_reply_is_answered_when_time_goes_on() -> None:
    run_state_machine_as_test(
        Group, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
