"""The last offset of each key, in bounded memory: what compaction decides by.

A slot is 24 bytes: 16 of the key's BLAKE2b hash, 8 of the offset + 1 (0: empty). Open addressing, linear probing. Two keys
of one hash would lose the older one; at 128 bits and a thousand million keys that has odds of 1 in 10^20.
"""

from hashlib import blake2b
from typing import Final

SLOT: Final = 24
HASH: Final = 16
LOAD_MAX: Final = 0.75  # beyond it probing gets long; Kafka's 0.9 pays with time in C-like loops
_EMPTY: Final = bytes(8)


class KeyMap:
    """Made for one round. `latest` is the offset up to which the log has been taken in."""

    __slots__ = ("_slots", "_table", "_used", "latest")

    def __init__(self, bytes_max: int, keys_max: int) -> None:
        """`keys_max`: no more can come, so no more room is taken."""
        self._slots = max(16, min(bytes_max // SLOT, int(keys_max / LOAD_MAX) + 1))
        self._table = bytearray(self._slots * SLOT)
        self._used = 0
        self.latest = -1

    def __len__(self) -> int:
        return self._used

    def has_room(self, more: int) -> bool:
        return self._used + more <= self._slots * LOAD_MAX

    def _find(self, key: bytes) -> tuple[int, bytes]:
        """Where the key is or belongs."""
        digest = blake2b(key, digest_size=HASH).digest()
        table, end = self._table, self._slots * SLOT
        at = int.from_bytes(digest[:8], "big") % self._slots * SLOT
        while True:
            if table[at : at + HASH] == digest or table[at + HASH : at + SLOT] == _EMPTY:
                return at, digest
            at += SLOT
            if at == end:
                at = 0

    def put(self, key: bytes, offset: int) -> None:
        at, digest = self._find(key)
        table = self._table
        if table[at + HASH : at + SLOT] == _EMPTY:
            assert self._used + 1 < self._slots, "the caller asks has_room first"
            self._used += 1
            table[at : at + HASH] = digest
        table[at + HASH : at + SLOT] = (offset + 1).to_bytes(8, "big")

    def get(self, key: bytes) -> int:
        """-1 when the key was not seen."""
        at, _ = self._find(key)
        return int.from_bytes(self._table[at + HASH : at + SLOT], "big") - 1

    def grow(self) -> None:
        """For one batch that has more keys than all the room there is."""
        old, self._slots = self._table, self._slots * 2
        self._table = bytearray(self._slots * SLOT)
        for start in range(0, len(old), SLOT):
            if old[start + HASH : start + SLOT] == _EMPTY:
                continue
            at = int.from_bytes(old[start : start + 8], "big") % self._slots * SLOT
            while self._table[at + HASH : at + SLOT] != _EMPTY:
                at = (at + SLOT) % len(self._table)
            self._table[at : at + SLOT] = old[start : start + SLOT]
