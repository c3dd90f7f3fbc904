"""Consumer groups under random members: they join, leave, die, come back, revoke slowly and lose answers."""

import random
from collections import Counter
from uuid import UUID

import pytest
from consumer_client import Client
from consumer_world import GROUP, Coordinator, request
from fencepost.txn.groups.consumer_config import ConsumerConfig
from fencepost.txn.groups.consumer_group import GroupState
from fencepost.txn.groups.consumer_member import MAY_BECOME, MemberState

SEEDS = range(150)
STEPS = 60
TOPICS = ("orders", "orders-eu", "refunds")


class Run:
    def __init__(self, seed: int, *, interval_ms: int = 0) -> None:
        self.rng = random.Random(seed)
        config = ConsumerConfig(group_consumer_assignment_interval_ms=interval_ms)
        self.coordinator = Coordinator(config)
        for name in TOPICS:
            self.coordinator.change(self.coordinator.topics.create(name, self.rng.randint(1, 6)))
        self.clients: list[Client] = []
        self.serial = 0
        self.steps_seen: Counter[tuple[MemberState, MemberState]] = Counter()
        self.same_wishes = self.rng.random() < 0.5
        self.uses_regexes = self.rng.random() < 0.4

    # ---- what happens -----------------------------------------------------------------------

    def wish(self, client: Client) -> None:
        if self.uses_regexes and self.rng.random() < 0.5:
            client.names = None if client.epoch == 0 else ()
            client.regex = self.rng.choice(("orders.*", "refunds", ".*"))
        else:
            client.regex = "" if self.uses_regexes else None
            names = TOPICS if self.same_wishes else self.rng.sample(TOPICS, self.rng.randint(0, 3))
            client.names = tuple(names)
        client.news = True

    def join(self) -> None:
        if len(self.clients) >= 6:
            return
        self.serial += 1
        instance_id = f"i{self.rng.randint(1, 3)}" if self.rng.random() < 0.3 else None
        client = Client(self.rng, f"m{self.serial}", instance_id)
        client.assignor = self.rng.choice((None, None, "uniform", "range"))
        self.wish(client)
        self.clients.append(client)
        self.beat(client)

    def beat(self, client: Client) -> None:
        before = {m.member_id: m.state for m in self.members()}
        client.beat(self.coordinator, lose_answer=self.rng.random() < 0.1)
        for member in self.members():
            if member.member_id in before and member.member_id == client.member_id:
                self.steps_seen[before[member.member_id], member.state] += 1

    def members(self):
        group = self.coordinator.machine.groups.get(GROUP)
        return [] if group is None else list(group.members.values())

    def leave(self, client: Client) -> None:
        if client.epoch > 0:
            epoch = -2 if client.instance_id and self.rng.random() < 0.6 else -1
            self.coordinator.hear(request(client.member_id, epoch, instance_id=client.instance_id))
        client.is_alive = False

    def step(self) -> None:
        live = [client for client in self.clients if client.is_alive]
        dice = self.rng.random()
        if not live or dice < 0.1:
            self.join()
        elif dice < 0.7:
            self.beat(self.rng.choice(live))
        elif dice < 0.75:
            self.leave(self.rng.choice(live))
        elif dice < 0.78:
            self.rng.choice(live).is_alive = False  # dies without a word
        elif dice < 0.83:
            self.wish(self.rng.choice(live))
        elif dice < 0.87:
            self.topic()
        elif dice < 0.9:
            self.coordinator.fail_over()
        else:
            self.coordinator.sleep(self.rng.choice((100, 3_000, 10_001, 30_000, 50_000)))
        self.clients = [client for client in self.clients if client.is_alive]
        self.check()

    def topic(self) -> None:
        topics = self.coordinator.topics
        name = self.rng.choice(TOPICS)
        if name not in topics.found:
            self.coordinator.change(topics.create(name, self.rng.randint(1, 6)))
        elif self.rng.random() < 0.7:
            self.coordinator.change(topics.grow(name, self.rng.randint(1, 3)))
        else:
            self.coordinator.change(topics.delete(name))

    # ---- what must hold ---------------------------------------------------------------------

    def check(self) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        by_id = {member.member_id: member for member in self.members()}
        for member in by_id.values():
            for part in (member.assigned, member.pending_revocation):
                for topic_id, partitions in part.items():
                    for partition in partitions:
                        assert (topic_id, partition) not in owners, "two members own a partition"
                        owners[topic_id, partition] = member.member_id
        for client in self.clients:
            # Whoever was thrown out hears of it at its next heartbeat; its session ended before.
            if (
                client.member_id in by_id
                and by_id[client.member_id].member_epoch >= client.epoch > 0
            ):
                mine = {tp for tp, owner in owners.items() if owner == client.member_id}
                assert client.held <= mine, (
                    "a client reads what its coordinator gave to no one or another"
                )

    def settle(self) -> int:
        """Nothing happens any more but heartbeats; how many rounds until the group is stable."""
        for client in self.clients:
            client.rng = random.Random(0)
        for round_ in range(1, 30):
            self.coordinator.sleep(5_000)
            for client in self.clients:
                client.beat(self.coordinator)
            self.clients = [client for client in self.clients if client.is_alive]
            self.check()
            if self.is_settled():
                return round_
        raise AssertionError(f"not stable: {self.members()}")

    def is_settled(self) -> bool:
        group = self.coordinator.machine.groups.get(GROUP)
        if group is None or not self.clients:
            return True
        waiting = any(client.epoch == 0 and not client.is_locked_out for client in self.clients)
        scans = any(soft.scan is not None for soft in self.coordinator.machine._soft.values())
        missing = len(group.regexes) != len(group.resolved)
        stale = any(
            found.version < self.coordinator.machine._new_topics_version
            for found in group.resolved.values()
        )
        held = all(client.held == client.wanted for client in self.clients)
        stable = group.state is GroupState.STABLE
        alone = group.members.keys() <= {client.member_id for client in self.clients}
        return stable and alone and held and not (waiting or scans or missing or stale)


def run(seed: int, **how: int) -> Run:
    run = Run(seed, **how)
    for _ in range(STEPS):
        run.step()
    return run


@pytest.mark.slow
def test_no_partition_has_two_owners_whatever_members_do() -> None:
    for seed in SEEDS:
        run(seed, interval_ms=1_000 if seed % 3 == 0 else 0)


@pytest.mark.slow
def test_a_group_replayed_from_its_records_is_the_same_group() -> None:
    for seed in SEEDS[::5]:
        done = Run(seed)
        for _ in range(STEPS):
            done.step()
            live = done.coordinator.machine.groups
            assert done.coordinator.replayed().groups == live
            assert done.coordinator.replayed(compacted=True).groups == live


@pytest.mark.slow
def test_a_group_left_alone_owns_every_partition_of_its_topics() -> None:
    """And reaches it within a bounded number of heartbeats: a revocation, a release, slow callbacks."""
    for seed in SEEDS:
        done = run(seed)
        rounds = done.settle()
        # Expressions may wait ten seconds for their turn, dead members forty-five for their end.
        assert rounds <= 26, f"seed {seed}: {rounds} rounds"
        group = done.coordinator.machine.groups.get(GROUP)
        if group is None or not done.clients:
            continue
        wanted = group.subscribed_names()
        owned = {tp for client in done.clients for tp in client.held}
        assert owned == done.coordinator.topics.all_of(wanted), f"seed {seed}"
        for client in done.clients:
            if client.is_locked_out:
                assert client.held == set()
                continue
            names = group.subscription(group.members[client.member_id])
            assert client.held <= done.coordinator.topics.all_of(names)


@pytest.mark.slow
def test_members_keep_what_they_own_when_the_coordinator_moves() -> None:
    for seed in SEEDS[::3]:
        done = run(seed)
        done.settle()
        before = {client.member_id: set(client.held) for client in done.clients}
        done.coordinator.fail_over()
        done.settle()
        assert {client.member_id: client.held for client in done.clients} == before


@pytest.mark.slow
def test_every_step_of_the_table_is_taken_and_no_other() -> None:
    seen: Counter[tuple[MemberState, MemberState]] = Counter()
    for seed in SEEDS[::3]:
        seen += run(seed).steps_seen
    assert set(seen) == set(MAY_BECOME)


@pytest.mark.parametrize("members", [1, 2, 5, 8])
def test_members_of_one_mind_share_evenly_and_a_newcomer_moves_no_more_than_its_share(
    members: int,
) -> None:
    run = Run(7)
    run.same_wishes, run.uses_regexes = True, False
    for _ in range(members):
        client = Client(random.Random(0), f"m{run.serial}")
        run.serial += 1
        client.names = TOPICS
        run.clients.append(client)
        run.settle()
    before = {client.member_id: set(client.held) for client in run.clients}
    newcomer = Client(random.Random(0), "newcomer")
    newcomer.names = TOPICS
    run.clients.append(newcomer)
    run.settle()
    sizes = [len(client.held) for client in run.clients]
    assert max(sizes) - min(sizes) <= 1
    moved = sum(len(before[c.member_id] - c.held) for c in run.clients if c is not newcomer)
    assert moved == len(newcomer.held)
