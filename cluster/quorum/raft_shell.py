"""The metadata quorum of one node: Raft on our disk, our clock and our loop, and the machine that it drives.

INVARIANT  a leader ticks only while all of its log is durable; a follower acknowledges only what is.
PREVENTS   an entry that is counted, answered or applied anywhere, and is gone after an end of power.
PROVED BY  tests/cluster/quorum/test_raft_shell.py::test_a_kill_at_any_disk_operation_loses_nothing_acknowledged

A tick first commits and applies what is in the log, then adds what was proposed since. So one proposal alone is
added, synced here and on the followers at the same time, applied and answered: its latency is one sync and one round
trip. Whatever comes during that sync is added by the next tick and shares the next sync. A voter that is
alone and has nothing to do does not tick at all; others tick when something arrives, at heartbeats and timeouts.

Two tasks: one ticks, one makes durable (`store.py`). Messages are taken as they come, between their steps.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ..base.errors import ConfigRefused, DiskFull, ErrorCode, Outcome, Trouble
from ..base.ids import BrokerId
from ..base.ports import Env
from ..metadata.image import ClusterImage
from ..metadata.machine import Applied, MetadataMachine, Result
from ..metadata.refusal import Refused
from . import voter_checks as checks
from .held import NEVER, NEVER_HAPPENED, SUCCESS, Snapshots
from .journal import JournalLost
from .lead_news import Lead, LeadNews
from .lead_question import LeadQuestion
from .metrics import QuorumCounters
from .raft import Raft
from .redirected import in_world
from .store import FULL, Store, open_folder
from .transport import Links, QuorumTransport
from .view import QuorumView, view_of
from .voters import Address, VoterChangeRefused, Voters, write_voters

PROPOSALS_MAX: Final = 10_000  # that wait for an answer at one time
# A leader whose lease has run out is asked nothing. It steps down a little later: if it was this process that stood
# still, answers come at once and nobody has taken the lead.
LAPSE_S: Final = 0.2
TIMER_S: Final = 0.001
Decided = Callable[[object, int], None]


class Quorum:
    """`folder` holds journal, vote and snapshot; `voters` are node id -> (host, port) of the peer door.

    They are the first set only: what the log says of voters counts (`change_voters`). A node that is not among them
    reads the log and never votes. Callbacks in `on_leader_change` hear of every change of leader, term or lead.
    """

    def __init__(
        self,
        env: Env,
        folder: str,
        machine: MetadataMachine,
        node_id: BrokerId,
        voters: Voters,
        links: Links | None = None,
    ) -> None:
        if links is None and set(voters) != {node_id}:
            raise ConfigRefused(
                f"Invalid value {sorted(voters)} for configuration controller.quorum.voters: node"
                f" {node_id} has no peer listener, so it can only be the one voter."
            )
        self.node_id = node_id
        self._env = env
        self._folder = folder
        self._machine = machine
        self._first_voters = voters
        self._snapshots = Snapshots(machine.snapshot)
        self._links, self._transport = links, QuorumTransport(links)
        self._raft: Raft | None = None
        self._work, self._ready = asyncio.Event(), asyncio.Event()
        self.counters = QuorumCounters()
        self._waiting: dict[asyncio.Future[object], None] = {}
        self._changing_voters = False
        self._said: tuple[BrokerId | None, int, bool] = (None, 0, False)
        self._news = LeadNews(env, node_id)
        self._question = LeadQuestion(env)
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = NEVER
        self._tasks: list[asyncio.Task[None]] = []
        self.on_leader_change: list[Callable[[], None]] = []

    # --- life ---

    async def start(self) -> None:
        """Load snapshot and journal; the image holds all that this node knew. LogDamaged names what it can't read."""
        who = self.node_id, self._first_voters
        self._journal, file, snapshot = open_folder(self._env, self._folder, *who)
        if snapshot is not None:
            self._machine.restore(snapshot.machine)
            self._snapshots.newest = snapshot
        with in_world(self._env):
            raft = Raft(*who, self._journal, self._transport, self._snapshots, self._apply)
            if self._links is not None:
                raft.listen(self._env.clock.steady())
        self._transport.term = lambda: raft.term
        self._raft = raft
        seen = self._journal, file, self._machine
        self._store = Store(self._env, self._folder, *seen, self._work.set)
        tasks = {"quorum store": self._store.run(raft), "quorum": self._run(raft)}
        self._tasks = [self._env.tasks.spawn(each, name=name) for name, each in tasks.items()]

    async def wait_ready(self) -> None:
        """Wait until a leader is known and this node has applied all that was committed when it came."""
        await self._ready.wait()

    async def stop(self) -> None:
        """Proposals under way end with outcome UNKNOWN. A leader hands over first."""
        if self._raft is not None and self._raft.leads:
            with in_world(self._env):
                self._raft.hand_over()
                self._raft.step_down()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
            self._tasks = []
        if self._timer is not None:
            self._timer.cancel()
        self._give_up("This node is stopping.")
        if self._raft is not None:
            with in_world(self._env):
                self._raft.destroy()
            self._raft = None
            await self._journal.close()

    # --- what others ask ---

    @property
    def image(self) -> ClusterImage:
        return self._machine.image

    @property
    def is_leader(self) -> bool:
        """Whether it leads right now, by the clock, and has applied all that was committed before it did."""
        raft = self._raft
        if raft is None or not raft.leads or not raft.has_begun_term:
            return False
        return raft.lease_end() > self._env.clock.steady()

    async def confirm_lead(self) -> bool:
        """Whether it leads, by what a majority says from now on: `is_leader` believes a clock, which a suspension stops."""
        return self._raft is not None and self.is_leader and await self._question.ask(self._raft)

    @property
    def term(self) -> int:
        return 0 if self._raft is None else self._raft.term

    @property
    def leader_id(self) -> BrokerId | None:
        return None if self._raft is None else self._raft.leader_id

    @property
    def voters(self) -> Voters:
        """Who votes, and where: as the log says, or the configuration where it does not say yet."""
        return self._first_voters if self._raft is None else self._raft.voters

    @property
    def voters_to_be(self) -> Voters:
        return self._first_voters if self._raft is None else self._raft.voters_to_be

    def view(self) -> QuorumView:
        return view_of(self._raft, self._first_voters, self._env.clock.now_ms())

    async def propose(self, record: bytes) -> Result:
        """Have the quorum agree on an entry; its result, applied here. Trouble when it can't be known to have been."""
        began = self._env.clock.steady()
        result = await self._ask(lambda raft, decided: raft.submit(record, decided))
        self.counters.commit_s.observe(self._env.clock.steady() - began)
        assert isinstance(result, Applied | Refused)
        return result

    async def change_voters(
        self,
        *,
        add: tuple[BrokerId, Address] | None = None,
        remove: BrokerId | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Add a voter, which must be up and following, or remove one; done when it is settled. On the leader. `check` may refuse last."""
        if self._changing_voters:
            why = "Another change of the voters is under way."
            raise VoterChangeRefused(ErrorCode.request_timed_out, why)
        self._changing_voters = True
        try:
            wanted = checks.change_of_committed(self._leading(), add=add, remove=remove)
            if add is not None:
                await checks.wait_caught_up(self._leading, self._env.clock, add[0])
            await checks.wait_answers(self._leading, self._env.clock, wanted)
            raft = self._leading()
            changed = checks.change_of_committed(raft, add=add, remove=remove)
            check()
            checks.check_majority_answers(raft, self._env.clock, changed)
            packed = write_voters(changed)
            await self._ask(lambda raft, decided: raft.submit_voters(packed, decided))
            if remove is not None and raft.is_alone:
                await checks.wait_told(self._leading, self._env.clock, remove)
        finally:
            self._changing_voters = False

    def _leading(self) -> Raft:
        if self._raft is None or not self.is_leader:
            raise Trouble("This node does not lead the metadata quorum.", Outcome.REFUSED)
        return self._raft

    async def _ask(self, submit: Callable[[Raft, Decided], None]) -> object:
        raft = self._leading()
        if self._store.disk_full is not None:
            raise DiskFull(f"The metadata journal can't be written: {self._store.disk_full}")
        if len(self._waiting) >= PROPOSALS_MAX:
            raise Trouble(f"{PROPOSALS_MAX} metadata changes wait already.", Outcome.REFUSED)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def decided(result: object, reason: int) -> None:
            self._waiting.pop(answer, None)
            if answer.done():
                return  # whoever asked has given up waiting
            if reason == SUCCESS:
                answer.set_result(result)
                return
            outcome = Outcome.REFUSED if reason in NEVER_HAPPENED else Outcome.UNKNOWN
            answer.set_exception(Trouble(f"The quorum did not agree ({reason}).", outcome))

        self._waiting[answer] = None
        submit(raft, decided)
        self._work.set()
        try:
            return await answer
        finally:
            self._waiting.pop(answer, None)

    # --- what the peer door says ---

    def on_frame(self, peer_id: BrokerId, frame: memoryview | bytes) -> None:
        """FrameRefused closes the connection."""
        raft = self._raft
        if raft is None or not self._store.opened:
            return
        try:
            with in_world(self._env):
                raft.receive(peer_id, frame)
        except OSError as trouble:
            # A term or a vote could not be stored: the message was as good as lost.
            if trouble.errno not in FULL:
                self._env.die(JournalLost(f"The vote in {self._folder} is not stored: {trouble}."))
            self._env.log.warn("quorum_vote_not_stored", cause=str(trouble))
        finally:
            # A refused message may have brought a later term.
            self._after(raft)
            self._work.set()

    def on_peer_up(self, peer_id: BrokerId) -> None:
        """There is a connection to it again, so it need not wait for the next heartbeat, nor this node for its own."""
        raft = self._raft
        if raft is None or not self._store.opened:
            return
        with in_world(self._env):
            raft.send_to(peer_id)
            if raft.leader_id is None:
                raft.election.hurry(self._env.clock.steady())
        self._work.set()

    def on_voters_named(self, peer_id: BrokerId, voters: Voters) -> None:
        """What a peer takes for the set of voters."""
        if self._raft is not None:
            with in_world(self._env):
                self._raft.shows(peer_id, voters=voters)

    def on_peer_gone(self, peer_id: BrokerId) -> None:
        """Its process is dead. If it led, there is nothing to wait for."""
        raft = self._raft
        if raft is None or raft.leader_id != peer_id or raft.leads:
            return
        self._news.on_gone(peer_id)
        with in_world(self._env):
            raft.election.leader_gone(self._env.clock.steady())
            raft.forget_leader()
        self._after(raft)
        self._work.set()

    # --- the loop ---

    async def _run(self, raft: Raft) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            if not self._store.opened:
                continue
            await self._elect_alone(raft)
            self._step(raft)
            self._after(raft)

    async def _elect_alone(self, raft: Raft) -> None:
        """A voter alone leads from its first tick on, which begins with a vote for itself."""
        while raft.elects_itself(self._env.clock.steady()) and not self._journal.undurable:
            try:
                self._store.look_for_room()
                with in_world(self._env):
                    raft.elect_at_once()
                    raft.doTick()
            except OSError as trouble:
                # Nobody has seen this vote. The next try is one for a higher term.
                await self._store.wait_for_room(trouble)

    def _step(self, raft: Raft) -> None:
        """What time and messages have brought: a lead that is over, an election, a heartbeat, a tick."""
        now = self._env.clock.steady()
        with in_world(self._env):
            if raft.leads and raft.has_left():
                raft.hand_over()
                raft.step_down()
            over = raft.lease_end() + LAPSE_S <= now
            if raft.leads and (over or not (raft.is_alone or self._store.lets_lead())):
                raft.step_down()  # another one may have a better disk
            if not raft.leads and not raft.is_alone and raft.election.is_due(now):
                raft.ask_for_leader(disk_works=self._store.works)
            if raft.leads and self._journal.undurable:
                # SyncObj counts its own log as held. Followers may have it before that.
                if now >= raft.heartbeat_due:
                    raft.replicate()
                return
            self._store.maybe_ask_snapshot(raft)
            before = raft.commit_index, raft.last.idx
            try:
                raft.settle_voters()
                raft.doTick()
                raft.maybe_grow_up()
            except OSError as trouble:
                if trouble.errno not in FULL:
                    raise
                self._env.log.warn("quorum_vote_not_stored", cause=str(trouble))
                raft.election.stand(now)  # a candidate that could not vote for itself is none
            news = (raft.commit_index, raft.last.idx) != before
            if raft.leads and (news or now >= raft.heartbeat_due):
                raft.replicate()

    def _after(self, raft: Raft) -> None:
        """Whatever changed is told, stored and timed."""
        said = raft.leader_id, raft.term, self.is_leader
        if said != self._said:
            led, self._said = self._said[2], said
            of_voters = {"is_alone": raft.is_alone, "has_left": raft.has_left()}
            self._news.tell(Lead(*said), raft.handed_by, **of_voters)
            if led and not said[2]:
                self._give_up("This node leads no more; the change may still happen.")
            self._machine.image.controller_id = raft.leader_id
            for call in self.on_leader_change:
                call()
        self._question.look(raft)
        if not self._ready.is_set() and raft.is_up_to_date():
            self._ready.set()
        self._store.wake_if_needed(raft)
        self._set_timer(raft)

    def _set_timer(self, raft: Raft) -> None:
        when = NEVER
        if raft.leads:
            lapses = raft.lease_end()
            if lapses <= self._env.clock.steady():
                lapses += LAPSE_S
            when = min(lapses, raft.heartbeat_due if raft.progress else NEVER)
        elif not raft.is_alone or raft.leader_id is not None:
            when = raft.election.deadline
        elif raft.listens(self._env.clock.steady()):
            when = raft.listens_until
        if when >= self._wake_at:
            return  # it fires too early, and is set again then
        if self._timer is not None:
            self._timer.cancel()
        self._wake_at = when
        # Sums of floats: a timer may fire a hair before its time, and must not be set for that hair.
        delay = max(TIMER_S, when - self._env.clock.steady())
        self._timer = self._env.clock.call_later(delay, self._on_time)

    def _on_time(self) -> None:
        """Also while the disk stands still: a lead that is over is over at once."""
        self._wake_at, self._timer = NEVER, None
        raft = self._raft
        if raft is None:
            return
        if raft.leads and raft.lease_end() <= self._env.clock.steady():
            self._after(raft)
        self._work.set()

    def _apply(self, entry: bytes) -> object:
        """Refusals are values. What is raised leaves the tick and ends this task, and with it the process."""
        self._store.bytes_since_snapshot += len(entry)
        return self._machine.apply(entry)

    def _give_up(self, why: str) -> None:
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_exception(Trouble(why, Outcome.UNKNOWN))
        self._waiting.clear()
        self._question.give_up()
