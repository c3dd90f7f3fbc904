"""Any sequence of commands, on a model of what the replicas have: whoever leads has all that was committed.

The model is replication in a few lines. A leader appends; what all of the ISR has is committed while the ISR is at
least `min.insync.replicas`; a follower takes over its leader's log; a leader takes in who has all of it. A machine
that loses its power forgets what was not yet committed to the ISR that it was in.
"""

import random
from typing import Any

import pytest
from controller_scene import Scene
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller import balance_policy, reassign_policy
from fencepost.cluster.controller.brokers_policy import decide_fence
from fencepost.cluster.controller.commands import (
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    BrokerHeartbeat,
    ConfigChange,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    IsrChange,
    IsrMember,
    NewTopic,
    Reassignment,
    ReportDisk,
    ResourceChange,
    UnregisterBroker,
)
from fencepost.cluster.controller.decision import Disks
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType, PartitionState

BROKERS = (1, 2, 3, 4)
STEPS, SEEDS = 120, 60
NAME = "t"


class Model:
    """One partition, four brokers, and what each of them has of its log."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.scene = Scene({"min.insync.replicas": "2"}, brokers=len(BROKERS))
        replicas = tuple(self.dice.sample(BROKERS, self.dice.choice((1, 2, 3, 3, 3))))
        topic = NewTopic(name=NAME, assignments=((0, replicas),))
        assert self.scene.when(CreateTopics(topics=(topic,)))[0].error_code is ErrorCode.none
        self.full: set[int] = set()
        self.scene.controller.disks = lambda: Disks(full=frozenset(self.full))
        self.logs: dict[int, list[int]] = {broker_id: [] for broker_id in BROKERS}
        self.committed: list[int] = []
        self.written = 0
        self.before = self.now

    @property
    def now(self) -> PartitionState:
        found = self.scene.partition(NAME)
        assert isinstance(found, PartitionState)
        return found

    def alive(self, broker_id: int) -> bool:
        broker = self.scene.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    @property
    def min_isr(self) -> int:
        """What the leader asks for: no less than what the controller reckons with."""
        return int(self.scene.controller._scene().min_insync_replicas(NAME, self.now))

    def step(self) -> str:
        name = self.dice.choice(ACTIONS)
        getattr(self, name)()
        self.check(name)
        return name

    # --- what replication does

    def write(self) -> None:
        now = self.now
        if now.leader == -1 or not self.alive(now.leader):
            return
        self.written += 1
        self.logs[now.leader].append(self.written)
        self.commit()

    def commit(self) -> None:
        now = self.now
        if len(now.isr) < self.min_isr:
            return
        if all(self.alive(each) for each in now.isr):
            for each in now.isr:
                self.logs[each] = list(self.logs[now.leader])
            self.committed = list(self.logs[now.leader])

    def catch_up(self) -> None:
        now = self.now
        followers = [each for each in now.replicas if each != now.leader and self.alive(each)]
        if now.leader != -1 and followers:
            self.logs[self.dice.choice(followers)] = list(self.logs[now.leader])

    def expand(self) -> None:
        now = self.now
        joining = [
            each
            for each in now.replicas
            if each not in now.isr
            and self.alive(each)
            and now.leader != -1
            and self.logs[each] == self.logs[now.leader]
        ]
        if joining:
            self.alter_isr((*now.isr, self.dice.choice(joining)))

    def shrink(self) -> None:
        now = self.now
        others = [each for each in now.isr if each != now.leader]
        if now.leader != -1 and others:
            gone = self.dice.choice(others)
            self.alter_isr(tuple(each for each in now.isr if each != gone))

    def alter_isr(self, isr: tuple[int, ...]) -> None:
        now = self.now
        change = IsrChange(
            topic_id=self.scene.image.topics[NAME].topic_id,
            partition=0,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=tuple(IsrMember(broker_id=each) for each in isr),
        )
        epoch = self.scene.epoch(now.leader)
        ask = AlterPartition(broker_id=now.leader, broker_epoch=epoch, partitions=(change,))
        self.scene.when(ask)

    # --- what befalls brokers

    def fence(self) -> None:
        broker_id = self.dice.choice(BROKERS)
        if self.alive(broker_id):
            epoch = self.scene.epoch(broker_id)
            self.apply(decide_fence(self.scene.controller._scene(), broker_id, epoch).records)

    def come_back(self) -> None:
        broker_id = self.dice.choice(BROKERS)
        if not self.alive(broker_id):
            self.register(broker_id, clean=True)

    def lose_power(self) -> None:
        """What it had beyond the committed may be gone, or its whole disk if others have everything."""
        broker_id = self.dice.choice(BROKERS)
        others = [each for each in (*self.now.isr, *self.now.elr) if each != broker_id]
        log = self.logs[broker_id]
        kept = self.dice.randint(0, len(log)) if others else len(log)
        self.logs[broker_id] = log[:kept]
        self.register(broker_id, clean=False)

    def register(self, broker_id: int, *, clean: bool) -> None:
        self.scene.register(broker_id, fenced=True, lacking=() if clean else None)
        epoch = self.scene.epoch(broker_id)
        beat = BrokerHeartbeat(broker_id=broker_id, broker_epoch=epoch, image_version=epoch)
        self.scene.when(beat)

    def shut_down(self) -> None:
        broker_id = self.dice.choice(BROKERS)
        if self.alive(broker_id):
            epoch = self.scene.epoch(broker_id)
            self.scene.when(
                BrokerHeartbeat(
                    broker_id=broker_id, broker_epoch=epoch, image_version=0, want_shut_down=True
                )
            )

    def fill(self) -> None:
        """Or there is room again."""
        broker_id = self.dice.choice(BROKERS)
        self.full ^= {broker_id}
        if self.alive(broker_id):
            epoch, is_full = self.scene.epoch(broker_id), broker_id in self.full
            self.scene.when(ReportDisk(broker_id=broker_id, broker_epoch=epoch, is_full=is_full))

    def unregister(self) -> None:
        self.scene.when(UnregisterBroker(broker_id=self.dice.choice(BROKERS)))

    # --- what people and the controller do

    def move(self) -> None:
        known = sorted(self.scene.image.brokers)
        count = self.dice.randint(1, min(3, len(known)))
        self.reassign(tuple(self.dice.sample(known, count)))

    def cancel(self) -> None:
        self.reassign(None)

    def reassign(self, replicas: tuple[int, ...] | None) -> None:
        asked = Reassignment(topic=NAME, partition=0, replicas=replicas)
        self.scene.when(AlterReassignments(partitions=(asked,)))

    def elect(self) -> None:
        self.scene.when(ElectLeaders(election=ElectionType.PREFERRED, partitions=None))

    def tick(self) -> None:
        policy = self.dice.choice((balance_policy, reassign_policy))
        self.apply(policy.decide_tick(self.scene.controller._scene()).records)

    def set_min_isr(self) -> None:
        """Of the topic, or of all."""
        value = str(self.dice.randint(1, 3))
        kind, name = self.dice.choice(((ConfigType.TOPIC, NAME), (ConfigType.BROKER, "")))
        change = ConfigChange(name="min.insync.replicas", value=value)
        if self.dice.random() < 0.3:
            change = ConfigChange(name="min.insync.replicas", operation=1, value=None)
        asked = ResourceChange(resource_type=kind, name=name, changes=(change,))
        self.scene.when(AlterConfigs(resources=(asked,)))

    def apply(self, records: list[Any]) -> None:
        if records:
            self.scene.quorum.machine.apply(encode(records))

    # --- what must hold

    def check(self, after: str) -> None:
        before, now = self.before, self.now
        self.before = now
        story = (after, before, now)
        if now != before:
            assert now.partition_epoch > before.partition_epoch, story
        assert now.leader_epoch >= before.leader_epoch, story
        if now.leader != before.leader:
            assert now.leader_epoch > before.leader_epoch, story
        assert set(now.isr) <= set(now.replicas) and now.isr, story
        assert set(now.elr) <= set(now.replicas) and not set(now.elr) & set(now.isr), story
        if now.leader != -1:
            assert now.leader in now.isr, story
            assert self.alive(now.leader), story
        # Whoever may be elected has everything: the ISR and the ELR, none of which is ever empty-handed.
        for each in (*now.isr, *now.elr):
            has = self.logs[each][: len(self.committed)]
            assert has == self.committed, (*story, each, has, self.committed)


ACTIONS = (
    *("write",) * 4,
    *("catch_up",) * 3,
    *("expand",) * 4,
    *("shrink", "fence", "fence", "come_back", "come_back", "lose_power", "shut_down", "fill"),
    *("unregister", "move", "move", "cancel", "elect", "tick", "set_min_isr"),
)


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_a_leader_has_all_that_was_committed(first: int) -> None:
    """And epochs never go back, the ISR is among the replicas, and the leader in the ISR and alive."""
    for seed in range(first, first + 10):
        model = Model(seed)
        told = [model.step() for _ in range(STEPS)]
        assert set(told) >= {"write"}


def test_the_model_would_see_an_unclean_election() -> None:
    model = Model(3)
    with pytest.raises(AssertionError):
        for _ in range(50_000):
            model.step()
            unclean = ElectLeaders(election=ElectionType.UNCLEAN, partitions=None)
            model.scene.when(unclean)
            model.check("unclean")
