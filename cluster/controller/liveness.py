"""Who is there: the sessions of brokers with the active controller, and what it does by and by.

INVARIANT  a broker is fenced only by a record of the metadata log that names its broker epoch.
PREVENTS   a broker that has registered anew being taken out of service for the silence of its predecessor.
PROVED BY  tests/cluster/controller/test_liveness.py::test_one_that_registered_anew_is_not_fenced_for_its_predecessor
           tests/cluster/controller/test_fenced_by_epoch.py::test_one_whose_new_registration_is_on_its_way_is_not_fenced_for_the_old_one
           tests/cluster/controller/test_fenced_by_epoch.py::test_the_heartbeats_of_an_earlier_registration_keep_nobody_alive

Heartbeats stay off the log unless they change something. A session ends after `broker.session.timeout.ms` of
silence, or at once when the peer door says that the process is dead: its machine refuses connections. One that is up
again before anybody tried, is another process where the broker is registered: it may register at once. A new
controller gives every broker a fresh session, except those that it knows to be dead.

Time that this process itself did not run is nobody's silence (`LATE_S`): a controller that was stopped and goes on
would otherwise fence the whole cluster for its own absence.
"""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ..base.errors import ErrorCode, Trouble
from ..base.ids import BrokerEpoch, BrokerId
from ..base.ports import Env
from ..metadata.image import ImageDelta
from .brokers_policy import decide_fence
from .commands import (
    BrokerHeartbeat,
    ControllerCommand,
    HeartbeatResult,
    RegisterBroker,
    Registered,
    ReportDisk,
)
from .decision import Decision, Scene
from .full_disks import FullDisks
from .heartbeats_machine import HeartbeatsMachine
from .service import Agreement, Controller

R = TypeVar("R")
Duty = Callable[[Scene], Decision[None]]

TICK_S: Final = 0.25
LATE_S: Final = 0.75  # after its time: this process did not run
DUTY_S: Final = 1.0  # a round of duties without anything having changed
DUTY_PAUSE_S: Final = 0.1  # between two rounds, however much changes
DUPLICATE: Final = (  # Kafka's words
    "Another broker is registered with that broker id. If the broker was recently restarted this should"
    " self-resolve once the heartbeat timeout expires."
)


class Liveness:
    """The active controller as brokers see it. `duties` are decided after changes and every second."""

    def __init__(
        self,
        env: Env,
        quorum: Agreement,
        controller: Controller,
        *,
        session_timeout_ms: int,
        duties: Sequence[tuple[str, Duty]] = (),
    ) -> None:
        self._env = env
        self._quorum = quorum
        self._controller = controller
        self._duties = duties
        self._session_timeout_ms = session_timeout_ms
        self._sessions = HeartbeatsMachine(session_timeout_ms)
        # Who was heard by this node since it leads; others have a session that was just given to them.
        self._known: dict[BrokerId, BrokerEpoch] = {}
        self._processes: dict[BrokerId, int] = {}  # that answered last where each is registered
        self._heard_as: dict[BrokerId, int] = {}  # which of them that was, when it was heard
        self._dead: dict[BrokerId, None] = {}  # their processes, as the peer door says
        self._doomed: dict[BrokerId, BrokerEpoch] = {}  # to be fenced
        self.is_connected: Callable[[BrokerId, int], bool] = _nobody_is  # with that process of it
        self._leads = False
        self._term = -1  # in which it led last
        self._lapsed_ms = 0  # when it last stopped to lead
        self._wake = asyncio.Event()
        self._changed = False
        self._next_duty = 0.0
        self._full_disks = FullDisks(session_timeout_ms)
        controller.disks = lambda: self._full_disks.now(self._now_ms())
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._env.tasks.spawn(self._run(), name="liveness")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    # --- what is asked of the active controller ---

    async def execute(self, command: ControllerCommand[R]) -> R:
        """As `Controller.execute`; what brokers say of themselves is heard, too."""
        self._follow_the_lead()
        answer: Any
        if isinstance(command, BrokerHeartbeat):
            answer = await self._heartbeat(command)
        elif isinstance(command, RegisterBroker):
            answer = await self._register(command)
        elif isinstance(command, ReportDisk):
            if self._is_registered(command.broker_id, command.broker_epoch):
                self._full_disks.heard(command.broker_id, self._now_ms(), is_full=command.is_full)
            answer = await self._controller.execute(command)
        else:
            answer = await self._controller.execute(command)
        result: R = answer
        return result

    async def _heartbeat(self, command: BrokerHeartbeat) -> HeartbeatResult:
        if self._is_registered(command.broker_id, command.broker_epoch):
            self._heard(command.broker_id, command.broker_epoch)
        return await self._controller.execute(command)

    def _is_registered(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        broker = self._quorum.image.brokers.get(broker_id)
        return broker is not None and broker.broker_epoch == broker_epoch

    async def _register(self, command: RegisterBroker) -> Registered:
        before = self._quorum.image.brokers.get(command.broker_id)
        if (
            before is not None
            and before.incarnation_id != command.incarnation_id
            and not before.in_controlled_shutdown
            and command.broker_id not in self._dead
            and self._known.get(before.broker_id) == before.broker_epoch
            and not self._is_replaced(before.broker_id)
            and self._sessions.has_session(before.broker_id, before.broker_epoch, self._now_ms())
        ):
            duplicate = ErrorCode.duplicate_broker_registration
            return Registered(error_code=duplicate, error_message=DUPLICATE)
        registered = await self._controller.execute(command)
        if registered.error_code is ErrorCode.none:
            self._heard(command.broker_id, registered.broker_epoch)
        return registered

    def _is_replaced(self, broker_id: BrokerId) -> bool:
        """Another process answers by now where the one that was heard is registered, and that one is gone from here: two
        that share a name by mistake take turns at its address."""
        heard_as = self._heard_as.get(broker_id)
        if heard_as is None or heard_as == self._processes[broker_id]:
            return False
        return not self.is_connected(broker_id, heard_as)

    def _heard(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        # This node is not watched: its silence would be that of whoever watches.
        if broker_id != self._quorum.node_id:
            self._sessions.heard(broker_id, broker_epoch, self._now_ms())
            self._known[broker_id] = broker_epoch
            if broker_id in self._processes:
                self._heard_as[broker_id] = self._processes[broker_id]
            self._doomed.pop(broker_id, None)
            self._wake.set()

    # --- what happens ---

    def on_up(self, broker_id: BrokerId, process: int) -> None:
        """This process answers where the broker is registered: one that was heard as another process holds that no more."""
        self._dead.pop(broker_id, None)
        self._processes[broker_id] = process

    def on_gone(self, broker_id: BrokerId) -> None:
        """Its process is dead."""
        self._dead[broker_id] = None
        if self._leads:
            self._doom(broker_id)

    def on_leader_change(self) -> None:
        self._follow_the_lead()

    def on_image(self, _delta: ImageDelta) -> None:
        self._changed = True
        if self._leads:
            self._wake.set()

    def _doom(self, broker_id: BrokerId) -> None:
        broker = self._quorum.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced and broker_id != self._quorum.node_id:
            self._doomed[broker_id] = broker.broker_epoch
            self._wake.set()

    def _follow_the_lead(self) -> None:
        leads = self._quorum.is_leader
        if leads == self._leads:
            return
        self._leads = leads
        now_ms = self._now_ms()
        if not leads:
            self._lapsed_ms = now_ms
            return
        if self._quorum.term == self._term:
            # Its lease was over for a moment, and nobody else has led. Sessions that began anew each time would never
            # end under a load that lets the lease lapse now and then.
            self._sessions.excuse(now_ms - self._lapsed_ms)
            self._full_disks.excuse(now_ms - self._lapsed_ms, now_ms)
        else:
            self._term = self._quorum.term
            self._doomed.clear()
            self._known.clear()
            self._sessions = HeartbeatsMachine(self._session_timeout_ms)
            self._full_disks.begin(now_ms)
        self._watch_all()
        for broker_id in self._dead:
            self._doom(broker_id)
        self._changed = True
        self._wake.set()

    def _watch_all(self) -> None:
        """Whoever is alive has a session, however it came to be alive: else its silence would be nobody's business."""
        now_ms = self._now_ms()
        for broker in self._quorum.image.alive_brokers():
            who = broker.broker_id
            if who != self._quorum.node_id and who not in self._doomed:
                self._sessions.watch(who, broker.broker_epoch, now_ms)

    # --- by and by ---

    async def _run(self) -> None:
        while True:
            await self._wait()
            self._follow_the_lead()
            if not self._leads:
                continue
            try:
                await self._fence()
                await self._do_duties()
            except Trouble as trouble:
                # The lead was lost, or the disk is full: another controller does it, or the next round.
                self._env.log.warn("controller_round_failed", cause=str(trouble))
                await self._env.clock.sleep(DUTY_PAUSE_S)

    async def _wait(self) -> None:
        """Until something happens; or a tick, where there is somebody to watch."""
        if not self._has_work():
            await self._wake.wait()
        due = self._env.clock.steady() + TICK_S
        try:
            async with asyncio.timeout(TICK_S):
                await self._wake.wait()
        except TimeoutError:
            late_s = self._env.clock.steady() - due
            if late_s > LATE_S:
                self._sessions.excuse(round(late_s * 1000))
        self._wake.clear()

    def _has_work(self) -> bool:
        watches = self._sessions.next_tick_ms() is not None
        return self._leads and (watches or bool(self._doomed) or self._has_duty())

    def _has_duty(self) -> bool:
        return self._changed and bool(self._duties)

    async def _fence(self) -> None:
        for broker_id, broker_epoch in self._sessions.tick(self._now_ms()):
            self._doomed.setdefault(broker_id, broker_epoch)
        self._watch_all()
        for broker_id, broker_epoch in list(self._doomed.items()):
            if self._doomed.get(broker_id) != broker_epoch:
                continue  # it was heard while another one was fenced
            # Not behind the wait: one that is heard meanwhile has a session again.
            self._sessions.forget(broker_id)
            broker = self._quorum.image.brokers.get(broker_id)
            if broker is not None and broker.broker_epoch == broker_epoch and not broker.fenced:
                why = f"it was not heard for {self._session_timeout_ms} ms"
                if broker_id in self._dead:
                    why = "its process is dead"
                decide = functools.partial(
                    decide_fence, broker_id=broker_id, broker_epoch=broker_epoch
                )
                await self._controller.run("fence", decide, cause=why)
            if self._doomed.get(broker_id) == broker_epoch:
                del self._doomed[broker_id]

    async def _do_duties(self) -> None:
        now = self._env.clock.steady()
        if not self._duties or now < self._next_duty:
            return
        if not self._changed and now < self._next_duty + DUTY_S - DUTY_PAUSE_S:
            return
        self._changed = False
        self._next_duty = now + DUTY_PAUSE_S
        for name, duty in self._duties:
            await self._controller.run(name, duty)

    def _now_ms(self) -> int:
        """Steady: a clock that is set must not end anybody's session."""
        return round(self._env.clock.steady() * 1000)


def _nobody_is(_broker_id: BrokerId, _process: int) -> bool:
    return False
