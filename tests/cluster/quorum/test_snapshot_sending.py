"""A snapshot in pieces over a slow link: each piece is sent about once, however late its answer is."""

from itertools import pairwise

import pytest
from fencepost.cluster.quorum.progress import (
    CHUNK_BYTES,
    CHUNK_RETRY_MAX_S,
    CHUNK_RETRY_S,
    SnapshotSending,
)
from fencepost.cluster.quorum.raft_files import Snapshot
from fencepost.cluster.quorum.redirected import in_world
from fencepost.cluster.quorum.segment_format import Entry
from raft_peers import Peers

PIECES = 10
SNAPSHOT = Snapshot(Entry(b"\x00x", 9, 1), Entry(b"\x00x", 10, 1), bytes(PIECES * CHUNK_BYTES), {})


@pytest.mark.parametrize("way_s", [0.05, 0.3, 1.0])
def test_a_late_answer_does_not_make_more_pieces_go_out(one: Peers, way_s: float) -> None:
    """Each piece that went out twice was answered twice, and each answer sent another: at a second's way 134 pieces for 11."""
    one.lead()
    one.raft.snapshots.newest = SNAPSHOT
    one.raft.progress[2].next_index = 1
    pieces: list[tuple[float, float, int, int]] = []  # when it arrives, its stamp, where, how much
    answers: list[tuple[float, float, int]] = []
    got, sent, size, now = 0, 0, 1, 0.0
    while got < size:
        one.sleep(0.1)
        now += 0.1
        one.said.clear()
        with in_world(one.env):
            one.raft.send_to(2)
        said = list(one.said)
        for _, stamp, position in [each for each in answers if each[0] <= now]:
            one.hear(2, 1, "snapshot_wanted", last_index=10, position=position, stamp=stamp)
            said += one.said
        answers = [each for each in answers if each[0] > now]
        for to, _, message in said:
            if to == 2 and message["type"] == "snapshot" and message["data"]:
                place, length = message["position"], len(message["data"])
                pieces.append((now + way_s, message["stamp"], place, length))
                sent, size = sent + 1, message["size"]
        for _, stamp, position, length in [each for each in pieces if each[0] <= now]:
            got += length if position == got else 0
            answers.append((now + way_s, stamp, got))
        pieces = [each for each in pieces if each[0] > now]
        assert now < 100, "it does not come to an end"
    needed = -(-size // CHUNK_BYTES)
    assert needed <= sent <= needed + 4


def test_what_is_under_way_is_sent_again_later_and_later() -> None:
    sending = SnapshotSending(SNAPSHOT)
    times = [step / 4 for step in range(70) if sending.chunk(step / 4, step / 4)]
    waits = [after - before for before, after in pairwise(times)]
    assert times[0] == 0 and waits[0] == CHUNK_RETRY_S
    assert waits == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0] and waits[-1] == CHUNK_RETRY_MAX_S


def test_a_receiver_that_has_lost_what_it_had_begins_again_and_a_late_answer_does_not_send_it_back() -> (
    None
):
    sending = SnapshotSending(SNAPSHOT)
    sending.chunk(0.0, 1.0)
    assert sending.on_wanted(CHUNK_BYTES, stamp=1.0)
    sending.chunk(0.1, 2.0)
    assert not sending.on_wanted(CHUNK_BYTES, stamp=2.0), "it is under way"
    assert not sending.on_wanted(0, stamp=1.0), "said before that"
    assert not sending.on_wanted(len(sending.data) + 1, stamp=2.0)
    assert sending.on_wanted(0, stamp=2.0), "it has started anew"
    assert sending.chunk(0.1, 3.0) == sending.data[:CHUNK_BYTES]
