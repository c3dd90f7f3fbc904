"""Bytes as they come in, frames as they were sent.

INVARIANT  memory for a frame is taken as its bytes arrive, never because its length claims them.
PREVENTS   ten thousand connections that each announce 100 MiB and then say nothing.
PROVED BY  tests/cluster/base/test_framing.py::test_a_claimed_length_takes_no_memory_until_bytes_arrive

A large frame is received straight into a buffer of its own (one copy, the kernel's). Small ones arrive many
at a time in a scratch buffer that all connections of a loop share, which is sound because a transport asks
for the buffer, fills it and reports it without anything else running in between.
"""

from collections import deque
from collections.abc import Mapping
from struct import Struct
from typing import Final

_LENGTH: Final = Struct(">i")
PREFIX: Final = _LENGTH.size

SCRATCH_SIZE: Final = 64 * 1024
# From this many missing bytes on a frame gets a buffer of its own; below, copying is cheaper than a read.
DIRECT_MIN: Final = 16 * 1024
# What the first frame of a connection gets before its bytes are there; it then doubles as they come.
# Later frames get at once what earlier ones were shown to need.
TRUST_MIN: Final = 64 * 1024
# What a queued frame costs besides its bytes, so that a flood of empty ones counts too.
FRAME_OVERHEAD: Final = 256
# Who sends these speaks another protocol: it is what their first letters are, taken for a length.
_OTHERS: Final[Mapping[bytes, str]] = {
    **dict.fromkeys(
        (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE"),
        'it begins with "{first}": who speaks HTTP is to go to admin.listener',
    ),
    b"HTTP": 'it begins with "{first}": is this an admin door (admin.listener)? Clients are to go to listeners',
}
_TLS: Final = b"\x16\x03"


def why_refused(length: int, size_max: int) -> str:
    said = f"a frame of {length} bytes, allowed are 0 to {size_max}"
    first = _LENGTH.pack(length)
    if first.startswith(_TLS):
        return f"{said}; it begins as TLS does, which is not spoken at this door"
    other = _OTHERS.get(first)
    return said if other is None else f"{said}; {other.format(first=first.decode())}"


class Framer:
    """Cuts one connection's incoming bytes into frames."""

    __slots__ = (
        "_direct",
        "_direct_size",
        "_direct_view",
        "_filled",
        "_held_back",
        "_rest",
        "_scratch",
        "_size_max",
        "_trust",
        "frames",
        "queued_bytes",
    )

    def __init__(self, scratch: bytearray) -> None:
        self._scratch = memoryview(scratch)
        self.frames: deque[memoryview] = deque()
        self.queued_bytes = 0
        self._size_max = -1  # nothing is known to be welcome before the first read
        self._held_back: int | None = None
        self._rest = b""
        self._direct: bytearray | None = None
        self._direct_view = self._scratch
        self._direct_size = 0
        self._filled = 0
        self._trust = TRUST_MIN

    @property
    def held_back(self) -> int | None:
        """The length of a frame over the limit of the last read: nothing behind it is looked at."""
        return self._held_back

    @property
    def inside_frame(self) -> bool:
        """Whether part of a frame is there: an end of the stream now would cut it."""
        return self._direct is not None or bool(self._rest)

    def allow(self, size_max: int) -> None:
        """From now on frames up to `size_max` are welcome; one that was held back may now be."""
        self._size_max = size_max
        if self._held_back is not None and 0 <= self._held_back <= size_max:
            rest, self._rest, self._held_back = self._rest, b"", None
            self.feed(rest)

    def take(self) -> memoryview:
        frame = self.frames.popleft()
        self.queued_bytes -= len(frame) + FRAME_OVERHEAD
        return frame

    def buffer(self) -> memoryview:
        """Where the next bytes go. `received` must follow before anyone else uses the scratch buffer."""
        if self._direct is not None:
            return self._direct_view[self._filled :]
        rest = self._rest
        if rest and self._held_back is None:
            self._scratch[: len(rest)] = rest
            return self._scratch[len(rest) :]
        return self._scratch

    def received(self, count: int) -> None:
        """`count` bytes were put into what `buffer` gave."""
        if self._direct is not None:
            self._filled += count
            if self._filled == len(self._direct):
                self._direct_full()
        elif self._held_back is not None:
            self._rest += bytes(self._scratch[:count])
        else:
            self._split(len(self._rest) + count)

    def feed(self, data: bytes | memoryview) -> None:
        """The same for bytes that are already somewhere."""
        view = memoryview(data)
        while view:
            target = self.buffer()
            count = min(len(target), len(view))
            target[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def _split(self, end: int) -> None:
        scratch, size_max = self._scratch, self._size_max
        stops: list[int] = []
        position, length = 0, -1
        while end - position >= PREFIX:
            length = _LENGTH.unpack_from(scratch, position)[0]
            if not 0 <= length <= size_max:
                self._held_back = length
                break
            stop = position + PREFIX + length
            if stop > end:
                break
            stops.append(stop)
            position = stop
        if stops:
            # One copy for all; bytearray, because offsets are spliced into record batches in place.
            chunk = memoryview(bytearray(scratch[:position]))
            start = PREFIX
            for stop in stops:
                self.frames.append(chunk[start:stop])
                start = stop + PREFIX
            self.queued_bytes += position + len(stops) * (FRAME_OVERHEAD - PREFIX)
        left = end - position
        missing = PREFIX + length - left if self._held_back is None and left >= PREFIX else 0
        if missing and (missing > DIRECT_MIN or missing + left > len(scratch) // 2):
            self._rest = b""
            self._start_direct(length, scratch[position + PREFIX : end])
        else:
            self._rest = bytes(scratch[position:end])

    def _start_direct(self, length: int, head: memoryview) -> None:
        self._direct = bytearray(min(length, max(self._trust, 2 * len(head))))
        self._direct_view = memoryview(self._direct)
        self._direct_view[: len(head)] = head
        self._direct_size = length
        self._filled = len(head)

    def _direct_full(self) -> None:
        direct = self._direct
        assert direct is not None
        if len(direct) < self._direct_size:
            # A new one, because the transport may still hold a view of the old.
            grown = bytearray(min(self._direct_size, 2 * len(direct)))
            grown[: len(direct)] = direct
            self._direct, self._direct_view = grown, memoryview(grown)
            return
        self._trust = max(self._trust, len(direct))
        self.frames.append(self._direct_view)
        self.queued_bytes += self._direct_size + FRAME_OVERHEAD
        self._direct = None
        self._direct_view = self._scratch
