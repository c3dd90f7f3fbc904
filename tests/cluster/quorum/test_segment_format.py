from fencepost.cluster.quorum.segment_format import (
    SEGMENT_HEADER_SIZE,
    Entry,
    is_group_behind,
    read_group,
    read_segment_header,
    write_group,
    write_segment_header,
)
from hypothesis import given
from hypothesis import strategies as st

salts = st.integers(0, 2**64 - 1)
commands = st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2**64 - 1)), max_size=4)


def entries(commands: list, first: int) -> list[Entry]:
    return [Entry(command, first + at, term) for at, (command, term) in enumerate(commands)]


@given(commands, st.integers(0, 2**63), salts, st.binary(max_size=9), st.binary(max_size=9))
def test_a_group_is_read_back_wherever_it_stands(commands, first, salt, before, after) -> None:
    written = write_group(salt, first, entries(commands, first), flags=1)
    group = read_group(before + written + after, len(before), salt)
    assert group is not None
    assert (group.first_index, group.flags) == (first, 1)
    assert group.entries == entries(commands, first)
    assert group.end == len(before) + len(written)


@given(st.binary(max_size=200), salts)
def test_garbage_is_no_group_and_no_header(garbage: bytes, salt: int) -> None:
    assert read_group(garbage, 0, salt) is None
    assert read_segment_header(garbage) is None
    assert not is_group_behind(garbage, 0, salt)


@given(commands, salts, st.data())
def test_a_group_with_any_bit_flipped_is_none(commands, salt, data) -> None:
    written = bytearray(write_group(salt, 1, entries(commands, 1)))
    position = data.draw(st.integers(0, len(written) - 1))
    written[position] ^= 1 << data.draw(st.integers(0, 7))
    assert read_group(bytes(written), 0, salt) is None


@given(commands, salts, st.data())
def test_a_group_cut_anywhere_is_none(commands, salt, data) -> None:
    written = write_group(salt, 1, entries(commands, 1))
    assert read_group(written[: data.draw(st.integers(0, len(written) - 1))], 0, salt) is None


def test_a_group_in_a_clients_value_is_none_in_another_segment() -> None:
    """Whoever writes a config value of these bytes must not make a torn tail look like damage."""
    smuggled = write_group(7, 1, [Entry(b"x", 1, 1)])
    assert not is_group_behind(write_group(8, 1, [Entry(smuggled, 1, 1)])[:-1], 1, 8)


def test_a_segment_header_is_read_back() -> None:
    written = write_segment_header(3, 2**64 - 1)
    assert len(written) == SEGMENT_HEADER_SIZE
    header = read_segment_header(written + b"more")
    assert header is not None
    assert (header.number, header.salt, header.format) == (3, 2**64 - 1, 1)
    damaged = bytes([*written[:9], written[9] ^ 1, *written[10:]])
    assert read_segment_header(damaged) is None
