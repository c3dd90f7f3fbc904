"""A quorum under faults, and clients that propose to it: by seed, with Raft's four properties watched all the time.

    python -m fencepost.chaos.sim.quorum --seeds 0..1000

Three or five voters and up to two observers; processes die, machines lose power in the middle of a write, disks
fill up, stand still or are replaced by empty ones, processes are stopped and go on, networks are cut (one way too), lose,
delay, repeat and reorder, voters are added and removed. Then all is healed: what was acknowledged must be there, on
every node, and what was refused nowhere.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Final

from fencepost.cluster.base.errors import Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.metadata.records import ConfigsChanged
from fencepost.cluster.quorum import journal, raft_leader, store
from fencepost.cluster.quorum.journal import JournalLost
from fencepost.cluster.quorum.raft_shell import Quorum

from .node import SimEnv
from .quorum_links import PORT, QuorumLinks, host_of
from .quorum_witness import Witness
from .world import NodeLost, World

FOLDER: Final = "/data/quorum"
FAULTS: Final = (
    "kill",
    "power",
    "crash at a write",
    "pause",
    "isolate",
    "cut one way",
    "reset",
    "bad network",
    "slow disk",
    "full disk",
    "empty disk",
    "all die",
    "change voters",
)
CONVERGE_S: Final = 60.0


@contextlib.contextmanager
def small_limits() -> Iterator[None]:
    """So that snapshots, installs, pieces and segments happen in every run."""
    small = (
        (store, "SNAPSHOT_ENTRIES", 25),
        (journal, "SEGMENT_BYTES_MAX", 900),
        (raft_leader, "CHUNK_BYTES", 200),
        (raft_leader, "APPEND_BYTES_MAX", 400),
    )
    before = [getattr(module, name) for module, name, _ in small]
    for module, name, value in small:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(small, before, strict=True):
            setattr(module, name, value)


class QuorumRun:
    """One run."""

    def __init__(self, seed: int, *, seconds: float = 12, failing_disks: bool = False) -> None:
        """`failing_disks`: syncs and writes fail too, which ends the node that sees it."""
        self.world = World(seed=seed, deaths_allowed=failing_disks)
        self.failing = self.world.stream("failing disks") if failing_disks else None
        self.seconds = seconds
        self.rng = self.world.stream("faults")
        count = self.rng.choice((3, 3, 5))
        members = count + self.rng.choice((0, 1, 2))
        self.ids = [BrokerId(each) for each in range(1, members + 1)]
        self.peers = {each: (host_of(each), PORT) for each in self.ids}
        self.first_voters = {each: self.peers[each] for each in self.ids[:count]}
        self.witness = Witness(self.world.trace)
        self.quorums: dict[BrokerId, Quorum] = {}
        self.links: dict[BrokerId, QuorumLinks] = {}
        self.asked = 0
        self.acknowledged: set[str] = set()
        self.refused: set[str] = set()
        self.stopping = False
        self.wiped: BrokerId | None = None
        self.faults: list[str] = []

    def run(self) -> None:
        with small_limits(), self.world:
            self.world.run(self._scenario())

    async def _scenario(self) -> None:
        for each in self.ids:
            self._start(each)
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(self._client(), name=f"client {number}")
            await self._break_things()
            self._heal()
            await self._go_on()
            self.stopping = True
        await self._converge()
        self._check()

    # --- nodes ---

    def _start(self, node_id: BrokerId) -> None:
        self.quorums.pop(node_id, None)  # that of the process before
        self.world.start(
            self.world.restart(host_of(node_id)), lambda env: self._serve(env, node_id)
        )

    async def _serve(self, env: SimEnv, node_id: BrokerId) -> None:
        links = QuorumLinks(env, node_id, self.peers)
        machine = MetadataMachine()
        quorum = Quorum(env, FOLDER, machine, node_id, self.first_voters, links)
        await quorum.start()
        self.witness.watch(quorum)
        self.quorums[node_id], self.links[node_id] = quorum, links
        await links.open(quorum)

    def _up(self) -> list[BrokerId]:
        return [each for each in self.ids if self._is_up(each)]

    def _is_up(self, node_id: BrokerId) -> bool:
        quorum = self.quorums.get(node_id)
        return quorum is not None and self.world.is_up(host_of(node_id))

    def _leaders(self) -> list[BrokerId]:
        return [each for each in self._up() if self.quorums[each].is_leader]

    # --- clients ---

    async def _client(self) -> None:
        while not self.stopping:
            leaders = self._leaders()
            if not leaders:
                await asyncio.sleep(0.02)
                continue
            name = f"s{self.asked}"
            self.asked += 1
            change = ConfigsChanged(resource_type=ConfigType.BROKER, name="", changes={name: "1"})
            node_id = self.rng.choice(leaders)
            work = self.quorums[node_id].propose(encode([change]))
            try:
                await self.world.on(self.world.node(host_of(node_id)), work)
                self.acknowledged.add(name)
            except NodeLost:
                pass
            except Trouble as trouble:
                if trouble.outcome is Outcome.REFUSED:
                    self.refused.add(name)
            await asyncio.sleep(self.rng.uniform(0, 0.15))

    # --- faults ---

    async def _break_things(self) -> None:
        rng, until = self.rng, self.world.loop.time() + self.seconds
        await asyncio.sleep(rng.uniform(0, 1.5))
        while self.world.loop.time() < until:
            fault = rng.choice(FAULTS)
            self.faults.append(fault)
            self.world.trace.event("chaos", fault)
            await self._inject(fault, rng.choice(self.ids))
            await self._maybe_fail_a_disk()
            await asyncio.sleep(rng.choice((0.05, 0.5, 1.5)) * rng.random())
            for each in self.ids:
                if not self.world.is_up(host_of(each)) and rng.random() < 0.7:
                    self._start(each)

    async def _inject(self, fault: str, node_id: BrokerId) -> None:
        world, rng, name = self.world, self.rng, host_of(node_id)
        match fault:
            case "kill":
                world.kill(name)
            case "power":
                world.crash(name, torn=rng.random() < 0.8, silent=rng.random() < 0.5)
            case "crash at a write":
                world.crash_at_disk_op(name, rng.randint(1, 60), kill=rng.random() < 0.5)
            case "pause":
                await self._pause(name)
            case "isolate":
                world.net.isolate(name)
                await self._while_cut()
            case "cut one way":
                for other in rng.sample(self.ids, rng.randint(1, len(self.ids) - 1)):
                    if other != node_id:
                        world.net.cut(name, host_of(other), one_way=True)
                await self._while_cut()
            case "reset":
                for other in self.ids:
                    world.net.reset(name, host_of(other))
            case "all die":
                for other in self.ids:
                    world.crash(host_of(other), torn=rng.random() < 0.8)
            case "empty disk":
                await self._replace_disk(node_id)
            case "change voters":
                await self._change_voters(node_id)
            case _:
                await self._degrade(fault, node_id)

    async def _maybe_fail_a_disk(self) -> None:
        if self.failing is None or self.failing.random() < 0.8:
            return
        faults = self.world.disk(host_of(self.failing.choice(self.ids))).faults
        kind = self.failing.choice(("sync_error_odds", "write_error_odds"))
        self.world.trace.event("chaos", kind)
        setattr(faults, kind, self.failing.choice((0.02, 0.3)))
        await asyncio.sleep(self.failing.uniform(0, 0.5))
        setattr(faults, kind, 0.0)
        self._look_for_deaths()

    def _look_for_deaths(self) -> None:
        """A disk that fails ends its node; nothing else may."""
        for name, reason in self.world.deaths:
            assert isinstance(reason, JournalLost | OSError), f"{name} died: {reason!r}"

    async def _pause(self, name: str) -> None:
        if not self.world.is_up(name):
            return
        self.world.pause(name)
        await asyncio.sleep(self.rng.choice((0.3, 1.0, 3.0)) * self.rng.random())
        if self.world.is_up(name):
            self.world.resume(name)

    async def _while_cut(self) -> None:
        await asyncio.sleep(self.rng.choice((0.5, 2.0, 4.0)) * self.rng.random())
        self.world.net.heal_all()

    async def _degrade(self, fault: str, node_id: BrokerId) -> None:
        """Disks and networks that are worse for a while."""
        rng, disk, links = self.rng, self.world.disk(host_of(node_id)), self.links.get(node_id)
        match fault:
            case "slow disk":
                disk.faults.slow_sync_odds = rng.choice((0.0, 0.05, 0.5))
            case "full disk":
                disk.files.capacity = disk.files.used + rng.randint(0, 1000)
                await asyncio.sleep(rng.uniform(0.1, 3.0))
                disk.files.capacity = None
            case "bad network" if links is not None:
                links.loss_odds = rng.choice((0.0, 0.05, 0.3))
                links.late_odds = rng.choice((0.0, 0.05, 0.3))
                links.twice_odds = rng.choice((0.0, 0.05, 0.3))

    async def _replace_disk(self, node_id: BrokerId) -> None:
        """One at a time: the next only when the last one has caught up, as a person would do it."""
        last = self.wiped
        if last is not None and (not self._is_up(last) or self._is_fresh(last)):
            return
        if any(self._is_up(each) and self._is_fresh(each) for each in self.ids):
            return
        self.wiped = node_id
        self.quorums.pop(node_id, None)
        self.world.disk(
            host_of(node_id)
        ).on_operation = None  # no crash half-way: that is another disk
        self.world.restart(host_of(node_id)).disk.remove_tree(FOLDER)
        self._start(node_id)
        self.world.trace.event("chaos", "wiped", node=node_id)

    def _is_fresh(self, node_id: BrokerId) -> bool:
        raft = self.quorums[node_id]._raft
        return raft is None or raft.journal.vote.fresh

    async def _change_voters(self, node_id: BrokerId) -> None:
        for leader in self._leaders():
            quorum = self.quorums[leader]
            change: dict[str, Any] = {"add": (node_id, self.peers[node_id])}
            if node_id in quorum.voters:
                if len(quorum.voters) <= 2:
                    return
                change = {"remove": node_id}
            work = self.world.on(self.world.node(host_of(leader)), quorum.change_voters(**change))
            with contextlib.suppress(Trouble, TimeoutError):
                await asyncio.wait_for(work, self.rng.uniform(0.01, 3))
            return

    # --- the end ---

    def _heal(self) -> None:
        world = self.world
        world.heal()
        for each in self.ids:
            world.disk(host_of(each)).files.capacity = None
            if each in self.links:
                links = self.links[each]
                links.loss_odds = links.late_odds = links.twice_odds = 0.0
            if not world.is_up(host_of(each)):
                self._start(each)

    async def _go_on(self) -> None:
        """All is well: within a minute there is a leader, and it commits."""
        async with asyncio.timeout(CONVERGE_S):
            enough = len(self.acknowledged) + 5
            while True:
                await asyncio.sleep(0.05)
                if len(self.acknowledged) >= enough:
                    return

    async def _converge(self) -> None:
        """Nobody asks for anything more: all nodes come to have the same."""
        async with asyncio.timeout(CONVERGE_S):
            while True:
                versions = {self.quorums[each].image.version for each in self._up()}
                if len(self._up()) == len(self.ids) and len(versions) == 1 and self._leaders():
                    return
                await asyncio.sleep(0.05)

    def _check(self) -> None:
        self._look_for_deaths()
        images = [set(self.quorums[each].image.config(ConfigType.BROKER, "")) for each in self.ids]
        assert all(image == images[0] for image in images), "images of one version differ"
        assert self.acknowledged <= images[0], f"lost: {sorted(self.acknowledged - images[0])}"
        assert not self.refused & images[0], f"refused: {sorted(self.refused & images[0])}"
        assert self.acknowledged, "nothing was acknowledged: this proves nothing"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fencepost.chaos.sim.quorum", description=__doc__
    )
    parser.add_argument(
        "--seeds", default="0..100", metavar="A..B", help="from A up to, not including, B"
    )
    parser.add_argument("--seconds", type=float, default=12.0, help="virtual seconds of faults")
    arguments = parser.parse_args()
    first, _, end = arguments.seeds.partition("..")
    acknowledged, terms, failed = 0, 0, []
    for seed in range(int(first), int(end or int(first) + 1)):
        run = QuorumRun(seed, seconds=arguments.seconds, failing_disks=seed % 2 == 1)
        try:
            run.run()
        except Exception as failure:  # noqa: BLE001 - every failure of a seed is reported, and fails the run
            failed.append(seed)
            again = f"python -m fencepost.chaos.sim.quorum --seeds {seed}..{seed + 1}"
            print(f"seed {seed}: {_root(failure)!r}", file=sys.stderr)
            print(f"  again: {again} --seconds {arguments.seconds}", file=sys.stderr)
        acknowledged += len(run.acknowledged)
        terms += len(run.witness.properties.leaders)
    print(
        f"{acknowledged:,} acknowledged in {terms} terms, {len(failed)} seeds failed {failed[:20]}"
    )
    return 1 if failed else 0


def _root(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


if __name__ == "__main__":
    sys.exit(main())
