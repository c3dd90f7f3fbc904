"""The same logs on the disk that there is."""

import asyncio
import random
from pathlib import Path

import pytest
from fencepost.cluster.base.real_env import open_env
from fencepost.replication.log.store import LogStore
from log_helpers import PARTITION, START_MS, TOPIC_ID, produce, read_all, settings


@pytest.mark.slow
def test_a_log_on_a_real_disk_is_the_same_after_every_kind_of_restart(tmp_path: Path) -> None:
    asyncio.run(_scenario(str(tmp_path / "data")))


async def _scenario(folder: str) -> None:
    rng = random.Random(7)
    config = settings(compact=True)
    before, ends = b"", (0, 0)
    for life in range(8):
        async with open_env() as env:
            store = LogStore(env, folder)
            store.start()
            log = store.open(PARTITION, TOPIC_ID, config)
            await store.opened([log])
            assert read_all(log) == before
            assert (log.log_start_offset, log.log_end_offset) == ends
            for sequence in range(rng.randint(10, 40)):
                produce(log, producer_id=life, producer_epoch=0, base_sequence=sequence)
                if rng.random() < 0.2:
                    await store.sync([log])
                if rng.random() < 0.1:
                    await store.checkpoint()
                if rng.random() < 0.1:
                    log.truncate_to(max(log.log_end_offset - rng.randint(0, 5), 0))
            if life % 3 == 2:
                log.roll(START_MS)
                stats = await log.compact(START_MS, log.log_end_offset, force=True)
                assert stats.records_kept == 1  # one key; the active segment is empty
                log.delete_records_before(log.log_end_offset - 3)
                await store.sync([log])
                await store.checkpoint()
            before, ends = read_all(log), (log.log_start_offset, log.log_end_offset)
            if life % 2:
                await store.stop([log])
            else:  # as a kill: nothing is told to anyone
                store.shared.pool.close_all()
                store.offsets.close()
