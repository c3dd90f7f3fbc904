"""What goes wrong in a simulated cluster. Each fault is injected, held for a while and taken back; several at once.

They are biased to rare moments: a crash at a disk operation, a kill just when a leader changes or a batch is
committed, a pause that outlasts every timeout. `cluster_fault_table.py` names them for `--faults`.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from fencepost.cluster.base.ids import BrokerId

from .cluster_disks import mend
from .cluster_nodes import ClusterNodes, node_name
from .cluster_watch import MOMENTS, ClusterWatch
from .plan import Plan
from .schedule import DICE, Schedule, Strike, Struck
from .world import NodeLost, World

AT_ONCE_MAX: Final = 3
PAUSE_S: Final = (0.05, 1.0)
BACK_S: Final = (0.0, 1.5)  # after what ended it, a node is started again
# These come on top in some seeds, by dice of their own: a seed of before they were there has the same others.
ON_TOP: Final = {
    "more faults": (0.35, ("rotten-log", "broker-comes", "broker-goes", "older-build", "drift")),
    "suspended": (0.2, ("suspend",)),
    "more failures": (0.25, ("failing-files",)),
    "rotten while stopped": (0.2, ("rotten-stopped",)),
    "disks in trouble": (
        0.25,
        ("full-then-power", "full-at-a-sync", "read-only", "no-descriptors"),
    ),
}
Fault = Callable[[Any], Awaitable[None]]  # with the ClusterFaults that it belongs to


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
        self.table: Mapping[str, Fault] = {}
        self.usual: Sequence[str] = ()
        self._plan = plan
        self._schedule: Schedule | None = None
        self._others: random.Random = world.stream("faults")
        self._supervisor: random.Random = world.stream("supervisor")
        self._running: set[asyncio.Task[None]] = set()
        self._armed: list[tuple[str, Callable[[int], None], random.Random]] = []
        self._held_down: dict[int, int] = {}
        self.is_replacing = False  # a disk that was replaced is still being filled
        self.leaving: BrokerId | None = None  # on its way out for good
        self.is_swept = False  # the one write of `each-write` was chosen
        self.is_playing = False  # one of `aimed_faults.py`
        self.scenes = 0  # of those, so many so far
        self.played: Counter[str] = Counter()  # and to their ends
        self.seed = plan.seed
        self.protocol = plan.protocol  # of transactions, where the plan says it
        watch.on_moment = self._on_moment

    @property
    def rng(self) -> random.Random:
        """The dice of the fault that is running: whatever the others do, it draws the same."""
        return DICE.get() or self._others

    @property
    def struck(self) -> list[Struck]:
        return [] if self._schedule is None else self._schedule.struck

    async def run(self, seconds: float) -> None:
        usual = [*self.usual]
        for stream, (odds, more) in ON_TOP.items():
            if self.world.stream(stream).random() < odds:
                usual += more
        schedule = self._schedule = Schedule(
            self.world, self._plan, usual, pause=lambda rng: rng.uniform(*PAUSE_S)
        )
        schedule.begin(seconds)
        keeper = self.world.beside(self._keep_up())
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
        if self.one_by_one:
            await self._until_whole()

    @property
    def one_by_one(self) -> bool:
        """With --at-once 1 no fault strikes before what the last one did is mended."""
        return self._plan.at_once == 1

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self.world.ended(task)

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

    def mend(self) -> str:
        """What persons do: they start what is down, again what a failed disk was given back to, and replace what has rotted.
        Why that can't be done yet, or empty."""
        self.nodes.start_all()
        waits = mend(self)
        for node_id in self.nodes.ready():
            if self.nodes.brokers[node_id].replicas.offline and node_id != self.nodes.rotten:
                self.nodes.start(node_id)
        return waits

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

    def any(self) -> BrokerId:
        return self.rng.choice(self.nodes.ids)

    def someone(self) -> BrokerId:
        """A node; more often one that matters: the controller, or the leader of some partition."""
        odds = self.rng.random()
        if odds < 0.25:
            controller = self.nodes.controller()
            if controller is not None:
                return controller
        return self.leader() if odds < 0.6 else self.any()

    def leader(self) -> BrokerId:
        image = self.nodes.image
        if image is None or not image.topics:
            return self.any()
        topic = image.topics[self.rng.choice(sorted(image.topics))]
        leader = self.rng.choice(topic.partitions).leader
        return leader if leader in self.nodes.ids else self.any()

    def _pair(self) -> tuple[str, str]:
        one = self.someone()
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

    def kill_now(self, node_id: int) -> None:
        if self.nodes.is_up(node_id):
            self.world.kill(node_name(node_id))

    def power_now(self, node_id: int) -> None:
        torn, silent = self.rng.random() < 0.8, self.rng.random() < 0.5
        self.world.crash(node_name(node_id), torn=torn, silent=silent)

    def hold_down(self, node_id: int, by: int) -> None:
        """Nobody starts it as long as somebody holds it down."""
        self._held_down[node_id] = max(0, self._held_down.get(node_id, 0) + by)

    async def down(self, node_ids: Sequence[int]) -> None:
        await self._down(node_ids, self.kill_now)

    async def _down(self, node_ids: Sequence[int], end: Callable[[int], None]) -> None:
        """End these, one after the other or at once, and hold them down."""
        try:
            for node_id in node_ids:
                self.hold_down(node_id, 1)
                end(node_id)
                if self.rng.random() < 0.3:
                    await asyncio.sleep(self.hold() / 4)
            await asyncio.sleep(self.hold())
        finally:
            for node_id in node_ids:
                self.hold_down(node_id, -1)

    async def kill(self) -> None:
        await self._down([self.someone()], self.kill_now)

    async def kill_controller(self) -> None:
        await self._down([self.nodes.controller() or self.any()], self.kill_now)

    async def kill_two(self) -> None:
        await self._down(
            self.rng.sample(self.nodes.ids, min(2, len(self.nodes.ids))), self.kill_now
        )

    async def kill_all(self) -> None:
        await self._down(self.rng.sample(self.nodes.ids, len(self.nodes.ids)), self.kill_now)

    async def power_one(self) -> None:
        await self._down([self.someone()], self.power_now)

    async def power_all(self) -> None:
        await self._down(self.rng.sample(self.nodes.ids, len(self.nodes.ids)), self.power_now)

    async def power_apart(self) -> None:
        """One machine, and no other until all is whole again: what `flush.policy=os` has to bear, with --at-once 1."""
        await self._down([self.someone()], self.power_now)
        await self._until_whole()

    async def _until_whole(self) -> None:
        for _ in range(400):
            await asyncio.sleep(0.05)
            if not self.nodes.not_whole():
                return

    async def stop(self) -> None:
        """A clean stop, as in a rolling restart."""
        node_id = self.any()
        if node_id not in self.nodes.ready() or self.nodes.is_paused(node_id):
            return
        env = self.world.node(node_name(node_id))
        self.hold_down(node_id, 1)
        try:
            async with asyncio.timeout(10):
                await self.nodes.stop(node_id)
        except (TimeoutError, NodeLost):
            pass  # the supervisor loses its patience, or something else ended it
        finally:
            if env.incarnation.alive:
                self.kill_now(node_id)
            self.hold_down(node_id, -1)

    async def pause(self) -> None:
        """SIGSTOP: it wakes later, and believes what it believed."""
        await self.stand_still(self.someone(), self.world.pause)

    async def stand_still(self, node_id: int, stop: Callable[[str], None]) -> None:
        name = node_name(node_id)
        if not self.world.is_up(name):
            return
        env = self.world.node(name)
        stop(name)
        await asyncio.sleep(self.hold() * 1.5)
        if env.incarnation.alive and env.incarnation.paused:
            self.world.resume(name)

    async def at_a_write(self) -> None:
        """Killed, or out of power, right behind one of its next disk operations."""
        node_id = self.someone()
        name = node_name(node_id)
        kill = self.rng.random() < 0.5
        self.world.crash_at_disk_op(name, self.rng.randint(1, 60), kill=kill)
        await asyncio.sleep(1.0)
        self.world.disk(name).on_operation = None

    async def at_a_moment(self) -> None:
        """Struck just when something happens to it, or to another one."""
        moment = self.rng.choice(MOMENTS)
        strike = self.rng.choice(
            (self.kill_now, self.power_now, self.pause_shortly, self.kill_other)
        )
        self._arm(moment, strike)
        await asyncio.sleep(1.0)

    def pause_shortly(self, node_id: int) -> None:
        self.pause_for(node_id, self.hold)

    def pause_for(self, node_id: int, hold: Callable[[], float]) -> None:
        name = node_name(node_id)
        if not self.world.is_up(name):
            return
        env = self.world.node(name)
        self.world.pause(name)

        def wake() -> None:
            if env.incarnation.alive and env.incarnation.paused:
                self.world.resume(name)

        self.world.net.later(hold(), wake)

    def cut_off(self, node_id: int) -> None:
        """From all other nodes, for a while."""
        name = node_name(node_id)
        others = [each for each in self.nodes.names if each != name]
        for other in others:
            self.world.net.cut(name, other)

        def heal() -> None:
            for other in others:
                self.world.net.heal(name, other)

        self.world.net.later(self.hold(), heal)

    def kill_other(self, node_id: int) -> None:
        others = [id_ for id_ in self.nodes.ids if id_ != node_id]
        if others:
            self.kill_now(self.rng.choice(others))

    # The network.

    async def cut(self) -> None:
        one, other = self._pair()
        self.world.net.cut(one, other, one_way=self.rng.random() < 0.5)
        await asyncio.sleep(self.hold())
        self.world.net.heal(one, other)

    async def isolate(self) -> None:
        """From all other nodes, in one direction or both; clients may still reach it."""
        one = node_name(self.someone())
        one_way, inwards = self.rng.random() < 0.4, self.rng.random() < 0.5
        others = [name for name in self.nodes.names if name != one]
        for other in others:
            source, target = (other, one) if inwards else (one, other)
            self.world.net.cut(source, target, one_way=one_way)
        await asyncio.sleep(self.hold())
        for other in others:
            self.world.net.heal(one, other)

    async def cut_client(self) -> None:
        client, node = self.rng.choice(self.clients), node_name(self.someone())
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
