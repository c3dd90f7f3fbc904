"""What goes wrong in a simulated quorum, one thing after the other.

`at-a-vote` is for the rarest moment of all: a voter that dies between the requests of two candidates of one term.
"""

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.quorum.raft_leader import LETS_GO

from .quorum_links import host_of
from .schedule import Schedule, Strike

if TYPE_CHECKING:
    from .quorum import QuorumRun

FAULTS: Final = (
    "kill",
    "power",
    "crash-at-a-write",
    "at-a-vote",
    "pause",
    "isolate",
    "cut-one-way",
    "reset",
    "bad-network",
    "slow-disk",
    "full-disk",
    "failing-disk",
    "empty-disk",
    "rotten-disk",
    "all-die",
    "change-voters",
)
FAULTS_S: Final = 12.0
FOLDER: Final = "/data/quorum"
WHOLE_S: Final = 10.0


class QuorumFaults:
    def __init__(self, run: "QuorumRun") -> None:
        self._run = run
        self._world = run.world
        self._supervisor = run.world.stream("supervisor")
        self.schedule = Schedule(run.world, run.plan, FAULTS, pause=_pause)
        self.rots = False  # a disk that has lost what was written may end its node now
        self._rotten: BrokerId | None = None  # whose it is
        self._wiped: BrokerId | None = None
        self._at_a_vote: random.Random | None = None
        # A candidate that is stopped while its requests are on their way.
        self._sleeper: BrokerId | None = None

    async def run(self) -> None:
        run = self._run
        self.schedule.begin(FAULTS_S)
        while (strike := await self.schedule.next()) is not None:
            self.schedule.strikes(strike)
            await self._inject(strike, strike.rng.choice(run.ids))
            for each in run.ids:
                if not self._world.is_up(host_of(each)) and self._supervisor.random() < 0.7:
                    run.start(each)

    async def _inject(self, strike: Strike, node_id: BrokerId) -> None:
        world, rng, name, ids = self._world, strike.rng, host_of(node_id), self._run.ids
        match strike.name:
            case "kill":
                world.kill(name)
            case "power":
                world.crash(name, torn=rng.random() < 0.8, silent=rng.random() < 0.5)
            case "crash-at-a-write":
                world.crash_at_disk_op(name, rng.randint(1, 60), kill=rng.random() < 0.5)
            case "at-a-vote":
                await self._strike_voters(rng)
            case "pause":
                await self._pause(name, rng)
            case "isolate":
                world.net.isolate(name)
                await self._while_cut(rng)
            case "cut-one-way":
                for other in rng.sample(ids, rng.randint(1, len(ids) - 1)):
                    if other != node_id:
                        world.net.cut(name, host_of(other), one_way=True)
                await self._while_cut(rng)
            case "reset":
                for other in ids:
                    world.net.reset(name, host_of(other))
            case "all-die":
                for other in ids:
                    world.crash(host_of(other), torn=rng.random() < 0.8)
            case "empty-disk":
                self._replace_disk(node_id)
            case "rotten-disk":
                await self._rot(node_id, rng)
            case "change-voters":
                await self._change_voters(node_id, rng)
            case _:
                await self._degrade(strike.name, node_id, rng)

    # Processes and votes.

    async def _pause(self, name: str, rng: random.Random) -> None:
        if not self._world.is_up(name):
            return
        self._world.pause(name)
        await asyncio.sleep(rng.choice((0.3, 1.0, 3.0)) * rng.random())
        if self._world.is_up(name):
            self._world.resume(name)

    async def _strike_voters(self, rng: random.Random) -> None:
        """Two stand for one term at once, and can't hear each other; whoever votes dies behind its vote, and is back before
        the other one's request comes: a vote that was not kept would be given again. Who is back votes for nobody for an
        election's time, in which that other one would stand anew: so it sleeps meanwhile."""
        run = self._run
        leaders = run.leaders()
        if len(leaders) != 1:
            return
        voters = run.quorums[leaders[0]].voters
        others = [each for each in run.up() if each not in leaders and each in voters]
        if len(others) < 2:
            return
        raft = run.quorums[leaders[0]]._raft
        assert raft is not None
        one, late = rng.sample(others, 2)
        self._world.net.cut(host_of(one), host_of(late))
        run.links[late].late_odds = 1.0
        self._at_a_vote, self._sleeper = rng, late if rng.random() < 0.7 else None
        let_go = {"type": "pre_vote_granted", "round": LETS_GO, "fresh": False}
        for each in others:
            stands = each in (one, late)
            raft._transport.say(each, {"type": "timeout_now"} if stands else let_go)
        await asyncio.sleep(rng.uniform(0.3, 1.5))
        if self._sleeper is not None:
            if self._world.is_paused(host_of(self._sleeper)):
                self._world.resume(host_of(self._sleeper))
            await asyncio.sleep(0.3)
        self._at_a_vote = self._sleeper = None
        if late in run.links:
            run.links[late].late_odds = 0.0
        self._world.net.heal_all()

    def on_vote(self, voter: BrokerId, candidate: BrokerId) -> None:
        """A vote was stored, and its answer is about to leave."""
        rng = self._at_a_vote
        if rng is not None and voter == candidate == self._sleeper:
            self._world.net.later(0.001, lambda: self._put_to_sleep(voter))
        if rng is None or voter == candidate or rng.random() < 0.2:
            return

        def strike() -> None:
            if self._at_a_vote is not rng:
                return  # all was healed meanwhile: what is cut now would stay so
            if rng.random() < 0.5:
                self._world.crash(host_of(voter), torn=rng.random() < 0.5)
            self._run.start(voter)
            # Else the one who won tells it of new entries, and it refuses whoever lacks those.
            self._world.net.cut(host_of(voter), host_of(candidate))

        self._world.net.later(rng.choice((0.0, 0.001)), strike)

    def _put_to_sleep(self, node_id: BrokerId) -> None:
        if node_id == self._sleeper and self._world.is_up(host_of(node_id)):
            self._world.pause(host_of(node_id))

    # The network.

    async def _while_cut(self, rng: random.Random) -> None:
        await asyncio.sleep(rng.choice((0.5, 2.0, 4.0)) * rng.random())
        self._world.net.heal_all()

    async def _degrade(self, fault: str, node_id: BrokerId, rng: random.Random) -> None:
        """Disks and networks that are worse for a while."""
        disk, links = self._world.disk(host_of(node_id)), self._run.links.get(node_id)
        match fault:
            case "slow-disk":
                disk.faults.slow_sync_odds = rng.choice((0.0, 0.05, 0.5))
            case "full-disk":
                disk.files.capacity = disk.files.used + rng.randint(0, 1000)
                await asyncio.sleep(rng.uniform(0.1, 3.0))
                disk.files.capacity = None
            case "failing-disk":
                odds = rng.choice(("sync_error_odds", "write_error_odds"))
                setattr(disk.faults, odds, rng.choice((0.02, 0.3)))
                await asyncio.sleep(rng.uniform(0, 0.5))
                setattr(disk.faults, odds, 0.0)
            case "bad-network" if links is not None:
                links.loss_odds = rng.choice((0.0, 0.05, 0.3))
                links.late_odds = rng.choice((0.0, 0.05, 0.3))
                links.twice_odds = rng.choice((0.0, 0.05, 0.3))

    # Disks that lose everything, or a bit.

    def _replace_disk(self, node_id: BrokerId) -> None:
        """One at a time: the next only when the last one has caught up, as a person would do it."""
        run, last = self._run, self._wiped
        if last not in (None, node_id) and (not run.is_up(last) or self._is_fresh(last)):
            return
        if any(run.is_up(each) and self._is_fresh(each) for each in run.ids):
            return
        self._wiped = node_id
        run.quorums.pop(node_id, None)
        # No crash half-way: that is another disk.
        self._world.disk(host_of(node_id)).on_operation = None
        self._world.restart(host_of(node_id)).disk.remove_tree(FOLDER)
        run.start(node_id)
        self._world.trace.event("chaos", "wiped", node=node_id)

    def _is_fresh(self, node_id: BrokerId) -> bool:
        raft = self._run.quorums[node_id]._raft
        return raft is None or raft.journal.vote.fresh

    async def _rot(self, node_id: BrokerId, rng: random.Random) -> None:
        """Bits of one file change while its node is down. It must see that, or not need them; then its disk is replaced.

        Only when all have all: the newest entries of a journal with a flipped bit look like a torn end, and are cut.
        """
        run, name = self._run, host_of(node_id)
        if not run.is_whole() or any(self._is_fresh(each) for each in run.ids):
            return
        self._world.kill(name)
        files = [path for path, _ in self._world.disk(name).files.files() if FOLDER in path]
        if not files:
            return
        self.rots, self._rotten = True, node_id
        self._world.disk(name).flip_bits(rng.choice(files), rng.choice((1, 1, 8)))
        run.start(node_id)
        end = self._world.loop.time() + WHOLE_S
        while not run.is_whole() and self._world.loop.time() < end:
            if not self._world.is_up(name):
                self._replace_disk(node_id)
            await asyncio.sleep(0.05)
        self.rots = not run.is_whole()

    def rots_on(self, name: str) -> bool:
        return self.rots and self._rotten is not None and name == host_of(self._rotten)

    def look_after_rot(self) -> None:
        """A person waits with a rotten disk until the other that was replaced is well, until the end if need be."""
        if self.rots and self._rotten is not None and not self._run.is_up(self._rotten):
            self._replace_disk(self._rotten)

    async def _change_voters(self, node_id: BrokerId, rng: random.Random) -> None:
        run = self._run
        for leader in run.leaders():
            quorum = run.quorums[leader]
            change: dict[str, Any] = {"add": (node_id, run.peers[node_id])}
            if node_id in quorum.voters:
                if len(quorum.voters) <= 2:
                    return
                change = {"remove": node_id}
            work = self._world.on(self._world.node(host_of(leader)), quorum.change_voters(**change))
            with contextlib.suppress(Trouble, TimeoutError):
                await asyncio.wait_for(work, rng.uniform(0.01, 3))
            return


def _pause(rng: random.Random) -> float:
    return rng.choice((0.05, 0.5, 1.5)) * rng.random()
