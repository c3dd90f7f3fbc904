"""What becomes of leaders whose disk is full: they can be read, and others take the writes.

INVARIANT  a broker that says that its disk is full gives a lead away to a replica in sync with a disk that is not, where
           min.insync.replicas are in sync without it. Where they are not it goes on leading: nobody else could take writes, it can
           still be read, and be caught up with.
PREVENTS   a partition that takes no records for as long as one disk of three is full, though two have room.
PROVED BY  tests/cluster/controller/test_full_disks.py::test_whoever_has_a_full_disk_gives_its_leads_to_others_in_sync
           tests/sim/test_cluster_scenarios.py::test_a_leader_with_a_full_disk_lets_another_lead_until_it_has_room

Nothing of it is in the metadata log but the elections. A broker says it with each heartbeat while it is so, and once when it has room
again; who was not heard of for as long as a session lasts is not full any more, as far as anybody knows. A follower with a
full disk tells its leader, which goes on without it (`replication/partition_machine.py`).
"""

from typing import Final

from ..base.ids import BrokerId
from ..metadata.image import TopicState
from ..metadata.records import PartitionChange
from .brokers_policy import check_broker_epoch
from .commands import ItemResult, ReportDisk
from .decision import CommandRefused, Decision, Scene
from .election_policy import Wish, changed, records_of
from .placement_policy import active_brokers

MOVES_MAX: Final = 1000  # in one decision: the next report moves others


class FullDisks:
    """Who has said so within `holds_ms`, as the active controller knows it."""

    def __init__(self, holds_ms: int) -> None:
        self._holds_ms = holds_ms
        self._said_ms: dict[BrokerId, int] = {}

    def heard(self, broker_id: BrokerId, now_ms: int, *, is_full: bool) -> None:
        if is_full:
            self._said_ms[broker_id] = now_ms
        else:
            self._said_ms.pop(broker_id, None)

    def now(self, now_ms: int) -> frozenset[BrokerId]:
        said = self._said_ms.items()
        return frozenset(each for each, at_ms in said if now_ms - at_ms < self._holds_ms)


def decide_report_disk(scene: Scene, command: ReportDisk) -> Decision[ItemResult]:
    mine = command.broker_id
    try:
        check_broker_epoch(scene, mine, command.broker_epoch)
    except CommandRefused as refused:
        stale = ItemResult(error_code=refused.error_code, error_message=refused.message)
        return Decision(reply=lambda _version: stale)
    changes: list[tuple[TopicState, PartitionChange]] = []
    full = scene.full_disks | {mine}
    have_room = active_brokers(scene.image) - full
    led = scene.image.partitions_of(mine) if command.is_full else ()
    for topic, now in led:
        if now.leader != mine:
            continue
        isr = tuple(each for each in now.isr if each not in full)
        min_isr = scene.min_insync_replicas(topic.name, now)
        if len(isr) < min_isr or have_room.isdisjoint(isr):
            continue
        change = changed(now, Wish(isr=isr), alive=have_room, min_isr=min_isr)
        if change is not None:
            changes.append((topic, change))
        if len(changes) >= MOVES_MAX:
            break
    return Decision(records=list(records_of(changes)), reply=lambda _version: ItemResult())
