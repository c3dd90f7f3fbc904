"""Jobs that commit as groups and producers of half messages, in a simulated cluster whose nodes die and are cut off.

    python tests/sim/added_under_faults.py 0 200

At the end every outcome that anybody was told must be what everybody is told, and what the markers in the written
partition say, each transaction's the same. Producers begin each transaction anew, so that each has an epoch of its own.
"""

import asyncio
import pathlib
import random
import sys
from typing import Any

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "node")]

from fencepost.chaos.sim.cluster_nodes import node_name  # noqa: E402
from fencepost.cluster.base.errors import Trouble  # noqa: E402
from fencepost.cluster.wire.batch import headers_of  # noqa: E402
from fencepost.cluster.wire.records import read_control, read_records  # noqa: E402
from sim_transactions import Fenced, TransactionCluster  # noqa: E402

JOBS, WRITERS, SHOPS, CHECKERS = 2, 2, 3, 2
FAULTS_S = 4.0
CALM_S = 120.0
CHECKS = {
    "transaction.check.interval.ms": "200",
    "transaction.check.interval.max.ms": "1000",
    "transaction.check.max": "30",
    "transaction.check.delivery.timeout.ms": "300",
}
Identity = dict[str, int]


class Run:
    def __init__(self, seed: int) -> None:
        self.cluster = TransactionCluster(seed=f"added/{seed}", **CHECKS)
        self.dice = random.Random(f"added/{seed}")
        self.decided: dict[tuple[str, int], tuple[str, dict[str, Identity]]] = {}
        self.halves: dict[str, str] = {}  # half message -> how somebody was told that it ended
        self.wanted: dict[str, str] = {}  # what its local transaction came to
        self.who: dict[str, tuple[str, Identity]] = {}
        self.faults_over = False

    def go(self) -> str:
        self.cluster.play_up(self.scenario)
        commits = sum(said == "commit" for said, _ in self.decided.values())
        parts = sorted(set(self.halves.values()))
        return f"{len(self.decided)} ends ({commits} commits), {len(self.halves)} halves {parts}"

    async def scenario(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for job in range(JOBS):
                tasks.create_task(self.drive(f"job{job}"))
            shops = [tasks.create_task(self.sell(f"shop::{n}")) for n in range(SHOPS)]
            checking = [tasks.create_task(self.check(f"c{n}")) for n in range(CHECKERS)]
            await self.break_things()
            self.faults_over = True
            await asyncio.wait(shops)
            async with asyncio.timeout(CALM_S):
                while await self.undecided():
                    await asyncio.sleep(0.1)
            for each in checking:
                each.cancel()
        await self.verify()

    # -- faults ----------------------------------------------------------------------------------

    async def break_things(self) -> None:
        cluster, dice = self.cluster, self.dice
        until = cluster.now + FAULTS_S
        while cluster.now < until:
            await asyncio.sleep(dice.uniform(0.02, 0.6))
            victim = dice.choice(
                (cluster.coordinator("shop"), cluster.coordinator("job0"), 1, 2, 3)
            )
            if victim < 1 or not cluster.world.is_up(node_name(victim)):
                continue
            name = node_name(victim)
            match dice.choice(("kill", "power", "cut", "client", "pause", "clock")):
                case "kill":
                    cluster.world.kill(name)
                case "power":
                    cluster.world.crash_at_disk_op(name, dice.randint(1, 20))
                    await asyncio.sleep(0.2)
                    cluster.world.disk(name).on_operation = None
                case "cut":
                    cluster.world.net.isolate(name)
                case "client":
                    cluster.world.net.reset("client", name)
                case "pause":
                    cluster.world.pause(name)
                case "clock":
                    wall = cluster.world.machine(name).wall
                    wall.jump(dice.choice((-1, 1)) * dice.choice((2_000, 60_000, 100_000_000)))
            await asyncio.sleep(dice.uniform(0.0, 1.5))
            cluster.world.heal()
            self.start_all()
        cluster.world.heal()
        self.start_all()

    def start_all(self) -> None:
        for node_id in self.cluster.nodes.ids:
            if not self.cluster.world.is_up(node_name(node_id)):
                self.cluster.nodes.start(node_id)

    # -- groups ----------------------------------------------------------------------------------

    async def drive(self, job: str) -> None:
        """A driver and its writers. Every now and then it dies after it has sent its end, and begins again by asking."""
        path = f"/v1/transaction-groups/{job}"
        number = 0
        while not self.faults_over:
            members = await self.writers(job)
            outcome = self.dice.choice(("commit", "commit", "abort"))
            end = {"number": number, "outcome": outcome, "members": members}
            if self.dice.random() < 0.3:
                await self.say_and_die(f"{path}/end", end)
                _, fields = await self.cluster.admin_until("GET", f"{path}/decisions/{number}")
                if fields["outcome"] == "undecided":
                    members = await self.writers(job)  # fences what is still under way
                    _, fields = await self.cluster.admin_until("GET", f"{path}/decisions/{number}")
                    if fields["outcome"] == "undecided":
                        end = {**end, "members": members}
                        status, fields = await self.cluster.admin_until("POST", f"{path}/end", end)
                        if status == 200:
                            self.told(job, number, fields)
                            assert fields["members"] == members, "the fenced end came through"
                        number += status == 200
                        continue
                self.told(job, number, fields)
                number += 1
                continue
            status, fields = await self.cluster.admin_until("POST", f"{path}/end", end)
            if status == 200:
                self.told(job, number, fields)
                assert fields["outcome"] == outcome
                number += 1

    async def writers(self, job: str) -> dict[str, Identity]:
        return {f"w{writer}": await self.opened(job, f"w{writer}") for writer in range(WRITERS)}

    async def opened(self, group: str, member: str) -> Identity:
        """A producer with an open transaction."""
        while True:
            identity = await self.cluster.starts(group, member)
            try:
                await self.cluster.writes(group, member, identity, "t")
            except Fenced:
                continue
            return identity

    async def say_and_die(self, path: str, body: Any) -> None:
        try:
            async with asyncio.timeout(self.dice.uniform(0.0, 0.02)):
                await self.cluster.admin(self.dice.choice((1, 2, 3)), "POST", path, body)
        except (Trouble, TimeoutError):
            pass

    def told(self, job: str, number: int, fields: dict[str, Any]) -> None:
        said = (fields["outcome"], fields["members"])
        assert self.decided.setdefault((job, number), said) == said

    # -- half messages ---------------------------------------------------------------------------

    async def sell(self, name: str) -> None:
        """A producer: some half messages it ends itself, perhaps late and against what a checker says; others it leaves."""
        group, _, member = name.partition("::")
        serial = 0
        while not self.faults_over:
            serial += 1
            transactional_id = f"{group}::{member}-{serial}"
            identity = await self.opened(group, f"{member}-{serial}")
            half_id = f"{name}/{serial}"
            self.wanted[half_id] = self.dice.choice(("commit", "rollback"))
            self.who[half_id] = (transactional_id, identity)
            body = {"transactional_id": transactional_id, "half_id": half_id, **identity}
            status, fields = await self.cluster.admin_until("POST", "/v1/checks/prepare", body)
            if status != 200:
                # Its time was over while nobody could be reached: aborted, and so it is told.
                assert fields["error"] in ("PRODUCER_FENCED", "INVALID_TXN_STATE"), fields
                del self.wanted[half_id], self.who[half_id]
                continue
            if self.dice.random() < 0.4:
                continue  # it has died; somebody else is asked
            await asyncio.sleep(self.dice.choice((0.0, 0.0, 0.3)))
            verdict = self.dice.choice((self.wanted[half_id], "commit", "rollback"))
            answer = {"transactional_id": transactional_id, "half_id": half_id}
            answer |= {"verdict": verdict, "member": "its own"}
            status, fields = await self.cluster.admin_until("POST", "/v1/checks/answer", answer)
            assert status == 200, fields
            self.ended(half_id, fields["state"])

    async def check(self, member: str) -> None:
        """Dies every now and then with checks in its hands, and says unknown every now and then."""
        while True:
            poll = {"group": "shop", "member": member, "wait_ms_max": 1_000}
            _, fields = await self.cluster.admin_until("POST", "/v1/checks/poll", poll)
            if self.dice.random() < 0.2:
                continue
            for each in fields["checks"]:
                verdict = self.wanted[each["half_id"]]
                if self.dice.random() < 0.2:
                    verdict = "unknown"
                body = {**each, "verdict": verdict, "member": member}
                status, answered = await self.cluster.admin_until("POST", "/v1/checks/answer", body)
                assert status == 200, answered
                if answered["state"] in ("committed", "rolled_back"):
                    self.ended(each["half_id"], answered["state"])

    def ended(self, half_id: str, state: str) -> None:
        assert self.halves.setdefault(half_id, state) == state, f"{half_id} ended twice"

    async def undecided(self) -> list[Any]:
        _, fields = await self.cluster.admin_until("GET", "/v1/checks")
        if fields["nodes_not_reached"]:
            return ["?"]
        return [each for each in fields["half_messages"] if each["state"] != "parked"]

    # -- at the end ------------------------------------------------------------------------------

    async def verify(self) -> None:
        expected: dict[tuple[int, int], bool] = {}
        for (job, number), (outcome, members) in self.decided.items():
            path = f"/v1/transaction-groups/{job}/decisions/{number}"
            _, fields = await self.cluster.admin_until("GET", path)
            now = fields["outcome"], fields["members"]
            assert now == (outcome, members), f"{job} {number} was told {outcome}, and is {now}"
            for each in members.values():
                expected[each["producer_id"], each["producer_epoch"]] = outcome == "commit"
        for half_id, (transactional_id, identity) in self.who.items():
            state = await self.state_of(transactional_id)
            self.ended(half_id, state)
            key = (identity["producer_id"], identity["producer_epoch"])
            expected[key] = state == "committed"
        async with asyncio.timeout(CALM_S):
            while missing := expected.keys() - (await self.markers()).keys():
                await asyncio.sleep(0.2)
        assert not missing
        found = await self.markers()
        for key, commit in expected.items():
            assert found[key] == {commit}, f"producer {key} is {found[key]}, decided {commit}"

    async def state_of(self, transactional_id: str) -> str:
        for _ in range(2_000):
            for node_id in (1, 2, 3):
                try:
                    status, fields = await self.cluster.admin(
                        node_id,
                        "GET",
                        "/v1/checks/half-message",
                        transactional_id=transactional_id,
                    )
                except Trouble:
                    continue
                if status == 200:
                    return str(fields["state"])
                assert status == 503, fields
            await asyncio.sleep(0.05)
        raise AssertionError(f"nobody knows {transactional_id}")

    async def markers(self) -> dict[tuple[int, int], set[bool]]:
        """What the written partition says of each producer and epoch."""
        found: dict[tuple[int, int], set[bool]] = {}
        offset = 0
        while True:
            leader = self.cluster.partition().leader
            reply = await self.cluster.fetch(leader, offset)
            data = bytes(reply.records or b"")
            if reply.error_code or not data:
                return found
            for position, header in headers_of(data):
                for record in read_records(data, position):
                    marker = read_control(record)
                    if marker is not None:
                        key = (header.producer_id, header.producer_epoch)
                        found.setdefault(key, set()).add(marker.commit)
                    offset = record.offset + 1


def main() -> None:
    first, end = map(int, sys.argv[1:3])
    for seed in range(first, end):
        print(seed, Run(seed).go(), flush=True)


if __name__ == "__main__":
    main()
