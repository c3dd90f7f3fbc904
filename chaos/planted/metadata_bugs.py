"""Bugs of the metadata quorum and its log, planted."""

from dataclasses import replace
from typing import Any

from fencepost.cluster.metadata import machine as metadata_machine
from fencepost.cluster.metadata import records
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.quorum import raft_files
from fencepost.cluster.quorum.raft import Raft
from fencepost.cluster.quorum.raft_files import VoteFile
from fencepost.cluster.quorum.raft_follower import FollowerSide
from fencepost.cluster.quorum.transport import read_message

from .bugs import Patch, bug


@bug(seen_by="election-safety", campaign="quorum", faults="at-a-vote kill", seconds=12.0, seeds=20)
def vote_not_kept(patch: Patch) -> None:
    """A voter's vote is not on its disk: after a crash it votes again in the same term."""
    right = VoteFile.store

    def forgetful(
        self: VoteFile, term: int, voted_for: int | None, *, fresh: bool | None = None
    ) -> None:
        right(self, term, voted_for, fresh=fresh)
        if voted_for is not None:
            left = raft_files._write([term, None, self.fresh])
            self._env.disk.replace(self._path, left)

    patch.put(VoteFile, "store", forgetful)


@bug(
    seen_by="leader-completeness state-machine-safety lost",
    campaign="quorum",
    faults="kill all-die isolate reset bad-network",
    seconds=12.0,
    seeds=20,
)
def votes_for_a_shorter_log(patch: Patch) -> None:
    """A voter elects whoever asks, whatever the asker's log lacks."""
    patch.put(Raft, "_is_as_far", lambda _self, _message: True)


@bug(
    seen_by="state-machine-safety leader-completeness",
    campaign="quorum",
    faults="isolate cut-one-way kill bad-network",
    seconds=12.0,
)
def apply_before_committed(patch: Patch) -> None:
    """A follower applies what it is sent, before a majority has it."""
    right = FollowerSide._on_append_entries

    def eager(self: FollowerSide, node_id: Any, message: dict[str, Any]) -> None:
        last = message["previous_index"] + len(message["entries"])
        right(self, node_id, {**message, "commit_index": max(last, message["commit_index"])})

    patch.put(FollowerSide, "_on_append_entries", eager)


@bug(
    seen_by="leader-completeness state-machine-safety lost",
    campaign="quorum",
    faults="power all-die crash-at-a-write slow-disk",
    seconds=12.0,
    seeds=20,
)
def held_before_it_is_synced(patch: Patch) -> None:
    """A follower says that it holds an entry which its disk does not have yet: the power takes what was committed."""

    def promise(self: FollowerSide, leader_id: Any, matched: int, stamp: float) -> None:
        answer = {"type": "held", "next_index": matched + 1, "stamp": stamp}
        self._transport.say(leader_id, answer)

    patch.put(FollowerSide, "_owe", promise)


@bug(
    seen_by="log-matching state-machine-safety leader-completeness",
    campaign="quorum",
    faults="isolate cut-one-way pause bad-network kill",
    seconds=12.0,
    seeds=20,
)
def old_terms_listened_to(patch: Patch) -> None:
    """What a leader of an earlier term says is taken for the present one's word."""

    def credulous(self: Raft, node_id: Any, frame: Any) -> None:
        sender_term, message = read_message(frame)
        if sender_term > self.term:
            self.adopt(sender_term)
        self._handlers[message["type"]](node_id, message)

    patch.put(Raft, "receive", credulous)


@bug(seen_by="images-differ", campaign="quorum", faults="isolate kill empty-disk", seconds=12.0)
def snapshot_forgotten(patch: Patch) -> None:
    """A node that is sent a snapshot of the metadata stores it, and does not take it up."""
    right = MetadataMachine.restore

    def forgets(self: MetadataMachine, snapshot: bytes) -> None:
        if self.image.version == 0:
            right(self, snapshot)

    patch.put(MetadataMachine, "restore", forgets)


@bug(
    seen_by="epoch-back two-images commit-missing commit-lost two-leaders",
    campaign="cluster",
    faults="pause isolate cut kill-controller kill",
    seconds=8.0,
    seeds=20,
)
def stale_changes_applied(patch: Patch) -> None:
    """The metadata log takes a change of a partition that was made for an older state of it: no compare-and-set."""
    rules = dict(metadata_machine.RULES)
    right = rules[records.PartitionsChanged]

    def anything_goes(image: Any, command: Any) -> Any:
        topic = image.topics_by_id.get(command.topic_id)
        return right.why_not(image, command) if topic is None else None

    rules[records.PartitionsChanged] = replace(right, why_not=anything_goes)
    patch.put(metadata_machine, "RULES", rules)
