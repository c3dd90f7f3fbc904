"""What it costs to read logs again: MB a second of one core, and what the default rate takes of it.

python tests/benchmarks/bench_scrub.py [MB]
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from fencepost.cluster.base.real_disk import RealDisk
from fencepost.cluster.metadata.broker_table import BROKER_TABLE
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.replication.log.scrub import Extent, Place, check_piece

SIZES = (200, 1_000, 16_000, 250_000, 1_000_000)


def segment(path: Path, size: int, total: int) -> Extent:
    offset = written = 0
    with path.open("wb") as file:
        while written < total:
            batch = build_batch([Record(0, 1_000, None, b"x" * size)], base_offset=offset)
            written += file.write(batch)
            offset += 1
    return Extent(str(path), written, offset, 0)


def measure(extent: Extent) -> tuple[float, float, float]:
    """CPU seconds a MB, the longest piece in ms, pieces."""
    disk, place = RealDisk(), Place(0, 0)
    longest, pieces, began = 0.0, 0, time.process_time()
    while place.position < extent.size:
        at = time.perf_counter()
        piece = check_piece(disk, extent, place)
        assert piece.damage is None
        longest = max(longest, time.perf_counter() - at)
        place, pieces = piece.place, pieces + 1
    took = time.process_time() - began
    disk.close()
    return took / (extent.size / 1e6), 1000 * longest, took / pieces * 1000


def main() -> None:
    total = int(sys.argv[1] if len(sys.argv) > 1 else 200) * 1_000_000
    rate = BROKER_TABLE["log.scrub.bytes.per.second"].default
    folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
    try:
        print(
            f"{'batch':>10} {'MB/s of a core':>15} {'ms a piece':>11} {'longest':>8} {'default rate':>13}"
        )
        for size in SIZES:
            extent = segment(folder / f"{size}.log", size, min(total, 40_000 * size))
            cost, longest, piece = measure(extent)
            share = 100 * cost * rate / 1e6
            print(f"{size:>10} {1 / cost:>15,.0f} {piece:>11.2f} {longest:>8.2f} {share:>12.2f}%")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
