"""A broker's life in its cluster: it registers, sends heartbeats, is let in, and takes its leave.

INVARIANT  clients are let in only while the cluster counts this process in: registered, unfenced, and seen here.
PREVENTS   a node that serves clients in the name of a registration that another process has taken over.
PROVED BY  tests/node/test_cluster_session.py::test_a_node_whose_id_is_taken_says_so_and_ends

It registers as fenced; the first heartbeat that has seen the registration lets it in (Kafka's two steps). Told that
its epoch is stale it registers again, unless another process has its node id. Before a clean stop it asks to go:
its leaderships move first, so that clients lose no more than one refusal that names the new leader. Heartbeats name
the logs that failed here, until the image says that they did: others lead then. While the disk is full it says so behind each
heartbeat, and others lead, too.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.exit_codes import EXIT_IDENTITY, CannotRun
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env
from fencepost.cluster.controller.commands import (
    BrokerHeartbeat,
    FailedReplica,
    HeartbeatResult,
    RegisterBroker,
    ReportDisk,
    logs_of_topics,
)
from fencepost.cluster.controller.gate import ControllerGate, Unreadable
from fencepost.cluster.metadata.image import (
    NO_BROKER_EPOCH,
    BrokerState,
    ClusterImage,
    Endpoint,
    ImageDelta,
)

REGISTER_WITHIN_S: Final = 5.0  # of one try; there are as many as it takes
RETRY_S: Final = 0.2
# A process with our node id that was killed is given up after its session; one that lives is not.
DUPLICATE_SESSIONS: Final = 2
LEAVE_WITHIN_S: Final = 5.0  # for the leaderships to move
LEAVE_CHECK_S: Final = 0.02
UNKNOWN_S: Final = 30.0  # until a controller that does not know a command is asked again
FAILED_TOLD_MAX: Final = 5000  # logs in one heartbeat; the next one names others


def failed_replicas(failures: Iterable[tuple[UUID, int, bool]]) -> list[FailedReplica]:
    return [
        FailedReplica(topic_id=topic_id, partition=index, may_lack=may_lack)
        for topic_id, index, may_lack in failures
    ]


class BrokerSession:
    """`image` is this node's; `gate` the way to the controller, which is none without a majority of the voters."""

    def __init__(
        self,
        env: Env,
        gate: ControllerGate,
        image: ClusterImage,
        broker_id: BrokerId,
        *,
        rack: str | None,
        features: Mapping[str, tuple[int, int]],
        heartbeat_s: float,
        timeout_s: float,
        may_be_decided: Callable[[], bool],
        on_registered: Callable[[], None],
        disk: Callable[[], UUID],
        lacking: Callable[[], Sequence[tuple[UUID, int]] | None],
        failed_logs: Callable[[], Sequence[FailedReplica]],
        untold_failures: Callable[[], Sequence[FailedReplica]],
        is_disk_full: Callable[[], bool],
    ) -> None:
        self._env = env
        self._gate = gate
        self._image = image
        self._me = broker_id
        self._rack = rack
        self._features = dict(features)
        self._heartbeat_s = heartbeat_s
        self._timeout_s = timeout_s
        self._may_be_decided = may_be_decided
        self._on_registered = on_registered
        self._disk = disk
        self._lacking = lacking
        self._failed_logs = failed_logs
        self._untold_failures = untold_failures
        self._is_disk_full = is_disk_full
        self._told_full = False  # by the last report that arrived
        self._tells_again_s = 0.0
        self._incarnation = UUID(int=env.rng.getrandbits(128), version=4)
        self._endpoints: tuple[Endpoint, ...] = ()
        self.broker_epoch = NO_BROKER_EPOCH
        self._leaving = False
        self._let_in = asyncio.Event()
        self._answered_s = env.clock.steady()  # the last heartbeat
        self._now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def patience_s(self) -> float:
        """After so long the cluster knows whether a process with our id, or in our place, is dead."""
        return DUPLICATE_SESSIONS * self._timeout_s

    # --- coming ---

    async def start(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Returns when the cluster has let this broker in, and this node knows it."""
        self._endpoints = endpoints
        await self._register()
        self._task = self._env.tasks.spawn(self._live(), name="broker session")
        await self._let_in.wait()

    async def _register(self) -> None:
        clock = self._env.clock
        give_up = clock.steady() + self.patience_s
        lacking = self._lacking()
        command = RegisterBroker(
            broker_id=self._me,
            cluster_id=self._image.cluster_id,
            incarnation_id=self._incarnation,
            endpoints=self._endpoints,
            rack=self._rack,
            features=self._features,
            fenced=True,
            lacking=None if lacking is None else logs_of_topics(lacking),
            disk=self._disk(),
            failed=tuple(self._failed_logs()),
        )
        said = ""
        while True:
            try:
                registered = await self._gate.execute(command, within_s=REGISTER_WITHIN_S)
            except Trouble as trouble:
                if said != str(
                    trouble
                ):  # a controller without room on its disk may say it for hours
                    said = str(trouble)
                    self._env.log.warn("broker_not_registered_yet", cause=said)
                give_up = clock.steady() + self.patience_s
            else:
                if registered.error_code is ErrorCode.none:
                    self.broker_epoch = registered.broker_epoch
                    self._env.log.info("broker_registered", broker_epoch=self.broker_epoch)
                    if await self._is_known_here():
                        self._on_registered()
                        return
                    gone = "it was taken off the list of brokers before it had come"
                    self._env.log.warn("broker_registers_again", cause=gone)
                else:
                    duplicate = registered.error_code is ErrorCode.duplicate_broker_registration
                    if not duplicate or clock.steady() >= give_up:
                        why = self._why_refused(registered.error_code, registered.error_message)
                        raise CannotRun(why, EXIT_IDENTITY)
            await clock.sleep(RETRY_S)

    async def _is_known_here(self) -> bool:
        """What our image gave to the process before this one is not ours to lead. The gate waits for our image, too, but not
        for ever. False: the image has come that far, and another entry has taken us off the list already."""
        image = self._image
        while True:
            me = image.brokers.get(self._me)
            if me is not None and me.broker_epoch >= self.broker_epoch:
                return True
            if image.version >= self.broker_epoch:  # the version that registered us
                return False
            await self._env.clock.sleep(RETRY_S)

    def _why_refused(self, code: ErrorCode, message: str | None) -> str:
        if code is ErrorCode.duplicate_broker_registration:
            return (
                f"The cluster has a living node {self._me} already: this process must have been started "
                f"with another's node.id. Set node.id to one that is free, or stop the other. ({message})"
            )
        if code is ErrorCode.unsupported_version:
            return f"{message} Start node {self._me} with the build that the others run, or a newer one."
        return f"the cluster refused this node: {code.name}, {message}"

    # --- living ---

    async def _live(self) -> None:
        while not self._leaving:
            await self._beat()
            try:
                async with asyncio.timeout(self._heartbeat_s):
                    await self._now.wait()
            except TimeoutError:
                continue
            self._now.clear()

    async def _beat(self) -> None:
        try:
            result = await self._heartbeat(leaving=False)
        except Trouble as trouble:
            # The gate has tried for as long as a session lasts. The next one finds a controller, or does not.
            self._env.log.warn("heartbeat_failed", cause=str(trouble))
            return
        self._answered_s = self._env.clock.steady()
        if self._leaving:
            return
        if result.error_code is ErrorCode.stale_broker_epoch:
            await self._come_back(result.error_message)
        elif not result.is_fenced:
            await self._report_disk()
        else:
            # It has not seen its registration, or what fenced it: the next beat comes with the image.
            if not result.is_caught_up:
                await self._env.clock.sleep(LEAVE_CHECK_S)
            self._now.set()

    async def _report_disk(self) -> None:
        is_full = self._is_disk_full()
        if not (is_full or self._told_full) or self._env.clock.steady() < self._tells_again_s:
            return
        report = ReportDisk(broker_id=self._me, broker_epoch=self.broker_epoch, is_full=is_full)
        try:
            # A part of a session: heartbeats come behind it.
            await self._gate.execute(report, within_s=self._timeout_s / 2)
        except Trouble as trouble:
            # The next one tells it; what was told before is not believed for longer than a session.
            self._env.log.warn("disk_report_failed", cause=str(trouble))
            if isinstance(trouble, Unreadable):
                self._tells_again_s = self._env.clock.steady() + UNKNOWN_S
        else:
            self._told_full = is_full

    def log_failed(self) -> None:
        """The controller should hear of it now: what this broker leads without its log, nobody can write to."""
        self._now.set()

    @property
    def heartbeat_age_s(self) -> float:
        """Since a controller last answered; from the start on, where none has yet."""
        return self._env.clock.steady() - self._answered_s

    @property
    def is_cut_off(self) -> bool:
        """No controller has answered for so long that it has let others lead, if it lives."""
        return self.heartbeat_age_s > self._timeout_s

    async def _heartbeat(self, *, leaving: bool) -> HeartbeatResult:
        command = BrokerHeartbeat(
            broker_id=self._me,
            broker_epoch=self.broker_epoch,
            image_version=self._image.version,
            want_shut_down=leaving,
            failed=tuple(self._untold_failures()[:FAILED_TOLD_MAX]),
        )
        return await self._gate.execute(command, within_s=self._timeout_s)

    async def _come_back(self, why: str | None) -> None:
        """Our registration is not in force. What this process had in memory it still has: it lacks nothing."""
        now = self._image.brokers.get(self._me)
        if now is not None and now.incarnation_id != self._incarnation and self._is_newer(now):
            raise CannotRun(
                f"Another process has registered as node {self._me} while this one was not heard. This one ends. "
                "If both are meant to run, give one of them a node.id of its own.",
                EXIT_IDENTITY,
            )
        self._env.log.warn("broker_registers_again", cause=why)
        await self._register()
        self._now.set()

    def _is_newer(self, other: BrokerState) -> bool:
        return other.broker_epoch > self.broker_epoch

    def on_image(self, delta: ImageDelta) -> None:
        if self._me not in delta.brokers_changed:
            return
        me = self._image.brokers.get(self._me)
        if me is None or me.broker_epoch != self.broker_epoch:
            return
        if not me.fenced:
            self._let_in.set()
        elif self._let_in.is_set() and not self._leaving:
            self._env.log.warn("broker_was_fenced", broker_epoch=self.broker_epoch)
            self._now.set()

    # --- going ---

    async def leave(self) -> None:
        """Hand over what this broker leads, as far as others can take it; no longer than a bounded time."""
        self._leaving = True
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None
        if not self.others_serve:
            return
        handing_over = self._env.tasks.spawn(self._hand_over(), name="hand over")
        give_up = self._env.clock.steady() + LEAVE_WITHIN_S
        while not handing_over.done() and self._env.clock.steady() < give_up:
            await asyncio.wait([handing_over], timeout=LEAVE_CHECK_S)
            if not self._may_be_decided():
                break  # the others are going, too
        if not handing_over.done():
            handing_over.cancel()
            await asyncio.wait([handing_over])
            self._env.log.warn("leaderships_not_handed_over", cause="nobody decides")

    @property
    def others_serve(self) -> bool:
        """Whether somebody is there who leads when this broker has gone."""
        return any(
            broker.broker_id != self._me and not broker.in_controlled_shutdown
            for broker in self._image.alive_brokers()
        )

    async def _hand_over(self) -> None:
        """One command moves all that can move; what stays has nobody else in its ISR."""
        try:
            while (await self._heartbeat(leaving=True)).error_code is ErrorCode.none:
                for _ in range(round(self._heartbeat_s / LEAVE_CHECK_S) + 1):
                    me = self._image.brokers.get(self._me)
                    if me is None or me.in_controlled_shutdown or me.fenced:
                        return
                    await self._env.clock.sleep(LEAVE_CHECK_S)
        except Trouble as trouble:
            self._env.log.warn("leaderships_not_handed_over", cause=str(trouble))
