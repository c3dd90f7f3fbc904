"""The slow twin of the producers machine, and both of them driven by the same operations."""

from dataclasses import dataclass

from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log.producer_snapshot import SEQUENCE_MAX, Batch, read_snapshot
from fencepost.replication.log.producer_verdicts import ACCEPT, Duplicate, Marker, Refused
from fencepost.replication.log.producers_machine import ProducersMachine
from producer_helpers import NOW, OLD_EPOCH, OUT_OF_ORDER, Produced


@dataclass
class Entry:
    """One batch of the twin's log."""

    batch: Produced
    first: int
    last: int
    marker: Marker | None = None


class SlowTwin:
    """Keeps the whole log and works every answer out from its beginning."""

    def __init__(self) -> None:
        self.log: list[Entry] = []

    @property
    def end(self) -> int:
        return self.log[-1].last + 1 if self.log else 0

    def batches_of(self, pid: int) -> tuple[int, list[Entry], int]:
        """Epoch, the batches of that epoch, the first offset of the open transaction (-1)."""
        epoch, batches, txn = -1, [], -1
        for entry in self.log:
            if entry.batch.producer_id != pid:
                continue
            if entry.batch.producer_epoch != epoch:
                epoch, batches = entry.batch.producer_epoch, []
            if entry.batch.is_control:
                txn = -1
            else:
                batches.append(entry)
                if entry.batch.is_transactional and txn < 0:
                    txn = entry.first
        return epoch, batches, txn

    def answer(self, batch: Produced) -> object:
        epoch, batches, txn = self.batches_of(batch.producer_id)
        sequences = self.sequences(batch)
        if batch.producer_epoch == epoch:
            for entry in batches[-5:]:
                if self.sequences(entry.batch) == sequences:
                    return Duplicate(entry.first, entry.last, entry.batch.max_timestamp)
        if batch.producer_epoch < epoch:
            return OLD_EPOCH
        if epoch >= 0:
            last = self.sequences(batches[-1].batch)[-1] if batches else -1
            expected = 0 if last == SEQUENCE_MAX or batch.producer_epoch > epoch else last + 1
            if batch.base_sequence != expected:
                return OUT_OF_ORDER
        if txn >= 0 and not batch.is_transactional:
            return ErrorCode.invalid_txn_state
        return ACCEPT

    @staticmethod
    def sequences(batch: Produced) -> list[int]:
        return [(batch.base_sequence + i) % (SEQUENCE_MAX + 1) for i in range(batch.count)]

    def unstable(self, high_watermark: int) -> int | None:
        """The first offset of a transaction whose marker is not below the high watermark."""
        begun: dict[int, int] = {}
        unstable = []
        for entry in self.log:
            pid = entry.batch.producer_id
            if entry.batch.is_control:
                first = begun.pop(pid, None)
                if first is not None and entry.first >= high_watermark:
                    unstable.append(first)
            elif entry.batch.is_transactional:
                begun.setdefault(pid, entry.first)
        return min([*unstable, *begun.values()], default=None)


class Pair:
    """The machine and its twin, driven by the same operations."""

    def __init__(self) -> None:
        self.twin = SlowTwin()
        self.machine = ProducersMachine()
        self.snapshots: list[bytes] = []
        self.high_watermark = 0

    def run(self, op: tuple) -> None:
        kind, write, number, flag = op
        match kind:
            case "write":
                self.write(*write)
            case "mark":
                self.mark(1 + number % 3, number % 2, flag)
            case "replicate":
                self.replicate(number)
            case "truncate":
                self.truncate(number)
            case "snapshot":
                self.snapshots.append(self.machine.snapshot())
            case "restart":
                self.restart()
        self.compare()

    def write(self, pid: int, step: int, how: str, count: int, transactional: bool) -> None:
        epoch, batches, txn = self.twin.batches_of(pid)
        last = self.twin.sequences(batches[-1].batch)[-1] if batches else -1
        sequence = {
            "next": 0 if step > 0 else (last + 1) % (SEQUENCE_MAX + 1), "zero": 0, "retry": 0,
            "gap": last + 3 if batches else SEQUENCE_MAX - 3,
        }[how]  # fmt: skip
        if how == "retry" and batches:
            old = batches[-1 - (count - 1) * 2 % len(batches)].batch
            sequence, count = old.base_sequence, old.count
        transactional = transactional or txn >= 0
        batch = Produced(
            sequence % (SEQUENCE_MAX + 1), count, max(0, epoch + step), pid, transactional,
            max_timestamp=self.twin.end,
        )  # fmt: skip
        verdict = self.machine.decide(batch, origin_client=True)
        answer = verdict.error if isinstance(verdict, Refused) else verdict
        assert answer == self.twin.answer(batch)
        if answer is ACCEPT:
            self.put(Entry(batch, self.twin.end, self.twin.end + count - 1))

    def mark(self, pid: int, step: int, commit: bool) -> None:
        epoch = max(0, self.twin.batches_of(pid)[0] + step)
        batch = Produced(-1, 1, epoch, pid, True, True)
        end = self.twin.end
        self.put(Entry(batch, end, end, Marker(1, commit, end)))

    def put(self, entry: Entry) -> None:
        self.twin.log.append(entry)
        self.machine.apply(entry.batch, entry.first, entry.last, now_ms=NOW, marker=entry.marker)

    def replicate(self, count: int) -> None:
        ends = [entry.last + 1 for entry in self.twin.log if entry.last >= self.high_watermark]
        if ends:
            self.high_watermark = ends[min(count, len(ends) - 1)]
            self.machine.on_high_watermark(self.high_watermark)

    def truncate(self, entries: int) -> None:
        """As a follower does, never below the high watermark."""
        while entries and self.twin.log and self.twin.log[-1].first >= self.high_watermark:
            self.twin.log.pop()
            entries -= 1
        self.restart()

    def restart(self) -> None:
        """The newest snapshot that is not past the log's end, then the rest of the log."""
        self.machine = ProducersMachine()
        self.snapshots = [s for s in self.snapshots if read_snapshot(s).end_offset <= self.twin.end]
        start = self.machine.restore(self.snapshots[-1], now_ms=NOW) if self.snapshots else 0
        for entry in self.twin.log:
            if entry.first >= start:
                self.machine.apply(
                    entry.batch, entry.first, entry.last, now_ms=NOW, marker=entry.marker
                )
        self.machine.on_high_watermark(self.high_watermark)

    def compare(self) -> None:
        assert self.machine.end_offset == self.twin.end
        assert self.machine.first_unstable_offset == self.twin.unstable(self.high_watermark)
        for pid in range(1, 4):
            epoch, batches, txn = self.twin.batches_of(pid)
            state = self.machine.state_of(pid)
            if state is None:
                assert (epoch, batches) == (-1, [])
                continue
            assert (state.producer_epoch, state.txn_first_offset) == (epoch, txn)
            window = tuple(
                Batch(s[0], s[-1], e.first, e.last, e.batch.max_timestamp)
                for e in batches[-5:]
                if (s := self.twin.sequences(e.batch))
            )
            assert state.batches == window
