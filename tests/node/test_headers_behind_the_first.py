"""Small batches whose second record has all the headers: light by every count of the first, and seconds on the loop."""

from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import compute_crc
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.replication.appends import HEAVY_BYTES
from fencepost.replication.partition import Partition
from test_heavy_batches import Compacted, Plain

E = ErrorCode
COUNT = 20


def hiding(*, odd_time: bool) -> bytearray:
    headers = [("", None)] * 31_000
    made = build_batch([Record(0, 5, b"k", b"v"), Record(1, 5, b"k", b"v", headers)])
    assert len(made) <= HEAVY_BYTES
    if odd_time:
        made[35:43] = (4).to_bytes(8)  # its latest is before its first
        made[17:21] = compute_crc(made, 0, len(made)).to_bytes(4)
    return made


@pytest.mark.parametrize("odd_time", [False, True])
def test_many_of_them_are_looked_into_on_a_thread(
    odd_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compacted topic looks into each record for its key, and any topic does where the times don't fit."""
    scene = Plain() if odd_time else Compacted()
    away: list[int] = []
    check = Partition.check_off_loop

    async def watched(partition: Partition, records: Any, **more: Any) -> Any:
        away.append(len(records))
        return await check(partition, records, **more)

    monkeypatch.setattr(Partition, "check_off_loop", watched)

    async def scenario() -> None:
        await scene.ready()
        batches = [hiding(odd_time=odd_time) for _ in range(COUNT)]
        answers = await scene.produce_in_one(*batches)
        assert {each.error_code for each in answers} == {E.none}
        assert len(away) == COUNT - 1, "one alone is light"

    scene.play(scenario())
