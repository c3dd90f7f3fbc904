"""What rots behind a pass, in a part of the log that it has read, and is found by a follower or a reader: the pass does not forget it."""

import errno

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log import scrub
from fencepost.replication.partition import Refusal
from replica_helpers import Node, batch, play, said
from test_scrubber import flip, read_at, whole_pass, written

E = ErrorCode


def test_what_is_found_behind_a_pass_is_known_when_the_pass_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pass is in the second file when a batch of the first one rots, and somebody who was sent it does not take it."""

    async def scene(node: Node) -> None:
        await written(node, 5)
        partition = node.partition()
        log, scrubber = partition.log, node.manager.rounds.scrubber
        log.roll(0)
        await node.write(batch("behind"))
        read, came = scrub.check_piece, []

        def rots(disk, extent, place):
            if extent.path.endswith("05.log") and not came:
                came.append(extent)
                flip(node.env.disk.machine, 2)
                scrubber.suspect(partition, 2, 3)
            return read(disk, extent, place)

        monkeypatch.setattr("fencepost.replication.scrubber.check_piece", rots)
        await whole_pass(node)
        assert came
        (found,) = said(node, "log_damaged")
        assert "where offset 2 should be" in str(found["cause"])
        assert [each.first_offset for each in log.damage] == [2]
        refused = await read_at(node, 2)
        assert isinstance(refused, Refusal) and refused.error is E.corrupt_message
        assert node.manager.store.damaged.of(partition.topic_partition, partition.topic_id) == 2
        await whole_pass(node)
        assert [each.first_offset for each in log.damage] == [2]
        flip(node.env.disk.machine, 2)  # as it was
        await whole_pass(node)
        assert log.damage == ()

    play(scene)


def test_a_list_of_damaged_logs_that_found_no_room_is_written_when_there_is_some() -> None:
    async def scene(node: Node) -> None:
        await written(node, 5)
        disk, log = node.env.disk, node.partition().log
        faults = disk.machine.faults
        flip(disk.machine, 2)
        faults.fail("append", path="*damaged-logs.tmp", number=errno.ENOSPC, times=2)
        await whole_pass(node)
        assert said(node, "damaged_logs_not_written")
        path = f"{node.manager.store.data_dir}/damaged-logs"
        assert not disk.exists(path)
        await whole_pass(node)
        assert disk.exists(path)
        assert b'"offset": 2' in disk.read_all(path)
        flip(disk.machine, 2)  # as it was
        faults.fail("append", path="*damaged-logs.tmp", number=errno.ENOSPC)
        await whole_pass(node)
        assert log.damage == ()
        assert b'"offset": 2' in disk.read_all(path)
        await whole_pass(node)
        assert b'"offset": 2' not in disk.read_all(path)

    play(scene)
