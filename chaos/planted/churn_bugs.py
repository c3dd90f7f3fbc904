"""Bugs of topics that come again under the same name, and of settings that change under a node, planted."""

import dataclasses
from typing import Any
from uuid import UUID

from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.topic_config import TopicConfig
from fencepost.node.services import Services
from fencepost.node.transaction_words import WordsAhead
from fencepost.replication.log.removal import Removal
from fencepost.replication.log.store import LogStore
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.partition import Partition
from fencepost.txn.groups import offset_requests, offsets_machine
from fencepost.txn.groups.offset_requests import CommitPlan
from fencepost.txn.groups.service import GroupService
from fencepost.txn.transactions.marker_sender import MarkerSender
from fencepost.txn.transactions.word_sender import WordSender

from ..sim.tuned_scene import IN_FORCE
from .bugs import Patch, bug

LIVES = (
    "another-life G1a phantom diverged commit-missing commit-lost commit-back inconsistent-offsets"
    " producer-state dead-client"
)


@bug(
    # What its last life left open keeps the new one's readers from going on.
    seen_by=f"{LIVES} no-progress",
    campaign="transactions",
    faults="reset delay kill",
    workloads="churn",
)
def folders_of_deleted_topics_are_used_again(patch: Patch) -> None:
    """A topic that is deleted leaves its folders, and the next one of its name is made over them."""
    patch.put(Removal, "bury", lambda *_: None)
    patch.put(LogStore, "_set_aside_stray", lambda *_: None)


@bug(
    seen_by=LIVES,
    campaign="transactions",
    faults="reset delay delay-client",
    workloads="churn",
)
def old_ids_mean_whoever_has_the_name(patch: Patch) -> None:
    """A broker takes the id of a topic that was deleted for the topic that has its name now."""
    right = Services.topic_name
    names: dict[UUID | None, str] = {}

    def topic_name(self: Services, topic_id: UUID | None) -> str | None:
        name = right(self, topic_id)
        if name is not None:
            names[topic_id] = name
        return names.get(topic_id)

    patch.put(Services, "topic_name", topic_name)


@bug(seen_by="another-life", campaign="transactions", workloads="churn", seeds=40)
def positions_outlive_their_topic(patch: Patch) -> None:
    """What a group has committed in a topic that was deleted is told of the next one of its name."""

    async def forget(_self: Any, _command: Any) -> None:
        """Nothing."""

    def is_of_another(_asked: UUID, _known: UUID) -> bool:
        return False

    patch.put(GroupService, "_forget_topics", forget)
    for module in (offsets_machine, offset_requests):
        patch.put(module, "is_of_another", is_of_another)


@bug(
    seen_by="position-lost torn-offset",
    campaign="transactions",
    faults="at-a-deletion",
    workloads="churn",
    seeds=40,
)
def names_mean_whom_a_coordinator_knows_by_them(patch: Patch) -> None:
    """A coordinator acknowledges a position of a name, and drops a marker for one, without asking who has that name by now. (A bug that was here once.)"""

    async def stored(self: CommitPlan, store: Any, _confirm_image: Any, _config: Any) -> Any:
        return await store() if self.commits else []

    async def ask_after(self: MarkerSender, job: Any, unknown: Any) -> None:
        for each in unknown:
            job.left.pop(each, None)
        self._maybe_done(job)

    patch.put(CommitPlan, "stored", stored)
    patch.put(MarkerSender, "_ask_after", ask_after)


@bug(seen_by="setting-lost", campaign="transactions", faults="reset kill", workloads="tuned")
def settings_reach_no_open_log(patch: Patch) -> None:
    """A log works by the settings that it was opened with, whatever they were changed to since."""

    def reconfigure(_self: Any, _changed: Any) -> list[Any]:
        return []

    patch.put(ReplicaManager, "_reconfigure", reconfigure)


@bug(seen_by="setting-lost", campaign="transactions", faults="reset kill", workloads="tuned bank")
def settings_that_were_taken_back_stay(patch: Patch) -> None:
    """A log that is open goes on by a setting of its topic that was taken back."""
    right = ReplicaManager._reconfigure

    def reconfigure(self: ReplicaManager, changed: Any) -> Any:
        before = {name: each.config for name, each in self.partitions.items()}
        found = right(self, changed)
        for partition in found:
            name = partition.topic_partition
            own = self.image.config(ConfigType.TOPIC, name.topic)
            kept = {
                field: getattr(before[name], field)
                for setting, field in IN_FORCE.items()
                if setting not in own
            }
            partition.set_config(dataclasses.replace(partition.config, **kept))
        return found

    patch.put(ReplicaManager, "_reconfigure", reconfigure)


@bug(seen_by="setting-lost", campaign="transactions", faults="reset kill", workloads="tuned")
def open_logs_keep_their_policy_and_codec(patch: Patch) -> None:
    """What becomes of a log's old records, and how it packs new ones, stays as it was when it was opened."""
    right = Partition.set_config

    def set_config(self: Partition, config: TopicConfig) -> None:
        old = getattr(self, "config", config)
        kept = {name: getattr(old, name) for name in ("cleanup_policy", "compression_type")}
        right(self, dataclasses.replace(config, **kept))

    patch.put(Partition, "set_config", set_config)


@bug(
    seen_by="no-progress",
    campaign="transactions",
    faults="late-word",
    workloads="bank",
    protocol="old",
    seconds=20.0,
    seeds=60,
)
def words_mean_whoever_has_the_name(patch: Patch) -> None:
    """A coordinator's word on a transaction counts in the next topic of its name."""
    send, confirm = WordSender.send, WordsAhead._confirm
    names: dict[UUID, str] = {}

    def sent(self: WordSender, opened: Any) -> None:
        for each in opened.partitions:
            if each.topic in self._image.topics:
                names[self._image.topics[each.topic].topic_id] = each.topic
        send(self, opened)

    def confirmed(self: WordsAhead, place: Any, word: Any) -> bool:
        for at, partition in self._replicas.partitions.items():
            if (at.topic, at.partition) == (names.get(place.topic_id), place.partition):
                place = place._replace(topic_id=partition.topic_id)
        return confirm(self, place, word)

    patch.put(WordSender, "send", sent)
    patch.put(WordsAhead, "_confirm", confirmed)
