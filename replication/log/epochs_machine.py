"""Which leader epoch wrote which offsets of one partition (Kafka's LeaderEpochFileCache).

INVARIANT  epochs and their start offsets both rise from entry to entry.
PREVENTS   a follower truncating to a wrong place, and a consumer reading on past a lost tail as if all were well.
PROVED BY  tests/replication/log/test_epochs_machine.py::test_epochs_and_offsets_rise_whatever_is_assigned

The file is Kafka's `leader-epoch-checkpoint`: a line `0`, a line with the count, then `epoch start_offset` lines; and a
last line of ours, their checksum. A follower of which one bit had flipped there refused what any leader sent, for ever.
"""

import zlib
from bisect import bisect_left, bisect_right
from typing import Final

NO_EPOCH: Final = -1  # Kafka's UNDEFINED_EPOCH
NO_OFFSET: Final = -1  # and UNDEFINED_EPOCH_OFFSET
CHECKPOINT_NAME: Final = "leader-epoch-checkpoint"
CHECKPOINT_VERSION: Final = "0"
CHECKSUM: Final = "crc32 "


class CheckpointDamaged(Exception):
    """The text is not a checkpoint of leader epochs. The log's own batches carry their epochs: rebuild it."""


class EpochsMachine:
    """Two lists of equal length: `epochs[i]` began at `starts[i]`."""

    __slots__ = ("epochs", "starts")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []

    def assign(self, epoch: int, start_offset: int) -> bool:
        """A batch of `epoch` is at `start_offset`; whether that was news, so that the file must be written."""
        assert epoch >= 0 and start_offset >= 0, f"epoch {epoch} at {start_offset}"
        epochs, starts = self.epochs, self.starts
        if epochs and epoch == epochs[-1] and start_offset >= starts[-1]:
            return False
        # What contradicts the newcomer is of a history that was truncated.
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        return True

    @property
    def latest(self) -> int:
        """The epoch of the last batch; NO_EPOCH of an empty log."""
        return self.epochs[-1] if self.epochs else NO_EPOCH

    @property
    def later_starts(self) -> frozenset[int]:
        """Of all epochs but the first there can be, before which there is no history that could part from another."""
        known = zip(self.epochs, self.starts, strict=True)
        return frozenset(start for epoch, start in known if epoch > 0)

    def end_offset_for(
        self, epoch: int, log_end: int, leading: tuple[int, int] | None = None
    ) -> tuple[int, int]:
        """The largest known epoch that is not above `epoch`, and the offset where it ended.

        As Kafka's endOffsetFor: for an epoch older than all, where the oldest begins; for one newer than all
        (or NO_EPOCH), nothing. `leading` is the epoch that this broker leads in and where it began: it counts
        before it has written anything, without ten thousand files being rewritten at every start.
        """
        if leading is not None and epoch != NO_EPOCH and leading[0] > self.latest:
            if epoch >= leading[0]:
                return (epoch, log_end) if epoch == leading[0] else (NO_EPOCH, NO_OFFSET)
            if epoch >= self.latest:
                return (self.latest if self.epochs else epoch), leading[1]
        epochs = self.epochs
        if epoch == NO_EPOCH:
            return NO_EPOCH, NO_OFFSET
        if epochs and epoch == epochs[-1]:
            return epoch, log_end  # still being written
        higher = bisect_right(epochs, epoch)
        if higher == len(epochs):
            return NO_EPOCH, NO_OFFSET
        return (epochs[higher - 1] if higher else epoch), self.starts[higher]

    def epoch_for(self, offset: int) -> int:
        """The epoch that wrote `offset` (or will, beyond the end); NO_EPOCH before the first."""
        index = bisect_right(self.starts, offset)
        return self.epochs[index - 1] if index else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """The log now ends before `end_offset`; whether anything changed."""
        keep = bisect_left(self.starts, end_offset)
        changed = keep < len(self.starts)
        del self.epochs[keep:], self.starts[keep:]
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log now starts at `start_offset`: its epoch starts there too, older ones are gone."""
        index = bisect_right(self.starts, start_offset) - 1
        if index < 0:
            return False
        changed = index > 0 or self.starts[0] != start_offset
        del self.epochs[:index], self.starts[:index]
        self.starts[0] = start_offset
        return changed

    def clear(self) -> None:
        self.epochs.clear()
        self.starts.clear()

    def to_text(self) -> str:
        lines = [CHECKPOINT_VERSION, str(len(self.epochs))]
        lines += [f"{epoch} {start}" for epoch, start in zip(self.epochs, self.starts, strict=True)]
        text = "\n".join(lines) + "\n"
        return f"{text}{_checksum(text)}\n"

    def load_text(self, text: str) -> None:
        """Become what `to_text` wrote, or raise CheckpointDamaged and stay as it was. Kafka's own has no checksum."""
        loaded = EpochsMachine()
        body, line, checksum = text.rpartition(CHECKSUM)
        if line and f"{line}{checksum}" != f"{_checksum(body)}\n":
            raise CheckpointDamaged(f"the checksum is {checksum!r}")
        text = body if line else text
        try:
            version, count, *entries = text.splitlines()
            if version.strip() != CHECKPOINT_VERSION or int(count) != len(entries):
                raise CheckpointDamaged(
                    f"version {version!r}, {count!r} entries, {len(entries)} lines"
                )
            for line in entries:
                epoch, start_offset = map(int, line.split())
                if epoch < 0 or start_offset < 0:
                    raise CheckpointDamaged(f"the line {line!r}")
                loaded.assign(epoch, start_offset)
        except ValueError as error:
            raise CheckpointDamaged(str(error)) from error
        self.epochs, self.starts = loaded.epochs, loaded.starts


def _checksum(text: str) -> str:
    return f"{CHECKSUM}{zlib.crc32(text.encode()):08x}"
