"""Bugs of the metadata quorum and its log, planted."""

from dataclasses import replace
from typing import Any

import msgpack
from fencepost.cluster.controller import (
    balance_policy,
    brokers_policy,
    elect_policy,
    election_policy,
    isr_policy,
    reassign_policy,
    service,
)
from fencepost.cluster.metadata import codec, levels, records
from fencepost.cluster.metadata import machine as metadata_machine
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.quorum.held import NEVER, HeldSyncObj, Peer
from fencepost.cluster.quorum.raft import Raft
from fencepost.cluster.quorum.raft_follower import FollowerSide
from fencepost.cluster.quorum.raft_leader import LeaderSide
from fencepost.cluster.quorum.vote_file import Vote, VoteFile
from fencepost.node.peers import Peers

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
            for place in range(2):
                self._write(place, Vote(term, None, self.fresh))

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
    faults="all-die power slow-disk crash-at-a-write cut-one-way",
    seconds=12.0,
    seeds=20,
)
def apply_before_committed(patch: Patch) -> None:
    """A follower applies what it is sent, before a majority has it."""
    right = FollowerSide._on_append_entries

    def eager(self: FollowerSide, node_id: Any, message: dict[str, Any]) -> None:
        last = message["previous_index"] + len(message["entries"])
        right(self, node_id, {**message, "commit_index": max(last, message["commit_index"])})

    patch.put(FollowerSide, "_on_append_entries", eager)


@bug(
    seen_by="commit-majority leader-completeness state-machine-safety lost",
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
    seen_by="commit-majority",
    campaign="quorum",
    faults="change-voters isolate pause",
    seconds=12.0,
    seeds=20,
)
def removed_leader_counts_itself(patch: Patch) -> None:
    """A leader that is being removed counts itself for that, though it votes no more. (A bug that was here once.)"""

    def counts(self: HeldSyncObj) -> None:
        others = {Peer(each) for each in sorted(self.voters) if each != self.node_id}
        self._SyncObj__otherNodes = others

    patch.put(HeldSyncObj, "_voters_changed", counts)


@bug(
    seen_by="commit-majority leader-completeness",
    campaign="quorum",
    faults="change-voters isolate empty-disk",
    seconds=12.0,
    seeds=20,
)
def new_voters_decide_alone(patch: Patch) -> None:
    """A new set of voters is committed by its own majority, whoever of the old one has heard of it. (A bug that was here once.)"""
    patch.put(LeaderSide, "_held_by_most", lambda _self, _voters: NEVER)


@bug(
    seen_by="commit-majority leader-completeness",
    campaign="quorum",
    faults="change-voters isolate empty-disk",
    seconds=12.0,
    seeds=40,
)
def what_came_before_new_voters_is_theirs_alone(patch: Patch) -> None:
    """What is not committed when voters change is committed by the new ones alone. (A bug that was here once.)"""

    def counts(self: LeaderSide) -> None:
        sets = self.sets
        sure = not sets.before or self._held_by_most(sets.before) >= sets.index
        for progress in self._progress.values():
            match = progress.match_index if sure else min(progress.match_index, sets.index - 1)
            self._SyncObj__raftMatchIndex[Peer(progress.node_id)] = match

    patch.put(LeaderSide, "_count_holders_of_a_new_set", counts)


@bug(seen_by="images-differ", campaign="quorum", faults="isolate kill empty-disk", seconds=12.0)
def snapshot_forgotten(patch: Patch) -> None:
    """A node that is sent a snapshot of the metadata stores it, and does not take it up."""
    right = MetadataMachine.become

    def forgets(self: MetadataMachine, new: Any) -> None:
        if self.image.version == 0:
            right(self, new)

    patch.put(MetadataMachine, "become", forgets)


@bug(seen_by="two-leaders", campaign="cluster", faults="kill power-one isolate")
def leader_epoch_not_raised(patch: Patch) -> None:
    """A new leader leads under the epoch of the one before it, and everybody takes it."""
    right = election_policy.changed

    def under_the_same(now: Any, wish: Any, **others: Any) -> Any:
        change = right(now, wish, **others)
        return None if change is None else replace(change, leader_epoch=now.leader_epoch)

    for module in (brokers_policy, elect_policy, isr_policy, reassign_policy, balance_policy):
        patch.put(module, "changed", under_the_same)
    rules = dict(metadata_machine.RULES)
    rules[records.PartitionsChanged] = replace(
        rules[records.PartitionsChanged], why_not=lambda _image, _command: None
    )
    patch.put(metadata_machine, "RULES", rules)


@bug(seen_by="two-controllers", campaign="cluster", faults="isolate cut pause", seconds=8.0)
def lease_too_long(patch: Patch) -> None:
    """A leader of the quorum relies on its lead for as long as nobody tells it of another."""
    right = LeaderSide.lease_end

    def never(self: Any) -> float:
        return right(self) + 60.0

    patch.put(LeaderSide, "lease_end", never)


@bug(
    seen_by="images-differ two-images",
    campaign="cluster",
    faults="older-build kill",
    seconds=8.0,
    seeds=20,
)
def unknown_commands_are_skipped(patch: Patch) -> None:
    """A node of an older build passes over commands of the metadata log that it does not know."""

    def lenient(entry: bytes) -> list[codec.Command]:
        packed = msgpack.unpackb(entry, raw=False, strict_map_key=True)
        return [codec._decode_one(each) for each in packed if codec.COMMANDS.get(each[0])]

    patch.put(metadata_machine, "decode", lenient)


@bug(seen_by="feature-unknown", campaign="cluster", faults="older-build", seconds=6.0, seeds=20)
def older_builds_may_register(patch: Patch) -> None:
    """A node is let into a cluster whose features are at levels that it does not know."""
    patch.put(brokers_policy, "why_not_here", lambda _levels, _known: None)


@bug(
    seen_by="metadata-unreadable",
    campaign="transactions",
    faults="upgrade kill-controller",
    workloads="bank",
    protocol="old",
    seconds=12.0,
    seeds=20,
)
def all_that_a_build_knows_is_written(patch: Patch) -> None:
    """A controller writes commands as new as it knows them, whoever has to read them. (A bug that was here once.)"""
    patch.put(service, "level_with", lambda _image, _commands: levels.reads())


@bug(
    seen_by="offset-back commit-back",
    campaign="cluster",
    faults="left-behind",
    seconds=8.0,
)
def images_are_taken_for_now_s(patch: Patch) -> None:
    """A node believes its image to be of now, and asks nobody: it may have slept, and others have been elected."""

    async def confirm(self: Peers, *_: Any, **__: Any) -> bool:
        return True

    patch.put(Peers, "confirm_image", confirm)
