"""A log is read again piece by piece: what has flipped is found and named, what is whole is not."""

import random

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.wire.batch import headers_of
from fencepost.replication.log.damage import Damage, KnownDamage
from fencepost.replication.log.log import Log
from fencepost.replication.log.scrub import (
    PIECE_BATCHES,
    Place,
    check_piece,
    extent_of,
    place_before,
)
from log_helpers import FOLDER, PARTITION, Node, batch_at, offsets_in, produce, read_bytes, run

HEADER_END = 61


def damage_in(log: Log) -> list[Damage]:
    """By one pass over all of it."""
    found = []
    for segment in log.segments:
        extent, place = extent_of(log, segment), Place(0, segment.base_offset)
        while place.position < extent.size:
            piece = check_piece(log.env.disk, extent, place)
            assert piece.place.position > place.position, "a pass that stands still"
            place = piece.place
            found += [piece.damage] if piece.damage else []
    return found


def content(node: Node, path: str) -> bytearray:
    return node.world.disk("n1").files.file(path).content


def test_every_bit_that_flips_is_found() -> None:
    """Of the whole file, in all that a reader is given of it: but for the leader epoch of a batch alone, of which no
    checksum knows, if those around it are no lower and no higher."""

    async def scene(world: World) -> None:
        node = Node(world, segment_bytes=100_000)
        log = await node.start()
        for epoch in (3, 3, 5, 5, 5, 7):
            produce(log, 1, count=3, leader_epoch=epoch)
        await node.sync()
        data = content(node, log.active.path)
        starts = [position for position, _ in headers_of(bytes(data))]
        unknown = {start + 12 + at for start in starts for at in range(4)}
        missed = set()
        for position in range(len(data)):
            for bit in range(8):
                data[position] ^= 1 << bit
                if not damage_in(log):
                    missed.add(position)
                data[position] ^= 1 << bit
        assert missed <= unknown
        assert not damage_in(log)

    run(scene)


@pytest.mark.parametrize("at", [0, 3, 8, 9, 16, 20, 40, 70])
def test_damage_is_named_by_file_position_and_offset(at: int) -> None:
    """Wherever in the batch it is: in its offset, its length, its checksum or its records."""

    async def scene(world: World) -> None:
        node = Node(world, segment_bytes=100_000)
        log = await node.start()
        produce(log, 10, count=2)
        data = content(node, log.active.path)
        position = headers_of(bytes(data))[4][0]
        data[position + at] ^= 4
        (found,) = damage_in(log)
        assert (found.first_offset, found.next_offset, found.position) == (8, 10, position)
        assert log.active.path in found.sentence
        assert f"at position {position}, where offset 8 should be" in found.sentence

    run(scene)


def test_an_offset_that_is_too_high_is_found_in_the_last_batch_too() -> None:
    """No batch behind it belies it, and no checksum covers it: where the log ends does."""

    async def scene(world: World) -> None:
        node = Node(world, segment_bytes=100_000)
        log = await node.start()
        produce(log, 3)
        data = content(node, log.active.path)
        data[headers_of(bytes(data))[2][0] + 7] ^= 32
        (found,) = damage_in(log)
        assert (found.first_offset, found.next_offset) == (2, 3)

    run(scene)


def test_a_file_that_was_cut_or_is_gone_is_damaged_to_its_end() -> None:
    async def scene(world: World) -> None:
        node = Node(world, segment_bytes=100_000)
        log = await node.start()
        produce(log, 6)
        await node.sync()
        data = content(node, log.active.path)
        kept = headers_of(bytes(data))[4][0]
        del data[kept + 10 :]
        (cut,) = damage_in(log)
        assert (cut.first_offset, cut.next_offset, cut.position) == (4, 6, kept)
        node.env.disk.remove(log.active.path)
        (gone,) = damage_in(log)
        assert (gone.first_offset, gone.next_offset) == (0, 6)
        assert "the file is missing" in gone.sentence

    run(scene)


def test_a_piece_ends_before_it_holds_the_interpreter_for_long() -> None:
    async def scene(world: World) -> None:
        node = Node(world, segment_bytes=1_000_000)
        log = await node.start()
        produce(log, PIECE_BATCHES + 1)
        extent = extent_of(log, log.active)
        piece = check_piece(node.env.disk, extent, Place(0, 0))
        assert piece.place.offset == PIECE_BATCHES
        rest = check_piece(node.env.disk, extent, piece.place)
        assert rest.place == Place(extent.size, PIECE_BATCHES + 1, 0)

    run(scene)


def test_a_log_is_read_around_what_is_damaged() -> None:
    """What lies before it and behind it is given; it itself is refused, with what may be there next."""

    async def scene(world: World) -> None:
        node = Node(world, segment_bytes=100_000, index_interval_bytes=0)
        log = await node.start()
        produce(log, 10, count=2)
        data = content(node, log.active.path)
        data[headers_of(bytes(data))[4][0] + HEADER_END + 5] ^= 1
        log.damage = tuple(damage_in(log))
        assert offsets_in(read_bytes(log, 0)) == [0, 2, 4, 6]
        for offset in (8, 9):
            with pytest.raises(KnownDamage, match="Offset 10 is the next that may be there"):
                log.read(offset, 1000, limit=20, min_one=True)
        assert offsets_in(read_bytes(log, 10)) == [10, 12, 14, 16, 18]

    run(scene)


def test_a_log_that_is_cut_knows_nothing_of_damage_behind_its_end() -> None:
    async def scene(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 10)
        log.damage = (Damage(3, 4, "x", 0, "rot"), Damage(7, 8, "x", 9, "rot"))
        log.truncate_to(5)
        assert [each.first_offset for each in log.damage] == [3]
        log.truncate_fully_and_start_at(2)
        assert log.damage == ()

    run(scene)


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_was_written_cut_and_compacted_is_whole(seed: int) -> None:
    """Epochs, gaps, segments of all sizes: nothing of it may be taken for damage."""

    async def scene(world: World) -> None:
        rng = random.Random(seed)
        node = Node(world, segment_bytes=rng.choice((400, 2000)), compact=True)
        log = await node.start()
        epoch = 0
        for _ in range(60):
            what = rng.random()
            if what < 0.75:
                gap = rng.choice((0, 0, 0, 3, 200))
                epoch += rng.choice((0, 0, 1, 4))
                batch = batch_at(
                    log.log_end_offset + gap, count=rng.randint(1, 5), leader_epoch=epoch
                )
                log.append(batch, headers_of(batch), 0)
            elif what < 0.85:
                log.truncate_to(rng.randint(0, log.log_end_offset))
                epoch = max(log.latest_epoch, 0)
            elif what < 0.95:
                await node.settle()
                await log.compact(10**13, log.log_end_offset, force=True)
            else:
                log.delete_records_before(rng.randint(0, log.log_end_offset))
            assert not damage_in(log)
            for segment in log.segments:
                offset = rng.randint(segment.base_offset, max(segment.next_offset, 1))
                place = place_before(segment, offset)
                assert place.offset <= max(offset, segment.base_offset)

    run(scene, seed=seed)


def test_what_is_known_to_be_damaged_is_not_trusted_by_the_next_start() -> None:
    """Though the stop is clean; and it is trusted again when the file was given back."""

    async def scene(world: World) -> None:
        node = Node(world, segment_bytes=100_000)
        log = await node.start()
        produce(log, 10, count=2)
        await node.sync()
        data = content(node, log.active.path)
        place = headers_of(bytes(data))[4][0] + HEADER_END + 5
        data[place] ^= 1
        log.damage = tuple(damage_in(log))
        await node.store.damaged.keep(log)
        log = await node.restart("clean")
        assert node.store.was_clean
        assert [each.first_offset for each in log.damage] == [8]
        content(node, log.active.path)[place] ^= 1
        log = await node.restart("clean")
        assert log.damage == ()
        await node.store.damaged.keep(log)
        assert b'"offset"' not in node.env.disk.read_all(f"{FOLDER}/damaged-logs")

    run(scene)


@pytest.mark.parametrize("text", [b"", b"{", b'{"logs": [{"topic": 3}]}', b"\xff\x00", b"[]"])
def test_a_list_of_damaged_logs_that_can_not_be_read_is_none(text: bytes) -> None:
    async def scene(world: World) -> None:
        node = Node(world)
        produce(await node.start(), 3)
        await node.sync()
        node.env.disk.replace(f"{FOLDER}/damaged-logs", text)
        log = await node.restart("clean")
        assert log.log_end_offset == 3
        assert log.damage == ()

    run(scene)


def test_damage_says_what_to_do() -> None:
    told = Damage(8, 10, f"{FOLDER}/{PARTITION}/0.log", 300, "rot").told()
    assert isinstance(told, LogDamaged)
    assert "`fencepost partition move`" in str(told)
