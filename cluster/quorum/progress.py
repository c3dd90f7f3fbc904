"""How far another node is, as the leader knows it: what it holds, what is under way to it, when it last answered."""

from collections.abc import Sequence
from typing import Final

from ..base.ids import BrokerId
from .raft_files import Snapshot, write_snapshot
from .segment_format import Entry

APPEND_BYTES_MAX: Final = 1024 * 1024  # of entries in one message; a single larger one goes alone
UNDER_WAY_BYTES_MAX: Final = 8 * 1024 * 1024  # sent to one node and not answered
UNDER_WAY_ENTRIES_MAX: Final = 8192
CHUNK_BYTES: Final = 256 * 1024
CHUNK_RETRY_S, CHUNK_RETRY_MAX_S = 0.5, 4.0


class SnapshotSending:
    """One chunk at a time; the receiver says which one it wants next."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.last = snapshot.last
        self.data = write_snapshot(snapshot)
        self.position = 0
        self._retry_s = CHUNK_RETRY_S
        self._sent_at: float | None = None
        self._stamp = float("-inf")

    def chunk(self, now: float, stamp: float) -> bytes:
        """What is said under this stamp: nothing while the same chunk is under way."""
        if self._sent_at is not None:
            if now - self._sent_at < self._retry_s:
                return b""
            self._retry_s = min(2 * self._retry_s, CHUNK_RETRY_MAX_S)  # a slow link is not filled
        self._sent_at, self._stamp = now, stamp
        return self.data[self.position : self.position + CHUNK_BYTES]

    def on_wanted(self, position: int, *, stamp: float) -> bool:
        """Whether another chunk is due. Each that was sent twice is answered twice: sending one for every answer, there
        would be more under way with each."""
        if position > len(self.data) or position == self.position:
            return False
        if position < self.position and stamp < self._stamp:
            return False  # said before it had what was sent since
        self.position, self._sent_at = position, None
        return True


class Progress:
    """Of one node. `next_index` runs ahead of what it is known to hold: appends are sent without waiting."""

    def __init__(self, node_id: BrokerId, next_index: int, now: float) -> None:
        self.node_id = node_id
        self.next_index = next_index
        self.match_index = 0
        # The stamp of the newest message of ours that it has answered; or of its vote, which counts for a lease.
        self.answered = now
        self.echoed = float("-inf")  # the same without the vote
        self.heard_ms = -1  # wall clock, for people
        self.caught_up_ms = -1
        self.bytes_under_way = 0
        self.sending: SnapshotSending | None = None
        # Gaps behind what was sent until then are known, and what was held before is not.
        self._void_before = float("-inf")

    def on_held(self, next_index: int, *, stamp: float) -> None:
        """What was said before a gap counts no more: its disk may have been lost in between."""
        if stamp < self._void_before:
            return
        self.match_index = max(self.match_index, next_index - 1)
        self.next_index = max(self.next_index, self.match_index + 1)
        if self.sending is not None and self.match_index >= self.sending.last.idx:
            self.sending = None

    def on_gap(self, next_index: int, last_index: int, *, stamp: float, now: float) -> bool:
        """It lacks what comes from there on. If it once said otherwise, its disk was lost.

        False: that is known. All that was under way at the first gap is answered with a gap, and where the logs part the
        later ones lie further up: believed, each would send the leader back to where it was, and be answered again.
        """
        if stamp < self._void_before:
            return False
        self._void_before = now
        self.next_index = min(max(next_index, 2), last_index + 1)
        self.match_index = min(self.match_index, self.next_index - 1)
        self.bytes_under_way = 0
        return True

    def has_room(self) -> bool:
        # Before the first answer nothing is known of what is under way but its size.
        entries = self.next_index - 1 - self.match_index if self.match_index else 0
        return self.bytes_under_way < UNDER_WAY_BYTES_MAX and entries < UNDER_WAY_ENTRIES_MAX

    def sent(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.next_index = entries[-1].idx + 1
            self.bytes_under_way += size_of(entries)


def size_of(entries: Sequence[Entry]) -> int:
    return sum(len(entry.command) for entry in entries)


def first_bytes(entries: Sequence[Entry], most: int) -> Sequence[Entry]:
    """As many of them as fit, and one at least."""
    size = 0
    for place, entry in enumerate(entries):
        size += len(entry.command)
        if place and size > most:
            return entries[:place]
    return entries
