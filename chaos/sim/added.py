"""Jobs that commit as groups and producers of half messages, in a simulated cluster whose nodes die and are cut off.

    fencepost sim run --campaign added --seeds 0..200

At the end every outcome that anybody was told must be what everybody is told, and what the markers in the written
partition say, each transaction's the same. Producers begin each transaction anew, so that each has an epoch of its own.
"""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC
from fencepost.cluster.wire.batch import headers_of
from fencepost.cluster.wire.records import read_control, read_records
from fencepost.txn.runtime.ownership import partition_for

from ..checkers.told import Answered
from ..workloads.added_client import AddedClient, Fenced, Identity, NobodyAnswers
from ..workloads.cluster_client import ClusterClient, fetch
from ..workloads.txn_added import failed
from .cluster import START_S, SWEEP_S, create_topic
from .cluster_admin import Admin
from .cluster_nodes import CLIENT_PORT, ClusterNodes, node_name
from .deaths import may_end_a_node
from .habits import drawn
from .http import TOKEN, ask_http
from .plan import Plan
from .schedule import Schedule, Strike, Struck
from .transaction_watch import TransactionWatch
from .world import World

CLIENT, TOPIC = "client", "t"
ADMIN_PORT: Final = 9644
JOBS, WRITERS, SHOPS, CHECKERS = 2, 2, 3, 2
FAULTS: Final = ("kill", "power", "cut", "reset", "pause", "clock")
FAULTS_S: Final = 4.0
CALM_S: Final = 120.0
SETTINGS: Final = (
    f"admin.listener=0.0.0.0:{ADMIN_PORT}",
    f"admin.token={TOKEN}",
    "transaction.state.log.num.partitions=2",
    "transaction.check.interval.ms=200",
    "transaction.check.interval.max.ms=1000",
    "transaction.check.max=30",
    "transaction.check.delivery.timeout.ms=300",
)


class AddedRun:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(
            f"added/{plan.seed}", deaths_allowed=self._may_end, trace_kept=plan.trace_kept
        )
        self.world.blames_nodes = True
        self.world.disk_habits = drawn(self.world.stream)
        config = (*SETTINGS, *plan.config)
        self.watch = TransactionWatch(self.world, inside=plan.looks_inside)
        self.nodes = ClusterNodes(
            self.world, plan.nodes or 3, config=config, on_start=self.watch.hook
        )
        self.watch.nodes = self.nodes
        self.schedule = Schedule(self.world, plan, FAULTS, pause=lambda rng: rng.uniform(0.02, 1.5))
        self.decided: dict[tuple[str, int], tuple[str, dict[str, Identity]]] = {}
        self.halves: dict[str, str] = {}  # half message -> how somebody was told that it ended
        self.answered = Answered()
        self.wanted: dict[str, str] = {}  # what its local transaction came to
        self.who: dict[str, tuple[str, Identity]] = {}
        self.faults_over = False
        self.client: AddedClient

    # -- what the campaign asks ------------------------------------------------------------------

    def run(self) -> None:
        with self.world:
            self.world.run(self._scenario())

    @property
    def struck(self) -> list[Struck]:
        return self.schedule.struck

    @property
    def acknowledged(self) -> int:
        return len(self.decided) + len(self.halves)

    @property
    def counts(self) -> dict[str, int]:
        ends = [said for said, _ in self.decided.values()]
        halves = list(self.halves.values())
        return {
            **{f"groups {said}": ends.count(said) for said in sorted(set(ends))},
            **{f"halves {said}": halves.count(said) for said in sorted(set(halves))},
        }

    @property
    def client_groups(self) -> list[list[str]]:
        return [[name] for name in self._names() if self.plan.keeps_client(name)]

    def _names(self) -> list[str]:
        return [*(f"job{n}" for n in range(JOBS)), *(f"shop::{n}" for n in range(SHOPS))]

    def explain(self) -> str:
        return f"faults: {', '.join(map(str, self.struck))}\n{self.world.trace.tail(30)}"

    def _may_end(self, name: str, reason: BaseException) -> bool:
        return may_end_a_node(self.world.disk(name), reason)

    # -- the whole -------------------------------------------------------------------------------

    async def _scenario(self) -> None:
        env = self.world.node(CLIENT)
        self.nodes.start_all()
        await self.nodes.until_ready(START_S)
        wire = ClusterClient(env, self.nodes.addresses, name=CLIENT)
        await self.world.on(env, create_topic(Admin(wire, self.nodes, TOPIC), TOPIC, 1))
        places = [(int(n), (node_name(n), CLIENT_PORT)) for n in self.nodes.ids]
        self.client = AddedClient(env, places, self._ask_admin, self._coordinator)
        sweeping = self.world.beside(self._sweep())
        async with asyncio.TaskGroup() as tasks:
            for name in self._names():
                if self.plan.keeps_client(name) and name.startswith("job"):
                    tasks.create_task(self._on(self._drive(name)))
            shops = [
                tasks.create_task(self._on(self._sell(name)))
                for name in self._names()
                if self.plan.keeps_client(name) and name.startswith("shop")
            ]
            checking = [tasks.create_task(self._on(self._check(f"c{n}"))) for n in range(CHECKERS)]
            await self._break_things()
            self.faults_over = True
            if shops:
                await asyncio.wait(shops)
            async with asyncio.timeout(CALM_S):
                await self._on(self._until_all_decided())
            for each in checking:
                each.cancel()
        await self._on(self._verify(wire))
        sweeping.cancel()
        await asyncio.wait([sweeping])
        await self.nodes.until_whole()
        self.watch.sweep(producers=True)
        self.watch.compare_bytes()
        self.watch.compare_tables()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.watch.sweep()

    def _on(self, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        return self.world.on(self.world.node(CLIENT), work)

    def _dice(self, name: str) -> random.Random:
        return self.world.stream(f"client/{name}")

    async def _ask_admin(
        self, node_id: int, method: str, path: str, body: Any, query: dict[str, str]
    ) -> tuple[int, Any]:
        env = self.world.node(CLIENT)
        return await ask_http(env, node_name(node_id), ADMIN_PORT, method, path, body, **query)

    def _coordinator(self, group: str) -> int:
        image = self.nodes.image
        topic = None if image is None else image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return -1
        return int(topic.partitions[partition_for(group, len(topic.partitions))].leader)

    # -- faults ----------------------------------------------------------------------------------

    async def _break_things(self) -> None:
        self.schedule.begin(FAULTS_S)
        while (strike := await self.schedule.next()) is not None:
            some = (self._coordinator("shop"), self._coordinator("job0"), *self.nodes.ids)
            victim = strike.rng.choice(some)
            if victim < 1 or not self.world.is_up(node_name(victim)):
                continue
            self.schedule.strikes(strike)
            await self._inject(strike, node_name(victim))
            await asyncio.sleep(strike.rng.uniform(0.0, 1.5))
            self._heal()
        self._heal()

    async def _inject(self, strike: Strike, name: str) -> None:
        world, rng = self.world, strike.rng
        match strike.name:
            case "kill":
                world.kill(name)
            case "power":
                world.crash_at_disk_op(name, rng.randint(1, 20))
                await asyncio.sleep(0.2)
                world.disk(name).on_operation = None
            case "cut":
                world.net.isolate(name)
            case "reset":
                world.net.reset(CLIENT, name)
            case "pause":
                world.pause(name)
            case _:
                ahead = rng.choice((-1, 1)) * rng.choice((2_000, 60_000, 100_000_000))
                world.machine(name).wall.jump(ahead)

    def _heal(self) -> None:
        self.world.heal()
        self.nodes.start_all()

    # -- groups ----------------------------------------------------------------------------------

    async def _drive(self, job: str) -> None:
        """A driver and its writers. Every now and then it dies after it has sent its end, and begins again by asking."""
        path, dice = f"/v1/transaction-groups/{job}", self._dice(job)
        number = 0
        while not self.faults_over:
            members = await self._writers(job)
            outcome = dice.choice(("commit", "commit", "abort"))
            end = {"number": number, "outcome": outcome, "members": members}
            if dice.random() < 0.3:
                await self._say_and_die(f"{path}/end", end, dice)
                number += await self._begin_again(job, number, end)
                continue
            status, fields = await self.client.admin_until("POST", f"{path}/end", end)
            if status == 200:
                self.told(job, number, fields)
                assert fields["outcome"] == outcome, f"{job} {number}: wanted {outcome}, {fields}"
                number += 1
            else:
                failed(f"number {number} of {job}", status, fields)

    async def _begin_again(self, job: str, number: int, end: dict[str, Any]) -> int:
        """What a driver does that does not know what became of its last end; 1 when that transaction is over."""
        path = f"/v1/transaction-groups/{job}"
        asked = f"{path}/decisions/{number}"
        _, fields = await self.client.admin_until("GET", asked)
        if fields["outcome"] == "undecided":
            members = await self._writers(job)  # fences what is still under way
            _, fields = await self.client.admin_until("GET", asked)
            if fields["outcome"] == "undecided":
                again = {**end, "members": members}
                status, fields = await self.client.admin_until("POST", f"{path}/end", again)
                if status == 200:
                    self.told(job, number, fields)
                    assert fields["members"] == members, "the fenced end came through"
                else:
                    failed(f"number {number} of {job}, begun anew", status, fields)
                return int(status == 200)
        self.told(job, number, fields)
        return 1

    async def _writers(self, job: str) -> dict[str, Identity]:
        return {f"w{writer}": await self._opened(job, f"w{writer}") for writer in range(WRITERS)}

    async def _opened(self, group: str, member: str) -> Identity:
        """A producer with an open transaction."""
        while True:
            identity = await self.client.starts(group, member)
            try:
                await self.client.adds(group, member, identity, TOPIC)
            except Fenced:
                continue
            return identity

    async def _say_and_die(self, path: str, body: Any, dice: random.Random) -> None:
        try:
            async with asyncio.timeout(dice.uniform(0.0, 0.02)):
                await self.client.admin(dice.choice(self.nodes.ids), "POST", path, body)
        except (Trouble, TimeoutError):
            pass

    def told(self, job: str, number: int, fields: dict[str, Any]) -> None:
        said = (fields["outcome"], fields["members"])
        known = self.decided.setdefault((job, number), said)
        assert known == said, f"decision-changed: {job} {number} was told {known}, and is {said}"

    # -- half messages ---------------------------------------------------------------------------

    async def _sell(self, name: str) -> None:
        """A producer: some half messages it ends itself, perhaps late and against what a checker says; others it leaves."""
        group, _, member = name.partition("::")
        dice, serial = self._dice(name), 0
        while not self.faults_over:
            serial += 1
            transactional_id = f"{group}::{member}-{serial}"
            identity = await self._opened(group, f"{member}-{serial}")
            half_id = f"{name}/{serial}"
            self.wanted[half_id] = dice.choice(("commit", "rollback"))
            self.who[half_id] = (transactional_id, identity)
            body = {"transactional_id": transactional_id, "half_id": half_id, **identity}
            status, fields = await self.client.admin_until("POST", "/v1/checks/prepare", body)
            if status != 200:
                # Its time was over while nobody could be reached: aborted, and so it is told.
                assert fields["error"] in ("PRODUCER_FENCED", "INVALID_TXN_STATE"), fields
                del self.wanted[half_id], self.who[half_id]
                continue
            if dice.random() < 0.4:
                continue  # it has died; somebody else is asked
            await self.world.node(CLIENT).clock.sleep(dice.choice((0.0, 0.0, 0.3)))
            verdict = dice.choice((self.wanted[half_id], "commit", "rollback"))
            answer = {"transactional_id": transactional_id, "half_id": half_id}
            answer |= {"verdict": verdict, "member": "its own"}
            self.answered.sent(half_id, verdict)
            status, fields = await self.client.admin_until("POST", "/v1/checks/answer", answer)
            assert status == 200, fields
            self._ended(half_id, fields["state"])

    async def _check(self, member: str) -> None:
        """Dies every now and then with checks in its hands, and says unknown every now and then."""
        dice = self._dice(member)
        while True:
            poll = {"group": "shop", "member": member, "wait_ms_max": 1_000}
            _, fields = await self.client.admin_until("POST", "/v1/checks/poll", poll)
            if dice.random() < 0.2:
                continue
            for each in fields["checks"]:
                verdict = self.wanted[each["half_id"]]
                if dice.random() < 0.2:
                    verdict = "unknown"
                body = {**each, "verdict": verdict, "member": member}
                self.answered.sent(each["half_id"], verdict)
                status, answered = await self.client.admin_until("POST", "/v1/checks/answer", body)
                assert status == 200, answered
                if answered["state"] in ("committed", "rolled_back"):
                    self._ended(each["half_id"], answered["state"])

    def _ended(self, half_id: str, state: str) -> None:
        known = self.halves.setdefault(half_id, state)
        assert known == state, (
            f"decision-changed: half message {half_id} ended {known}, then {state}"
        )
        self.watch.report(self.answered.see(half_id, state))

    async def _until_all_decided(self) -> None:
        while True:
            _, fields = await self.client.admin_until("GET", "/v1/checks")
            halves = fields["half_messages"]
            unheard = fields["nodes_not_reached"] or fields["partitions_without_a_coordinator"]
            if not unheard and all(each["state"] == "parked" for each in halves):
                return
            await self.world.node(CLIENT).clock.sleep(0.1)

    # -- at the end ------------------------------------------------------------------------------

    async def _verify(self, wire: ClusterClient) -> None:
        expected: dict[tuple[int, int], bool] = {}
        for (job, number), (outcome, members) in self.decided.items():
            path = f"/v1/transaction-groups/{job}/decisions/{number}"
            _, fields = await self.client.admin_until("GET", path)
            now = fields["outcome"], fields["members"]
            was = (outcome, members)
            assert now == was, f"decision-changed: {job} {number} was told {outcome}, and is {now}"
            for each in members.values():
                expected[each["producer_id"], each["producer_epoch"]] = outcome == "commit"
        for half_id, (transactional_id, identity) in self.who.items():
            _, fields = await self.client.admin_until(
                "GET", "/v1/checks/half-message", transactional_id=transactional_id
            )
            self._ended(half_id, str(fields["state"]))
            key = (identity["producer_id"], identity["producer_epoch"])
            expected[key] = fields["state"] == "committed"
        found: dict[tuple[int, int], set[bool]] = {}
        try:
            async with asyncio.timeout(CALM_S):
                while expected.keys() - (found := await self._markers(wire)).keys():
                    await wire.env.clock.sleep(0.2)
        except TimeoutError:
            missing = sorted(expected.keys() - found.keys())
            raise NobodyAnswers(f"no-progress: no marker is there of producers {missing}") from None
        for key, commit in expected.items():
            what = f"producer {key} has {found[key]}, decided is {commit}"
            assert found[key] == {commit}, f"marker-undecided: {what}"

    async def _markers(self, wire: ClusterClient) -> dict[tuple[int, int], set[bool]]:
        """What the written partition says of each producer and epoch."""
        found: dict[tuple[int, int], set[bool]] = {}
        offset = 0
        while True:
            try:
                leader = await wire.leader_now(TOPIC, 0)
                reply = await fetch(leader, 0, offset, max_wait_ms=0)
            except Trouble:
                return found  # asked again: it is not all there
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
