"""What becomes of leaders whose disk is full: they can be read, and others take the writes.

INVARIANT  a broker that says that its disk is full gives a lead away to a replica in sync with a disk that is not, where
           min.insync.replicas are in sync without it. Where they are not it goes on leading: nobody else could take writes, it can
           still be read, and be caught up with. Of those who may lead, one with room is elected if there is one, whatever the reason is.
           And who was full lately gets nothing back unasked.
PREVENTS   a partition that takes no records for as long as one disk of three is full, though two have room; and leads that go to and
           fro with a disk that is full by turns.
PROVED BY  tests/cluster/controller/test_full_disks.py::test_whoever_has_a_full_disk_gives_its_leads_to_others_in_sync
           tests/sim/test_cluster_scenarios.py::test_a_leader_with_a_full_disk_lets_another_lead_until_it_has_room

Nothing of it is in the metadata log but the elections. A broker says it with each heartbeat while it is so, and once when it has room
again; who was not heard of for as long as a session lasts is not full any more, as far as anybody knows. A follower with a
full disk tells its leader, which goes on without it (`replication/partition_machine.py`).
"""

from typing import Final, NamedTuple

from ..base.ids import BrokerId
from ..metadata.image import TopicState
from ..metadata.records import PartitionChange
from .brokers_policy import check_broker_epoch
from .commands import ItemResult, ReportDisk
from .decision import CommandRefused, Decision, Disks, Scene
from .election_policy import Wish, changed, records_of
from .placement_policy import active_brokers

# Retention makes room, and who writes fills it again: without a pause leads would go to and fro every few seconds. Who is full
# again within the longest pause after one gets one that is twice as long.
CALM_MS: Final = 60_000
CALM_MS_MAX: Final = 30 * 60_000
MOVES_MAX: Final = 1000  # in one decision: the next report moves others


class Calm(NamedTuple):
    """For how long after it was full a broker gets no leads back, and until when that is."""

    length_ms: int
    until_ms: int


class FullDisks:
    """Who has said so within `holds_ms`, as the active controller knows it, and who has lately."""

    def __init__(self, holds_ms: int) -> None:
        self._holds_ms = holds_ms
        self._all_heard_ms = 0
        self._said_ms: dict[BrokerId, int] = {}
        self._calms: dict[BrokerId, Calm] = {}

    def begin(self, now_ms: int) -> None:
        """This node is the controller from now on, and others may have been told what it was not."""
        self._all_heard_ms = now_ms + self._holds_ms

    def excuse(self, away_ms: int, now_ms: int) -> None:
        """It did not lead for so long until now, and nobody else did: nobody could say anything."""
        self._all_heard_ms += away_ms
        self._said_ms = {
            each: min(now_ms, at_ms + away_ms) for each, at_ms in self._said_ms.items()
        }

    def heard(self, broker_id: BrokerId, now_ms: int, *, is_full: bool) -> None:
        if not is_full:
            self._said_ms.pop(broker_id, None)
            return
        length_ms, until_ms = self._calms.get(broker_id, Calm(CALM_MS, now_ms))
        if now_ms >= until_ms:  # it may have had leads again since
            soon = now_ms < until_ms + CALM_MS_MAX and broker_id in self._calms
            length_ms = min(2 * length_ms, CALM_MS_MAX) if soon else CALM_MS
        self._said_ms[broker_id] = now_ms
        self._calms[broker_id] = Calm(length_ms, now_ms + length_ms)

    def now(self, now_ms: int) -> Disks:
        said, calms = self._said_ms.items(), self._calms.items()
        return Disks(
            full=frozenset(each for each, at_ms in said if now_ms - at_ms < self._holds_ms),
            lately_full=frozenset(each for each, calm in calms if now_ms < calm.until_ms),
            all_heard=now_ms >= self._all_heard_ms,
        )


def decide_report_disk(scene: Scene, command: ReportDisk) -> Decision[ItemResult]:
    mine = command.broker_id
    try:
        check_broker_epoch(scene, mine, command.broker_epoch)
    except CommandRefused as refused:
        stale = ItemResult(error_code=refused.error_code, error_message=refused.message)
        return Decision(reply=lambda _version: stale)
    changes: list[tuple[TopicState, PartitionChange]] = []
    full = scene.disks.full | {mine}
    have_room = active_brokers(scene.image) - full
    led = scene.image.partitions_of(mine) if command.is_full else ()
    for topic, now in led:
        if now.leader != mine:
            continue
        isr = tuple(each for each in now.isr if each not in full)
        min_isr = scene.min_insync_replicas(topic.name, now)
        if len(isr) < min_isr or have_room.isdisjoint(isr):
            continue
        change = changed(now, Wish(isr=isr), alive=have_room, disks=scene.disks, min_isr=min_isr)
        if change is not None:
            changes.append((topic, change))
        if len(changes) >= MOVES_MAX:
            break
    return Decision(records=list(records_of(changes)), reply=lambda _version: ItemResult())
