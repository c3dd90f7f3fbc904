"""Groups whose members change from the classic protocol to the new one and back, at random (KIP-848)."""

import random
from typing import Any
from uuid import UUID

import pytest
from consumer_client import Client
from consumer_world import GROUP, MixedCoordinator, decode, request
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.classic_group import Phase
from fencepost.txn.groups.consumer_config import MigrationPolicy
from fencepost.txn.groups.consumer_embedded import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from fencepost.txn.groups.records import GroupForgotten, GroupMetadata
from migration_world import mixed_world


class ClassicClient:
    """A consumer of the classic protocol, which leads with ranges when it is asked to.

    An eager one gives up everything before it joins. A cooperative one keeps it, says so, and joins once more
    when it was told to give something up.
    """

    def __init__(self, rng: random.Random, world: MixedCoordinator, *, eager: bool) -> None:
        self.rng, self.world, self.eager = rng, world, eager
        self.member_id = ""
        self.generation = -1
        self.held: set[tuple[UUID, int]] = set()
        self.topics = rng.choice((["orders"], ["orders", "refunds"]))
        self.ticket: int | None = None
        self.step = "join"
        self.members: list[Any] = []

    def beat(self) -> None:
        if self.ticket is not None:
            reply = self.world.answers.pop(self.ticket, None)
            if reply is None:
                return
            self.ticket = None
            self.take(reply)
        elif self.step == "join":
            if self.eager:
                self.held.clear()
            self.hear(self.world.join(self.member_id, self.topics, self.owned()))
        elif self.step == "sync":
            self.hear(self.world.sync(self.member_id, self.generation, self.shares()))
        else:
            code = self.world.beat(self.member_id, self.generation)
            if code is not E.none:
                self.fail(code)

    def hear(self, reply: Any) -> None:
        if isinstance(reply, int):
            self.ticket = reply
        else:
            self.take(reply)

    def take(self, reply: Any) -> None:
        if reply["error_code"] is not E.none:
            self.member_id = reply.get("member_id") or self.member_id
            self.fail(reply["error_code"])
        elif self.step == "join":
            self.member_id, self.generation = reply["member_id"], reply["generation_id"]
            self.members = reply["members"]
            self.step = "sync"
        else:
            given = read_assignment(reply["assignment"]).partitions if reply["assignment"] else {}
            by_name = self.world.topics.found
            before, self.held = (
                self.held,
                {
                    (by_name[topic].topic_id, partition)
                    for topic, partitions in given.items()
                    for partition in partitions
                },
            )
            self.step = "join" if before - self.held and not self.eager else "steady"

    def owned(self) -> dict[str, list[int]]:
        owned: dict[str, list[int]] = {}
        for topic_id, partition in sorted(self.held):
            topic = self.world.topics.by_id(topic_id)
            assert topic is not None
            owned.setdefault(topic.name, []).append(partition)
        return owned

    def fail(self, code: E) -> None:
        self.step = "join"
        if self.eager or code not in (E.rebalance_in_progress, E.member_id_required):
            self.held.clear()
        if code is E.unknown_member_id:
            self.member_id = ""
        else:
            assert code in (
                E.member_id_required,
                E.rebalance_in_progress,
                E.illegal_generation,
            ), code

    def shares(self) -> dict[str, bytes]:
        said = {m["member_id"]: read_subscription(m["metadata"]) for m in self.members}
        shares: dict[str, dict[str, tuple[int, ...]]] = {member_id: {} for member_id in said}
        for topic in ("orders", "refunds"):
            takers = sorted(m for m, subscription in said.items() if topic in subscription.topics)
            count = self.world.topics.found[topic].partition_count
            # What another still holds is given in the round after (KIP-429).
            held = {p: m for m in sorted(said) for p in said[m].owned.get(topic, ())}
            for place, member_id in enumerate(takers):
                share = range(place, count, len(takers))
                mine = [p for p in share if held.get(p, member_id) == member_id]
                shares[member_id][topic] = tuple(mine)
        return {member_id: write_assignment(share, 3) for member_id, share in shares.items()}


class Run:
    def __init__(self, seed: int, policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> None:
        self.rng = random.Random(seed)
        self.world = mixed_world(policy, size=9)
        self.serial = 0
        self.eager = self.rng.random() < 0.5
        self.old: list[ClassicClient] = []
        self.new: list[Client] = []

    def step(self) -> None:
        world, dice = self.world, self.rng.random()
        if dice < 0.08 and len(self.old) + len(self.new) < 3:
            self.old.append(ClassicClient(self.rng, world, eager=self.eager))
        elif dice < 0.16 and len(self.old) + len(self.new) < 3:
            self.serial += 1
            client = Client(self.rng, f"c{self.serial}")
            client.names = self.rng.choice((("orders",), ("orders", "refunds")))
            self.new.append(client)
        elif dice < 0.55 and self.old:
            self.rng.choice(self.old).beat()
        elif dice < 0.85 and self.new:
            self.rng.choice(self.new).beat(world, lose_answer=self.rng.random() < 0.1)
        elif dice < 0.9 and self.new:
            client = self.new.pop(self.rng.randrange(len(self.new)))
            if client.epoch > 0 and self.rng.random() < 0.8:
                world.hear(request(client.member_id, -1))
        elif dice < 0.94 and self.old:
            client = self.old.pop(self.rng.randrange(len(self.old)))
            if client.member_id and self.rng.random() < 0.8:
                world.leave(client.member_id)
        elif dice < 0.96:
            world.fail_over()
        else:
            world.sleep(self.rng.choice((1_000, 10_000, 46_000)))
        self.check()

    def check(self) -> None:
        world = self.world
        assert not (GROUP in world.groups and GROUP in world.classic), "one name, one kind"
        group = world.groups.get(GROUP)
        if group is not None:
            owners: dict[tuple[UUID, int], str] = {}
            for member in group.members.values():
                for part in (member.assigned, member.pending_revocation):
                    for topic, partitions in part.items():
                        for partition in partitions:
                            assert (topic, partition) not in owners
                            owners[topic, partition] = member.member_id
        known = {} if group is None else group.members
        classic = world.classic.get(GROUP)
        members = known if classic is None else classic.members
        # Whoever is a member still, and was not thrown out meanwhile to come back later, reads alone.
        readers: dict[tuple[UUID, int], str] = {}
        for client in [*self.old, *self.new]:
            if client.member_id not in members:
                continue
            for owned in client.held:
                other = readers.setdefault(owned, client.member_id)
                assert other == client.member_id, (
                    f"{owned} is read by {other} and {client.member_id}"
                )

    def settle(self) -> bool:
        for client in self.new:
            client.rng = random.Random(0)
        for _ in range(40):
            self.world.sleep(3_000)
            for client in self.old:
                client.beat()
            for client in self.new:
                client.beat(self.world)
            self.check()
        topics = {name for client in self.old for name in client.topics}
        topics |= {name for client in self.new for name in client.names or ()}
        held = {owned for client in [*self.old, *self.new] for owned in client.held}
        return held == self.world.topics.all_of(topics)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "seeds"), [(MigrationPolicy.BIDIRECTIONAL, 150), (MigrationPolicy.UPGRADE, 50)]
)
def test_no_partition_has_two_owners_while_members_change_protocols(policy, seeds) -> None:
    for seed in range(seeds):
        run = Run(seed, policy)
        for _ in range(80):
            run.step()
        assert run.settle(), f"seed {seed}: something is read by nobody"


@pytest.mark.slow
def test_a_group_that_changed_its_kind_is_the_same_after_a_replay() -> None:
    changes = 0
    for seed in range(40):
        run = Run(seed)
        for _ in range(60):
            run.step()
            for compacted in (False, True):
                replayed = run.world.replayed(compacted=compacted)
                assert replayed.consumer.groups == run.world.groups
                stable = {
                    group_id: group.record()
                    for group_id, group in run.world.classic.items()
                    if group.phase is Phase.STABLE
                }
                for group_id, record in stable.items():
                    assert replayed.classic.groups[group_id].record() == record
        kinds = [type(decode(*entry)) for entry in run.world.log]
        changes += kinds.count(GroupForgotten) + kinds.count(GroupMetadata)
    assert changes > 40, "groups did change their kind"
