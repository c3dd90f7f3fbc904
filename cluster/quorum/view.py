"""What a node can tell of the quorum, in the words of Kafka's DescribeQuorum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..base.ids import BrokerId
from .raft import Raft
from .voters import Voters

UNKNOWN: Final = -1


class ReplicaView(NamedTuple):
    """`last_fetch_ms` and `last_caught_up_ms` are wall clock; UNKNOWN on a node that does not lead."""

    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


NOT_KNOWN: Final = ReplicaView(UNKNOWN, UNKNOWN, UNKNOWN)


@dataclass(frozen=True, slots=True)
class QuorumView:
    """Offsets are indexes of the metadata log; the end offset is one behind the last entry, as in Kafka. `waits_for`: voters
    that this node's own election lacks, though a majority has agreed. `of_others`, `is_beginning`: see `first_day`."""

    leader_id: BrokerId | None
    term: int
    high_watermark: int
    voters: Mapping[BrokerId, ReplicaView]
    observers: Mapping[BrokerId, ReplicaView]
    waits_for: Sequence[BrokerId] = ()
    of_others: Sequence[BrokerId] = ()
    is_beginning: bool = False


def view_of(raft: Raft | None, first_voters: Voters, now_ms: int) -> QuorumView:
    if raft is None:
        return QuorumView(None, 0, UNKNOWN, dict.fromkeys(sorted(first_voters), NOT_KNOWN), {})
    voters = dict.fromkeys(sorted(raft.voters), NOT_KNOWN)
    observers: dict[BrokerId, ReplicaView] = {}
    if raft.leads:
        for id_, each in sorted(raft.progress.items()):
            seen = ReplicaView(each.match_index + 1, each.heard_ms, each.caught_up_ms)
            (voters if id_ in voters else observers)[id_] = seen
        me = ReplicaView(raft.last.idx + 1, now_ms, now_ms)
        (voters if raft.is_voter else observers)[raft.node_id] = me
    lacks = raft.election.waits_for(raft.voters) if raft.leader_id is None else ()
    return QuorumView(
        raft.leader_id,
        raft.term,
        raft.commit_index + 1,
        voters,
        observers,
        lacks,
        raft.who_has_shown(),
        raft.is_beginning,
    )
