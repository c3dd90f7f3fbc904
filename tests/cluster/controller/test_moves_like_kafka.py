"""A Kafka 4.3.0 of three nodes was asked to move partitions and elect leaders in good and bad ways; so are we.

Its third node was killed and started again in between. `settle` stands for what replication does meanwhile: every
live replica catches up, and its leader takes it into the ISR.
"""

import json
import pathlib
from typing import Any

from controller_scene import Scene
from fencepost.cluster.controller import reassign_policy
from fencepost.cluster.controller.brokers_policy import decide_fence
from fencepost.cluster.controller.commands import (
    AlterPartition,
    AlterReassignments,
    BrokerHeartbeat,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    IsrChange,
    IsrMember,
    NewTopic,
    Reassignment,
    UnregisterBroker,
)
from fencepost.cluster.metadata.codec import encode

MOVES = json.loads((pathlib.Path(__file__).parent / "kafka_4_3_moves.json").read_text())
NODE = {"min.insync.replicas": "2"}

# Where we answer otherwise, by the number of the step, and why.
OTHERWISE = {
    24: "Kafka follows one of two orders for the same partition, and calls both done",
    33: "an unknown type of election is refused by the handler (tests/node/every_move_api.py)",
}
# Topics that are done here and on their way in Kafka, from this step on.
ON_THEIR_WAY = {
    # It goes back to where it was while a replica is being added. Kafka waits, for ever, until the one that it
    # removes is in sync.
    "d2": 58,
    # Where they go to was elected, uncleanly. Kafka sees that they have arrived when the ISR changes next.
    "d6": 86,
    "d10": 86,
}


class Cluster(Scene):
    """Three brokers, and what their replication would do."""

    def __init__(self) -> None:
        super().__init__(NODE, brokers=3)

    def alive(self) -> list[int]:
        return [each.broker_id for each in self.image.alive_brokers()]

    def settle(self) -> None:
        for name in sorted(self.image.topics):
            for index in range(len(self.image.topics[name].partitions)):
                self._settle(name, index)

    def _settle(self, name: str, index: int) -> None:
        now = self.partition(name, index)
        isr = tuple(each for each in now.replicas if each in self.alive())
        if now.leader == -1 or sorted(isr) == sorted(now.isr):
            return
        change = IsrChange(
            topic_id=self.image.topics[name].topic_id,
            partition=index,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=tuple(IsrMember(broker_id=each) for each in isr),
        )
        epoch = self.epoch(now.leader)
        ask = AlterPartition(broker_id=now.leader, broker_epoch=epoch, partitions=(change,))
        self.when(ask)

    def kill(self, broker_id: int) -> None:
        decision = decide_fence(self.controller._scene(), broker_id, self.epoch(broker_id))
        self.quorum.machine.apply(encode(decision.records))

    def up(self, broker_id: int) -> None:
        self.register(broker_id, fenced=True)
        epoch = self.epoch(broker_id)
        beat = BrokerHeartbeat(broker_id=broker_id, broker_epoch=epoch, image_version=epoch)
        assert not self.when(beat).is_fenced
        self.settle()


def asked(cluster: Cluster, op: str, arg: Any) -> Any:
    match op:
        case "create":
            topics = tuple(
                NewTopic(name=name, assignments=tuple(enumerate(map(tuple, replicas))))
                for name, replicas in arg
            )
            return [int(each.error_code) for each in cluster.when(CreateTopics(topics=topics))]
        case "reassign":
            results = cluster.when(
                AlterReassignments(
                    partitions=tuple(
                        Reassignment(
                            topic=name,
                            partition=index,
                            replicas=None if replicas is None else tuple(replicas),
                        )
                        for name, partitions in arg["topics"]
                        for index, replicas in partitions
                    ),
                    allow_factor_change=arg.get("rf", True),
                )
            )
            return {"results": answered(results)}
        case "elect":
            partitions = arg["partitions"]
            results = cluster.when(
                ElectLeaders(
                    election=ElectionType(arg["type"]),
                    partitions=partitions
                    and tuple((name, index) for name, each in partitions for index in each),
                )
            )
            return {"results": sorted(answered(results))}
        case "unregister":
            result = cluster.when(UnregisterBroker(broker_id=arg))
            return [int(result.error_code), result.error_message or ""]
        case "list":
            wanted = arg and {(name, index) for name, each in arg for index in each}
            return {
                "results": sorted(
                    [
                        topic.name,
                        each.partition,
                        *map(list, (each.replicas, each.adding, each.removing)),
                    ]
                    for topic, each in reassign_policy.moving(cluster.image)
                    if arg is None or (topic.name, each.partition) in wanted
                )
            }
        case _:
            getattr(cluster, op)(*([] if arg is None else [arg]))
            return None


def answered(results: list[Any]) -> list[list[Any]]:
    return [
        [each.topic, each.partition, int(each.error_code), each.error_message] for each in results
    ]


def is_on_its_way(topic: str, number: int) -> bool:
    return number >= ON_THEIR_WAY.get(topic, len(MOVES))


def comparable(result: Any, number: int) -> Any:
    if not isinstance(result, dict):
        return result
    return {"results": [each for each in result["results"] if not is_on_its_way(each[0], number)]}


def kafkas(step: dict[str, Any], number: int) -> Any:
    result = step["result"]
    if not isinstance(result, dict):
        return result
    assert result["code"] == 0
    return comparable({"results": result["results"]}, number)


def state_of(cluster: Cluster) -> dict[str, Any]:
    return {
        f"{name}-{each.partition}": each
        for name in cluster.image.topics
        for each in cluster.image.topics[name].partitions
    }


def differing(cluster: Cluster, theirs: dict[str, Any], number: int) -> list[tuple[Any, ...]]:
    found = []
    for name, now in state_of(cluster).items():
        kafka = theirs[name]
        if is_on_its_way(name.partition("-")[0], number):
            continue
        # Where nobody can lead, our ISR says who may when he is back; Kafka's is empty.
        isr = sorted(now.isr) if now.leader >= 0 else []
        ours = [now.leader, list(now.replicas), isr]
        if ours != [kafka["leader"], kafka["replicas"], kafka["isr"]]:
            found.append((number, name, now, kafka))
    return found


def test_every_move_and_election_is_answered_as_kafka_answered_it() -> None:
    """In their order: each finds what those before it made. Afterwards each partition is what Kafka's is."""
    cluster, different, theirs = Cluster(), [], {}
    for number, step in enumerate(MOVES):
        theirs.update({each["partition"]: each for each in step["changed"]})
        if number not in OTHERWISE:
            ours = comparable(asked(cluster, step["op"], step["arg"]), number)
            if ours != kafkas(step, number):
                different.append((number, step["op"], step["arg"], ours, kafkas(step, number)))
        elif step["op"] == "reassign":
            asked(cluster, step["op"], step["arg"])
        cluster.settle()
        if number + 1 < len(MOVES) and MOVES[number + 1]["op"] != "settle":
            different += differing(cluster, theirs, number)
    assert different == []


def test_two_orders_for_one_partition_are_still_answered_otherwise_by_kafka() -> None:
    assert [each[2] for each in MOVES[24]["result"]["results"]] == [0, 0]
    assert MOVES[33]["result"]["code"] == 42
