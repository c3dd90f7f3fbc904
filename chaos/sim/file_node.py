"""One simulated file: what programs read of it, what is on the disk, what lies between, and which bits have rotted."""

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

PAGE: Final = 4096
SECTOR: Final = 512
# Of what is lent to a connection (sendfile): as small beside the files of a run as the kernel's largest beside real ones.
LENT_PAGE: Final = 512
# The kernel writes back what is old on its own; it also bounds what a simulated file costs.
UNSYNCED_BYTES_MAX: Final = 32 * 1024 * 1024


class Write(NamedTuple):
    """One unsynced change: `data` at `position`, or, when `data` is None, a cut (or growth) to it."""

    position: int
    data: bytes | None
    lost: bool = False  # a sync failed on it: no later sync will write it


class FileNode:
    """One file, whatever it is called."""

    __slots__ = (
        "cold",
        "content",
        "durable",
        "edits",
        "first",
        "flips",
        "lent_end",
        "links",
        "opens",
        "unsynced",
        "unsynced_bytes",
    )

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[Write] = []
        self.unsynced_bytes = 0
        self.first = 0  # the number of unsynced[0] among all changes of this file
        self.links = 0
        self.opens = 0
        self.cold = False
        self.flips: list[tuple[int, int]] = []  # position and bit of what has rotted
        self.lent_end = 0  # connections may have bytes on their way up to here
        self.edits: list[Write] = []  # of those bytes, and none behind them

    def lend(self, position: int, length: int) -> "Lent":
        """What a connection sends of it, and does not copy."""
        self.lent_end = max(self.lent_end, position + length)
        return Lent(self, position, length, len(self.edits))

    def change(self, write: Write) -> None:
        if write.position < self.lent_end:
            self.edits.append(write)
        if self.flips:
            self._forget_flips(write)
        apply(self.content, write)
        self.unsynced.append(write)
        self.unsynced_bytes += len(write.data or b"")
        while self.unsynced_bytes > UNSYNCED_BYTES_MAX:
            self.make_durable(self.first + max(1, len(self.unsynced) // 2))

    def mark(self) -> int:
        """Everything up to now, for a sync that begins now and ends later."""
        return self.first + len(self.unsynced)

    def make_durable(self, mark: int) -> None:
        done = self.unsynced[: max(0, mark - self.first)]
        for write in done:
            if not write.lost:
                apply(self.durable, write)
            self.unsynced_bytes -= len(write.data or b"")
        del self.unsynced[: len(done)]
        self.first += len(done)

    def lose(self, mark: int) -> None:
        """A sync failed: the pages count as clean from now on, though they never reached the disk."""
        for index in range(min(len(self.unsynced), max(0, mark - self.first))):
            self.unsynced[index] = self.unsynced[index]._replace(lost=True)

    def crash(self, rng: random.Random, *, torn: bool) -> None:
        self.content = survivor(self.durable, self.unsynced, rng, torn=torn)
        self.durable = bytearray(self.content)
        self.first += len(self.unsynced)
        self.unsynced.clear()
        self.unsynced_bytes = 0
        self.opens = 0
        self.cold = True
        self.flips = [each for each in self.flips if each[0] < len(self.content)]

    def flip(self, position: int, bit: int) -> None:
        """In the cache and on the disk; what was not written back yet will be with the same mistake."""
        for copy in (self.content, self.durable):
            if position < len(copy):
                copy[position] ^= 1 << bit
        for at, write in enumerate(self.unsynced):
            start, data = write.position, write.data
            if data is not None and start <= position < start + len(data):
                rotten = bytearray(data)
                rotten[position - start] ^= 1 << bit
                self.unsynced[at] = write._replace(data=bytes(rotten))
        self.flips.append((position, bit))

    def _forget_flips(self, write: Write) -> None:
        """Those that were written over with something else, or cut off. Who writes again what it has read (a start after a power cut
        does) writes what has rotted: no node has made that up."""
        position, data, _ = write
        if data is None:
            self.flips = [each for each in self.flips if each[0] < position]
            return
        end = position + len(data)
        self.flips = [
            (at, bit)
            for at, bit in self.flips
            if not position <= at < end or data[at - position] == self.content[at]
        ]

    def as_written(self) -> bytes:
        """Without what has rotted."""
        if not self.flips:
            return bytes(self.content)
        content = bytearray(self.content)
        for position, bit in self.flips:
            content[position] ^= 1 << bit
        return bytes(content)


class Lent(NamedTuple):
    """Bytes of a file that are on their way as the kernel's own pages.

    Whoever writes to such a page writes into what is on its way. Who cuts the file inside of one makes zeros of the rest of
    it; whole pages that go are out of the file, and stay as they are until they have been sent.
    """

    node: FileNode
    position: int
    length: int
    edits_before: int

    def has_changed(self) -> bool:
        return len(self.node.edits) > self.edits_before

    def edit(self, sent: bytearray, at: int) -> None:
        """`sent` has them at `at`, some of which may be outside of it."""
        for position, data, _ in self.node.edits[self.edits_before :]:
            if data is None:
                data = bytes(-position % LENT_PAGE)
            first, last = self.position, self.position + self.length
            start, stop = max(position, first, first - at), min(position + len(data), last)
            stop = min(stop, first - at + len(sent))
            if start < stop:
                sent[at + start - first : at + stop - first] = data[
                    start - position : stop - position
                ]


def apply(content: bytearray, write: Write) -> None:
    position, data, _ = write
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


def survivor(
    durable: bytearray, unsynced: list[Write], rng: random.Random, *, torn: bool
) -> bytearray:
    """One of the contents that a power cut may leave."""
    content = bytearray(durable)
    if not unsynced:
        return content
    # All and nothing are the likeliest in life, and the edges where code breaks.
    kept = rng.choice((0, len(unsynced), rng.randint(0, len(unsynced))))
    for write in unsynced[:kept]:
        if not write.lost:
            apply(content, write)
    if not torn:
        return content
    odds = rng.random()
    for write in unsynced[kept:]:
        if write.data is None:
            break  # sizes are the journal's business: in order
        for position, page in _pages(write.position, write.data):
            if rng.random() < odds:
                apply(content, _torn(position, page, rng))
    return content


def _pages(position: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(data):
        stop = min(len(data), start + PAGE - (position + start) % PAGE)
        yield position + start, data[start:stop]
        start = stop


def _torn(position: int, page: bytes, rng: random.Random) -> Write:
    """The page, its first sectors, its last sectors, or its first bytes."""
    how = rng.random()
    sectors = [cut for cut in range(1, len(page)) if (position + cut) % SECTOR == 0]
    if how < 0.35:
        return Write(position, page)
    if how < 0.55 or not sectors:
        return Write(position, page[: rng.randint(0, len(page))])
    cut = rng.choice(sectors)
    if how < 0.8:
        return Write(position, page[:cut])
    return Write(position + cut, page[cut:])
