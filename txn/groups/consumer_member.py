"""A member of a consumer group: what it asked for, what it owns, and where it stands on its way to its target.

Members never change, they are replaced. What may follow what is MAY_BECOME; the simulation
(tests/txn/test_consumer_simulation.py) proves that the table has neither too much nor too little, and the
diagram in the folder's README is written from it.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from .consumer_records import ClassicMember, CurrentAssigned, MemberSubscribed, OwnedTopic

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2  # gone, and its partitions are kept for when it comes back

Epochs = Mapping[int, int]  # partition -> the epoch in which the member got it
Owned = Mapping[UUID, Epochs]
NOTHING_OWNED: Final[Owned] = {}


class MemberState(enum.IntEnum):
    """Kafka's MemberState, as it stands in the records."""

    STABLE = 0  # owns all that the target of its epoch gives it
    UNREVOKED_PARTITIONS = 1  # was told to give partitions up and has not said that it has
    UNRELEASED_PARTITIONS = 2  # still misses partitions that others have not given up
    UNKNOWN = 127  # written by a version of Kafka that knew more

    @classmethod
    def _missing_(cls, _: object) -> "MemberState":
        return cls.UNKNOWN


S = MemberState
# (from, to) -> what happens. Every step that a heartbeat can make; a new member starts as STABLE.
MAY_BECOME: Final[Mapping[tuple[MemberState, MemberState], str]] = {
    (S.STABLE, S.STABLE): "new target, nothing to give up, all of it free",
    (S.STABLE, S.UNREVOKED_PARTITIONS): "new target takes partitions away",
    (S.STABLE, S.UNRELEASED_PARTITIONS): "new target gives partitions that others still own",
    (S.UNREVOKED_PARTITIONS, S.STABLE): "gave them up, and all it is to get is free",
    (S.UNREVOKED_PARTITIONS, S.UNREVOKED_PARTITIONS): "a newer target takes more away",
    (S.UNREVOKED_PARTITIONS, S.UNRELEASED_PARTITIONS): "gave them up, waits for others",
    (S.UNRELEASED_PARTITIONS, S.STABLE): "the last of them was released",
    (S.UNRELEASED_PARTITIONS, S.UNREVOKED_PARTITIONS): "a newer target takes partitions away",
    (S.UNRELEASED_PARTITIONS, S.UNRELEASED_PARTITIONS): "some were released, or a newer target",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1  # of which a heartbeat may still come: its answer was lost
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)
    classic: ClassicMember | None = None  # it speaks the classic protocol

    @property
    def regex(self) -> str | None:
        """The expression it subscribes by; None without one."""
        return self.subscribed_topic_regex or None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def moved(
        self,
        epoch: int,
        state: MemberState,
        assigned: Owned,
        pending_revocation: Owned = NOTHING_OWNED,
    ) -> "Member":
        """One step of its reconciliation. The epoch it had becomes the one that may still come late."""
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def gone_for_now(self) -> "Member":
        """A static member that says that it will be back: it keeps what it owns, with the epochs forgotten."""
        return replace(
            self,
            member_epoch=LEAVE_STATIC_EPOCH,
            assigned={topic: dict.fromkeys(held, 0) for topic, held in self.assigned.items()},
            pending_revocation=NOTHING_OWNED,
        )

    def owns_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch in which it got a partition that it owns or is still giving up."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        if epoch is None:
            epoch = self.pending_revocation.get(topic_id, {}).get(partition)
        return epoch

    # ---- records ----------------------------------------------------------------------------

    def subscribed_record(self, group_id: str) -> MemberSubscribed:
        return MemberSubscribed(
            group_id=group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=tuple(sorted(self.subscribed_topic_names)),
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic=self.classic,
        )

    def current_record(self, group_id: str) -> CurrentAssigned:
        return CurrentAssigned(
            group_id=group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned=_owned_topics(self.assigned),
            pending_revocation=_owned_topics(self.pending_revocation),
        )

    def with_subscription(self, record: MemberSubscribed) -> "Member":
        return replace(
            self,
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            subscribed_topic_names=frozenset(record.subscribed_topic_names),
            subscribed_topic_regex=record.subscribed_topic_regex,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            server_assignor=record.server_assignor,
            classic=record.classic,
        )

    def with_current(self, record: CurrentAssigned) -> "Member":
        # Records of before Kafka 4.3 have no epochs for partitions: the member's own stands in.
        stand_in = max(record.member_epoch, 0)
        return replace(
            self,
            member_epoch=record.member_epoch,
            previous_member_epoch=record.previous_member_epoch,
            state=MemberState(record.state),
            assigned=_owned(record.assigned, stand_in),
            pending_revocation=_owned(record.pending_revocation, stand_in),
        )


def _owned_topics(owned: Owned) -> tuple[OwnedTopic, ...]:
    return tuple(
        OwnedTopic(
            topic_id=topic_id,
            partitions=tuple(sorted(owned[topic_id])),
            assignment_epochs=tuple(
                owned[topic_id][partition] for partition in sorted(owned[topic_id])
            ),
        )
        for topic_id in sorted(owned)
    )


def _owned(topics: tuple[OwnedTopic, ...], stand_in: int) -> Owned:
    return {
        topic.topic_id: dict(
            zip(
                topic.partitions,
                topic.assignment_epochs or (stand_in,) * len(topic.partitions),
                strict=True,
            )
        )
        for topic in topics
    }


def is_held(owned: Owned, topic_id: UUID, partition: int) -> bool:
    return partition in owned.get(topic_id, NO_EPOCHS)


NO_EPOCHS: Final[Epochs] = {}
