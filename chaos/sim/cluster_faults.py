"""What goes wrong in a simulated cluster. Each fault is injected, held for a while and taken back; several at once.

They are biased to rare moments: a crash at a disk operation, a kill just when a leader changes or a batch is
committed, a pause that outlasts every timeout. `FAULTS` names them for `--faults`.
"""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from fencepost.cluster.base.ids import BrokerId

from .cluster_nodes import ClusterNodes, node_name
from .cluster_rare_faults import change_voters, reorder, replace_disk, rotten_file
from .cluster_watch import MOMENTS, ClusterWatch
from .plan import Plan
from .schedule import DICE, Schedule, Strike, Struck
from .world import NodeLost, World

AT_ONCE_MAX: Final = 3
PAUSE_S: Final = (0.05, 1.0)
BACK_S: Final = (0.0, 1.5)  # after what ended it, a node is started again


class ClusterFaults:
    """`run` breaks things until the time is over; `end` takes all of it back."""

    def __init__(
        self,
        world: World,
        nodes: ClusterNodes,
        watch: ClusterWatch,
        clients: list[str],
        plan: Plan,
    ) -> None:
        self.world = world
        self.nodes = nodes
        self.watch = watch
        self.clients = clients
        self.table: Mapping[str, Fault] = FAULTS
        self.usual: Sequence[str] = USUAL
        self._plan = plan
        self._schedule: Schedule | None = None
        self._others: random.Random = world.stream("faults")
        self._supervisor: random.Random = world.stream("supervisor")
        self._running: set[asyncio.Task[None]] = set()
        self._armed: list[tuple[str, Callable[[int], None], random.Random]] = []
        self._held_down: dict[int, int] = {}
        self.is_replacing = False  # a disk that was replaced is still being filled
        watch.on_moment = self._on_moment

    @property
    def rng(self) -> random.Random:
        """The dice of the fault that is running: whatever the others do, it draws the same."""
        return DICE.get() or self._others

    @property
    def struck(self) -> list[Struck]:
        return [] if self._schedule is None else self._schedule.struck

    async def run(self, seconds: float) -> None:
        schedule = self._schedule = Schedule(
            self.world, self._plan, self.usual, pause=lambda rng: rng.uniform(*PAUSE_S)
        )
        schedule.begin(seconds)
        keeper = asyncio.ensure_future(self._keep_up())
        while (strike := await schedule.next()) is not None:
            if len(self._running) < (self._plan.at_once or AT_ONCE_MAX):
                schedule.strikes(strike)
                task = asyncio.ensure_future(self._inject(strike))
                self._running.add(task)
                task.add_done_callback(self._ended)
        keeper.cancel()
        await asyncio.wait([keeper])

    async def _inject(self, strike: Strike) -> None:
        DICE.set(strike.rng)
        await self.table[strike.name](self)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.fail(error)

    async def end(self) -> None:
        """Whatever still runs is given up, and everything is healed."""
        self._armed.clear()
        for task in sorted(self._running, key=hash):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        for node_id in self.nodes.ids:
            self.world.disk(node_name(node_id)).files.capacity = None
        self.world.heal()
        self._held_down.clear()

    async def _keep_up(self) -> None:
        """The supervisor: what is down, and is not held down, comes back after a while."""
        while True:
            await asyncio.sleep(self._supervisor.uniform(*BACK_S))
            down = [
                id_
                for id_ in self.nodes.ids
                if not self.nodes.is_up(id_) and not self._held_down.get(id_)
            ]
            if down:
                self.nodes.start(self._supervisor.choice(down))

    # Whom it hits, and when.

    def _any(self) -> BrokerId:
        return self.rng.choice(self.nodes.ids)

    def _someone(self) -> BrokerId:
        """A node; more often one that matters: the controller, or the leader of some partition."""
        odds = self.rng.random()
        if odds < 0.25:
            controller = self.nodes.controller()
            if controller is not None:
                return controller
        return self._leader() if odds < 0.6 else self._any()

    def _leader(self) -> BrokerId:
        image = self.nodes.image
        if image is None or not image.topics:
            return self._any()
        topic = image.topics[self.rng.choice(sorted(image.topics))]
        leader = self.rng.choice(topic.partitions).leader
        return leader if leader in self.nodes.ids else self._any()

    def _pair(self) -> tuple[str, str]:
        one = self._someone()
        others = [id_ for id_ in self.nodes.ids if id_ != one] or [one]
        return node_name(one), node_name(self.rng.choice(others))

    def hold(self) -> float:
        """Mostly short; sometimes longer than a session timeout, or than any timeout of a client."""
        return self.rng.choice((0.05, 0.3, 1.0, 4.0, 8.0)) * self.rng.random()

    def _arm(self, moment: str, strike: Callable[[int], None]) -> None:
        self._armed.append((moment, strike, self.rng))

    def _on_moment(self, what: str, node_id: int) -> None:
        for place, (moment, strike, rng) in enumerate(self._armed):
            if moment == what:
                del self._armed[place]
                # Just behind it: the code that is running must not be cut off by its own watcher.
                delay = rng.choice((0.0, 0.0, 0.000_2, 0.002, 0.02))
                self.world.net.later(delay, partial(self._strike, strike, node_id, rng))
                return

    def _strike(self, strike: Callable[[int], None], node_id: int, rng: random.Random) -> None:
        before = DICE.set(rng)
        strike(node_id)
        DICE.reset(before)

    # The process.

    def _kill(self, node_id: int) -> None:
        if self.nodes.is_up(node_id):
            self.world.kill(node_name(node_id))

    def _power(self, node_id: int) -> None:
        torn, silent = self.rng.random() < 0.8, self.rng.random() < 0.5
        self.world.crash(node_name(node_id), torn=torn, silent=silent)

    async def _down(self, node_ids: Sequence[int], end: Callable[[int], None]) -> None:
        """End these, one after the other or at once, and hold them down."""
        try:
            for node_id in node_ids:
                self._held_down[node_id] = self._held_down.get(node_id, 0) + 1
                end(node_id)
                if self.rng.random() < 0.3:
                    await asyncio.sleep(self.hold() / 4)
            await asyncio.sleep(self.hold())
        finally:
            for node_id in node_ids:
                self._held_down[node_id] = max(0, self._held_down.get(node_id, 0) - 1)

    async def kill(self) -> None:
        await self._down([self._someone()], self._kill)

    async def kill_controller(self) -> None:
        await self._down([self.nodes.controller() or self._any()], self._kill)

    async def kill_two(self) -> None:
        await self._down(self.rng.sample(self.nodes.ids, min(2, len(self.nodes.ids))), self._kill)

    async def kill_all(self) -> None:
        await self._down(self.rng.sample(self.nodes.ids, len(self.nodes.ids)), self._kill)

    async def power_one(self) -> None:
        await self._down([self._someone()], self._power)

    async def power_all(self) -> None:
        await self._down(self.rng.sample(self.nodes.ids, len(self.nodes.ids)), self._power)

    async def power_apart(self) -> None:
        """One machine, and no other until all is whole again: what `flush.policy=os` has to bear, with --at-once 1."""
        await self._down([self._someone()], self._power)
        for _ in range(400):
            await asyncio.sleep(0.05)
            if not self.nodes.not_whole():
                return

    async def stop(self) -> None:
        """A clean stop, as in a rolling restart."""
        node_id = self._any()
        if node_id not in self.nodes.ready() or self.nodes.is_paused(node_id):
            return
        env = self.world.node(node_name(node_id))
        self._held_down[node_id] = self._held_down.get(node_id, 0) + 1
        try:
            async with asyncio.timeout(10):
                await self.nodes.stop(node_id)
        except (TimeoutError, NodeLost):
            pass  # the supervisor loses its patience, or something else ended it
        finally:
            if env.incarnation.alive:
                self._kill(node_id)
            self._held_down[node_id] -= 1

    async def pause(self) -> None:
        """SIGSTOP: it wakes later, and believes what it believed."""
        name = node_name(self._someone())
        if not self.world.is_up(name):
            return
        env = self.world.node(name)
        self.world.pause(name)
        await asyncio.sleep(self.hold() * 1.5)
        if env.incarnation.alive and env.incarnation.paused:
            self.world.resume(name)

    async def at_a_write(self) -> None:
        """Killed, or out of power, right behind one of its next disk operations."""
        node_id = self._someone()
        name = node_name(node_id)
        kill = self.rng.random() < 0.5
        self.world.crash_at_disk_op(name, self.rng.randint(1, 60), kill=kill)
        await asyncio.sleep(1.0)
        self.world.disk(name).on_operation = None

    async def at_a_moment(self) -> None:
        """Struck just when something happens to it, or to another one."""
        moment = self.rng.choice(MOMENTS)
        strike = self.rng.choice((self._kill, self._power, self._pause_shortly, self._kill_other))
        self._arm(moment, strike)
        await asyncio.sleep(1.0)

    def _pause_shortly(self, node_id: int) -> None:
        name = node_name(node_id)
        if not self.world.is_up(name):
            return
        env = self.world.node(name)
        self.world.pause(name)

        def wake() -> None:
            if env.incarnation.alive and env.incarnation.paused:
                self.world.resume(name)

        self.world.net.later(self.hold(), wake)

    def _kill_other(self, node_id: int) -> None:
        others = [id_ for id_ in self.nodes.ids if id_ != node_id]
        if others:
            self._kill(self.rng.choice(others))

    # The network.

    async def cut(self) -> None:
        one, other = self._pair()
        self.world.net.cut(one, other, one_way=self.rng.random() < 0.5)
        await asyncio.sleep(self.hold())
        self.world.net.heal(one, other)

    async def isolate(self) -> None:
        """From all other nodes, in one direction or both; clients may still reach it."""
        one = node_name(self._someone())
        one_way, inwards = self.rng.random() < 0.4, self.rng.random() < 0.5
        others = [name for name in self.nodes.names if name != one]
        for other in others:
            source, target = (other, one) if inwards else (one, other)
            self.world.net.cut(source, target, one_way=one_way)
        await asyncio.sleep(self.hold())
        for other in others:
            self.world.net.heal(one, other)

    async def cut_client(self) -> None:
        client, node = self.rng.choice(self.clients), node_name(self._someone())
        self.world.net.cut(client, node, one_way=self.rng.random() < 0.7)
        await asyncio.sleep(self.hold())
        self.world.net.heal(client, node)

    async def reset(self) -> None:
        one, other = self._pair()
        if self.rng.random() < 0.3:
            one = self.rng.choice(self.clients)
        self.world.net.reset(one, other)

    async def delay(self) -> None:
        """Slow and uneven, in one direction."""
        link = self.world.net.link(*self._pair())
        link.latency_s = (0.001, self.rng.choice((0.02, 0.2, 1.0)))
        link.spike_odds = 0.05
        await asyncio.sleep(self.hold())
        link.latency_s, link.spike_odds = (0.000_1, 0.001), 0.002

    # The disk and the clock.

    async def full_disk(self) -> None:
        files = self.world.disk(node_name(self._someone())).files
        files.capacity = files.used + self.rng.randint(0, 3000)
        await asyncio.sleep(self.hold())
        files.capacity = None

    async def failing_disk(self) -> None:
        """One operation fails with EIO. Whatever gave up on it needs the restart that an operator would do."""
        node_id = self._someone()
        faults = self.world.disk(node_name(node_id)).faults
        kind = self.rng.choice(("sync", "append", "sync_folder", "rename", "create"))
        path = self.rng.choice(("*", "*.log", "/data/metadata/*"))
        faults.fail(kind, path=path, number=errno.EIO)
        await asyncio.sleep(self.hold())
        faults.planned.clear()
        self._kill(node_id)

    async def failing_log(self) -> None:
        """A sync or a write of one partition fails, and its node lives on: the others have to take over."""
        node_id = self._leader()
        name = node_name(node_id)
        faults = self.world.disk(name).faults
        logs = sorted(map(str, self.nodes.broker(node_id).replicas.partitions))
        if not self.nodes.is_up(node_id) or not logs:
            return
        kind = self.rng.choice(("sync", "append"))
        faults.fail(kind, path=f"/data/{self.rng.choice(logs)}/*.log")
        await asyncio.sleep(self.hold())
        faults.planned.clear()
        if self.rng.random() < 0.5:
            self._kill(node_id)

    async def slow_disk(self) -> None:
        faults = self.world.disk(node_name(self._someone())).faults
        faults.slow_sync_odds = self.rng.choice((0.02, 0.2, 1.0))
        faults.slow_sync_s = self.rng.choice(((0.02, 0.2), (0.5, 5.0)))
        await asyncio.sleep(self.hold())
        faults.slow_sync_odds = 0.0

    async def clock(self) -> None:
        """Somebody sets the clock of a machine; nobody sets it back."""
        wall = self.world.machine(node_name(self._any())).wall
        wall.jump(self.rng.choice((-1, 1)) * self.rng.choice((50, 2_000, 60_000, 100_000_000)))
        wall.drift(self.rng.uniform(-500, 500))


Fault = Callable[[Any], Awaitable[None]]  # with the ClusterFaults that it belongs to
FAULTS: Final[dict[str, Fault]] = {
    "kill": ClusterFaults.kill,
    "kill-controller": ClusterFaults.kill_controller,
    "kill-two": ClusterFaults.kill_two,
    "kill-all": ClusterFaults.kill_all,
    "power-one": ClusterFaults.power_one,
    "power-all": ClusterFaults.power_all,
    "power-apart": ClusterFaults.power_apart,
    "stop": ClusterFaults.stop,
    "pause": ClusterFaults.pause,
    "at-a-write": ClusterFaults.at_a_write,
    "at-a-moment": ClusterFaults.at_a_moment,
    "cut": ClusterFaults.cut,
    "isolate": ClusterFaults.isolate,
    "cut-client": ClusterFaults.cut_client,
    "reset": ClusterFaults.reset,
    "delay": ClusterFaults.delay,
    "full-disk": ClusterFaults.full_disk,
    "failing-disk": ClusterFaults.failing_disk,
    "failing-log": ClusterFaults.failing_log,
    "slow-disk": ClusterFaults.slow_disk,
    "clock": ClusterFaults.clock,
    "reorder": reorder,
    "change-voters": change_voters,
    "replace-disk": replace_disk,
    "rotten-file": rotten_file,
}
# Only when asked for: runs in which everything happens have worse.
ASKED_FOR: Final = ("power-apart", "failing-log")
USUAL: Final = tuple(name for name in FAULTS if name not in ASKED_FOR)
