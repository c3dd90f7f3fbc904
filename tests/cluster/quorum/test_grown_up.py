"""When a fresh voter, whose disk was lost, counts in full again."""

from fencepost.cluster.quorum.raft_files import Snapshot, write_snapshot
from fencepost.cluster.quorum.redirected import in_world
from fencepost.cluster.quorum.segment_format import Entry
from raft_peers import VOTERS, Peers


def install(one: Peers, snapshot: Snapshot) -> None:
    """It is durable, and the next tick has looked whether the voter counts in full by it."""
    with in_world(one.env):
        one.raft.snapshots.newest = snapshot
        one.raft.install(snapshot)
        one.raft.installed()
    one.sync()
    with in_world(one.env):
        one.raft.maybe_grow_up()


def test_what_a_leader_of_before_had_committed_says_nothing_of_what_this_ones_has(world) -> None:
    """1. in term 6 node 1 and its leader, 3, have entries 20 to 30, and 2 lacks them   2. node 1 loses its disk, and while 3 sends it
    a snapshot up to 20, once more   3. 2, cut off from 3, still takes itself for the leader of term 5, and is heard first
    4. the snapshot comes, in pieces, and 3 ends. A node 1 that counted in full would be elected by 2, without 21 to 30."""
    one = Peers(world, fresh=True)
    one.append(5, (1, 0), 5, commit=2)
    snapshot = Snapshot(Entry(b"\x00x", 19, 6), Entry(b"\x00x", 20, 6), b"", VOTERS)
    data = write_snapshot(snapshot)
    piece = {"last_index": 20, "last_term": 6, "position": 0, "size": len(data), "data": data}
    one.hear(3, 6, "snapshot", **piece, stamp=0.0)
    assert one.raft.to_install == snapshot
    install(one, snapshot)
    assert one.raft.has_begun_term and one.journal.vote.fresh
    assert not one.raft.is_up_to_date()
    entries = [Entry(b"\x00x", index, 6) for index in range(21, 31)]
    before = {"previous_index": 20, "previous_term": 6}
    one.hear(3, 6, "append_entries", entries=entries, commit_index=30, stamp=0.0, **before)
    one.sync()
    one.tick()
    with in_world(one.env):
        one.raft.maybe_grow_up()
    assert not one.journal.vote.fresh


def test_what_a_leader_says_that_counts_on_the_lost_disk_is_not_all_it_has_committed(world) -> None:
    """1. leader 2 has committed up to 20, and 21 waits for its own disk; this node had it, and 3 has not   2. this one's disk is
    lost, and 2 says "20" to it   3. 2's disk has 21, which is committed by what this node said before   4. its answer, that it
    has nothing, comes, and it is sent a snapshot up to 20. By its full vote 3 would be elected, without 21."""
    one = Peers(world, fresh=True)
    assert one.append(6, (21, 6), commit=20) == [(2, "gap")]
    snapshot = Snapshot(Entry(b"\x00x", 19, 6), Entry(b"\x00x", 20, 6), b"", VOTERS)
    install(one, snapshot)
    assert one.raft.has_begun_term and one.journal.vote.fresh
    last = {"previous_index": 20, "previous_term": 6, "entries": [Entry(b"\x00x", 21, 6)]}
    one.hear(2, 6, "append_entries", commit_index=21, stamp=0.0, **last)
    one.sync()
    one.tick()
    with in_world(one.env):
        one.raft.maybe_grow_up()
    assert not one.journal.vote.fresh
