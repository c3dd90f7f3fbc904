"""What is written at which level, and who reads it."""

from uuid import UUID

import msgpack
import pytest
from fencepost.cluster.metadata import levels
from fencepost.cluster.metadata.codec import COMMANDS, decode, encode
from fencepost.cluster.metadata.image import NO_DISK, ClusterImage
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.metadata.records import PartitionsChanged
from fencepost.cluster.metadata.snapshot import SnapshotUnreadable, read_image
from hypothesis import given
from hypothesis import strategies as st
from support.metadata_commands import ORDERS, change, commands, created, registered

FIRST = {levels.NAME: (1, 1)}
SECOND = {levels.NAME: (1, 2)}
TODAYS = {levels.NAME: (1, 3)}
DISK = UUID(int=7)


def version(entry: bytes) -> int:
    ((_, written, _),) = msgpack.unpackb(entry)
    return written


def test_at_the_newest_level_every_command_is_written_in_its_newest_version() -> None:
    for number, command in COMMANDS.items():
        assert levels.version_at(number, levels.NEWEST) == command.VERSION
        assert levels.version_at(number, levels.OLDEST) == 1


@given(st.lists(commands, min_size=1, max_size=4), st.integers(levels.OLDEST, levels.NEWEST))
def test_what_is_written_at_any_level_says_the_same(batch: list, level: int) -> None:
    assert decode(encode(batch, level)) == batch


def test_what_an_older_version_can_carry_is_written_in_it() -> None:
    """Byte by byte what that build wrote itself."""
    assert encode([PartitionsChanged(topic_id=ORDERS, changes=(change(elr=(2,)),))], 1).hex() == (
        "9193080192c410" + "00" * 15 + "01" + "9199000001019101910191029090"
    )
    assert version(encode([registered()], levels.FAILED_LOGS)) == 1
    assert version(encode([registered(disk=DISK)], levels.DISKS)) == 2


def test_what_it_can_not_carry_came_from_the_log_and_is_not_dropped() -> None:
    marked = PartitionsChanged(topic_id=ORDERS, changes=(change(offline=(2,)),))
    assert decode(encode([marked], 1)) == [marked]
    named = registered(disk=DISK)
    assert decode(encode([named], 1)) == [named]


def machine(*brokers: dict, offline: tuple[int, ...] = ()) -> MetadataMachine:
    made = MetadataMachine()
    made.apply(encode([created()]))
    for broker_id, other in enumerate(brokers, 1):
        made.apply(encode([registered(broker_id=broker_id, **other)]))
    led = change(leader=-1 if offline else 1, offline=offline)
    made.apply(encode([PartitionsChanged(topic_id=ORDERS, changes=(led,))]))
    return made


LEVEL_OF = [
    ([], 1),
    ([{}], 1),
    ([{"features": TODAYS}, {"features": FIRST}], 1),
    ([{"features": TODAYS}, {"features": SECOND}], 2),
    ([{"features": TODAYS}, {"features": TODAYS}], 3),
    ([{"features": {levels.NAME: (1, 9)}}], 3),  # a later build: this one writes what it knows
    # One that named its disk, and no level, reads of disks.
    ([{"features": TODAYS}, {"features": FIRST, "disk": DISK}], 3),
    # What somebody has written of disks is not lost.
    ([{"features": FIRST}, {"features": FIRST, "disk": DISK}], 3),
]


@pytest.mark.parametrize(("brokers", "level"), LEVEL_OF)
def test_the_level_is_what_all_registered_brokers_read(brokers: list, level: int) -> None:
    assert levels.level_of(machine(*brokers).image) == level


def test_a_snapshot_is_written_as_whoever_is_registered_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader that was upgraded first sends it to followers that were not, yet."""
    mixed, todays = machine({"features": FIRST}), machine({"features": TODAYS, "disk": DISK})
    snapshots = mixed.snapshot(), todays.snapshot()
    monkeypatch.setattr(levels, "reads", lambda: 1)
    assert read_image(snapshots[0]).brokers == mixed.image.brokers
    with pytest.raises(SnapshotUnreadable, match=r"has version 3; this version .* reads 1 to 1"):
        read_image(snapshots[1])


@pytest.mark.parametrize(("offline", "written"), [((), 1), ((1,), 2)])
def test_a_snapshot_loses_no_mark_that_is_in_the_image(
    offline: tuple[int, ...], written: int
) -> None:
    image = machine({"features": FIRST}, offline=offline)
    version, _ = msgpack.unpackb(image.snapshot(), strict_map_key=False)
    assert version == written
    again = read_image(image.snapshot())
    assert again.partition("orders", 0) == image.image.partition("orders", 0)
    assert again.brokers[1].disk == NO_DISK


def test_an_image_of_nobody_is_of_the_oldest_level() -> None:
    assert levels.level_of(ClusterImage()) == levels.OLDEST
