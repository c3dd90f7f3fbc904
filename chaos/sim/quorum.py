"""A quorum under faults, and clients that propose to it: by seed, with Raft's four properties watched all the time.

    fencepost sim run --campaign quorum --seeds 0..1000

Three or five voters and up to two observers; processes die, machines lose power in the middle of a write, disks
fill up, stand still or are replaced by empty ones, processes are stopped and go on, networks are cut (one way too), lose,
delay, repeat and reorder, voters are added and removed. Then all is healed: what was acknowledged must be there, on
every node, and what was refused nowhere.
"""

import asyncio
import random
from typing import Any, Final

from fencepost.cluster.base.errors import Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.metadata.records import ConfigsChanged
from fencepost.cluster.quorum.journal import JournalLost
from fencepost.cluster.quorum.raft_shell import Quorum

from .deaths import may_end_a_node
from .habits import drawn
from .limits import small_limits
from .node import SimEnv
from .plan import Plan
from .quorum_faults import FOLDER, QuorumFaults
from .quorum_links import PORT, QuorumLinks, host_of
from .quorum_witness import Witness
from .schedule import Struck
from .world import NodeLost, World

CONVERGE_S: Final = 60.0
CLIENTS: Final = ("client-0", "client-1", "client-2")


class QuorumRun:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(
            seed=plan.seed, deaths_allowed=self._may_end_a_node, trace_kept=plan.trace_kept
        )
        self.world.disk_habits = drawn(lambda name: self.world.stream(f"voters {name}"))
        self.faults = QuorumFaults(self)
        self.rng = self.world.stream("run")
        count = self.rng.choice((3, 3, 5))
        members = count + self.rng.choice((0, 1, 2))
        self.ids = [BrokerId(each) for each in range(1, members + 1)]
        self.peers = {each: (host_of(each), PORT) for each in self.ids}
        self.first_voters = {each: self.peers[each] for each in self.ids[:count]}
        self.witness = Witness(self.world.trace)
        self.quorums: dict[BrokerId, Quorum] = {}
        self.links: dict[BrokerId, QuorumLinks] = {}
        self.asked = 0
        self.told: set[str] = set()
        self.refused: set[str] = set()
        self.stopping = False

    def _may_end_a_node(self, name: str, reason: BaseException) -> bool:
        """A disk that fails, or has lost what was written; nothing else may."""
        rotten = self.faults.rots_on(name)
        is_lost = isinstance(reason, JournalLost)
        return is_lost or may_end_a_node(self.world.disk(name), reason, rotten=rotten)

    @property
    def struck(self) -> list[Struck]:
        return self.faults.schedule.struck

    @property
    def acknowledged(self) -> int:
        return len(self.told)

    @property
    def counts(self) -> dict[str, int]:
        return {"terms": len(self.witness.properties.leaders)}

    @property
    def client_groups(self) -> list[list[str]]:
        return [[name] for name in CLIENTS if self.plan.keeps_client(name)]

    def explain(self) -> str:
        return f"faults: {', '.join(map(str, self.struck))}\n{self.world.trace.tail(30)}"

    def run(self) -> None:
        with small_limits(), self.world:
            self.world.run(self._scenario())

    async def _scenario(self) -> None:
        for each in self.ids:
            self.start(each)
        async with asyncio.TaskGroup() as group:
            for name in CLIENTS:
                if self.plan.keeps_client(name):
                    group.create_task(self._client(self.world.stream(name)), name=name)
            await self.faults.run()
            self._heal()
            await self._go_on()
            self.stopping = True
        await self._converge()
        self._check()

    # --- nodes ---

    def start(self, node_id: BrokerId) -> None:
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
        self._watch_votes(quorum)
        self.quorums[node_id], self.links[node_id] = quorum, links
        await links.open(quorum)

    def _watch_votes(self, quorum: Quorum) -> None:
        raft = quorum._raft
        assert raft is not None
        vote: Any = raft.journal.vote
        store = vote.store

        def watched(term: int, voted_for: BrokerId | None, *, fresh: bool | None = None) -> None:
            is_news = (term, voted_for) != (vote.term, vote.voted_for)
            store(term, voted_for, fresh=fresh)
            if is_news and voted_for is not None:
                name = host_of(quorum.node_id)
                self.world.trace.event(name, "raft.vote", term=term, candidate=voted_for)
                self.faults.on_vote(quorum.node_id, voted_for)

        vote.store = watched

    def is_whole(self) -> bool:
        """All are there, and have the same."""
        versions = {self.quorums[each].image.version for each in self.up()}
        return len(self.up()) == len(self.ids) and len(versions) == 1 and bool(self.leaders())

    def up(self) -> list[BrokerId]:
        return [each for each in self.ids if self.is_up(each)]

    def is_up(self, node_id: BrokerId) -> bool:
        quorum = self.quorums.get(node_id)
        return quorum is not None and self.world.is_up(host_of(node_id))

    def leaders(self) -> list[BrokerId]:
        return [each for each in self.up() if self.quorums[each].is_leader]

    # --- clients ---

    async def _client(self, rng: random.Random) -> None:
        while not self.stopping:
            leaders = self.leaders()
            if not leaders:
                await asyncio.sleep(0.02)
                continue
            name = f"s{self.asked}"
            self.asked += 1
            change = ConfigsChanged(resource_type=ConfigType.BROKER, name="", changes={name: "1"})
            node_id = rng.choice(leaders)
            work = self.quorums[node_id].propose(encode([change]))
            try:
                await self.world.on(self.world.node(host_of(node_id)), work)
                self.told.add(name)
            except NodeLost:
                pass
            except Trouble as trouble:
                if trouble.outcome is Outcome.REFUSED:
                    self.refused.add(name)
            await asyncio.sleep(rng.uniform(0, 0.15))

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
                self.start(each)

    async def _go_on(self) -> None:
        """All is well: within a minute there is a leader, and it commits."""
        enough = len(self.told) + 5
        end = self.world.loop.time() + CONVERGE_S
        while len(self.told) < enough:
            assert self.world.loop.time() < end, f"no-progress: {len(self.told)} were committed"
            self.faults.look_after_rot()
            await asyncio.sleep(0.05)

    async def _converge(self) -> None:
        """Nobody asks for anything more: all nodes come to have the same."""
        end = self.world.loop.time() + CONVERGE_S
        while not self.is_whole():
            self.faults.look_after_rot()
            versions = {each: self.quorums[each].image.version for each in self.up()}
            assert self.world.loop.time() < end, f"images-differ: versions are {versions}"
            await asyncio.sleep(0.05)

    def _check(self) -> None:
        images = [set(self.quorums[each].image.config(ConfigType.BROKER, "")) for each in self.ids]
        assert all(image == images[0] for image in images), "images-differ: of one version"
        assert self.told <= images[0], f"lost: {sorted(self.told - images[0])}"
        there = sorted(self.refused & images[0])
        assert not there, f"phantom: {there} were refused, and are there"
        assert self.told, "nothing was acknowledged: this proves nothing"
