"""The records that Fencepost adds to `__transaction_state`."""

from dataclasses import replace

import pytest
from fencepost.txn.transactions.added_records import ID_BYTES_MAX, key_of, value_of
from fencepost.txn.transactions.check_back_records import (
    HalfForgotten,
    HalfMessage,
    HalfState,
    decode_half_message,
)
from fencepost.txn.transactions.group_commit_records import (
    GroupDecided,
    GroupDecisionForgotten,
    MemberEnded,
    decode_group_decision,
)
from fencepost.txn.transactions.registry import CODEC
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.text(min_size=1, max_size=40)
INTS = st.integers(0, 2**63 - 1)
DECISIONS = st.builds(
    GroupDecided,
    group=NAMES,
    number=INTS,
    commit=st.booleans(),
    decided_ms=INTS,
    floor=st.integers(-1, 2**63 - 1),
    note=st.text(max_size=20),
    members=st.lists(st.builds(MemberEnded, NAMES, INTS, st.integers(0, 32767))).map(tuple),
)
HALVES = st.builds(
    HalfMessage,
    transactional_id=NAMES,
    half_id=NAMES,
    producer_id=INTS,
    producer_epoch=st.integers(0, 32767),
    state=st.sampled_from(HalfState),
    prepared_ms=INTS,
    checks=st.integers(0, 100),
    next_check_ms=INTS,
    changed_ms=INTS,
    decided_by=st.text(max_size=20),
    half_number=INTS,
)
TOMBSTONES = st.one_of(
    st.builds(GroupDecisionForgotten, group=NAMES, number=INTS),
    st.builds(HalfForgotten, transactional_id=NAMES),
)


@given(st.one_of(DECISIONS, HALVES, TOMBSTONES))
def test_a_record_read_again_is_the_same_and_names_its_owner(record) -> None:
    key, value = record.encode()
    assert CODEC.decode(key, value) == record
    owner = getattr(record, "group", None) or record.transactional_id
    assert CODEC.owner_of(key, value) == owner.encode()


@given(st.one_of(DECISIONS, HALVES), st.data())
def test_any_bytes_decode_to_a_record_or_are_refused(record, data) -> None:
    key, value = record.encode()
    read = decode_group_decision if isinstance(record, GroupDecided) else decode_half_message
    damaged = bytearray(key + b"|" + value)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for pair in ((bytes(damaged[:cut]), value), (key, bytes(damaged[cut:])), (key, b"")):
        try:
            read(*pair)
        except ValueError:
            continue


def test_a_name_that_no_key_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="too many"):
        key_of(1000, "x" * (ID_BYTES_MAX + 1))


def test_a_decision_without_a_note_has_the_bytes_that_older_builds_wrote() -> None:
    decided = GroupDecided(group="job", number=7, commit=True, decided_ms=5)
    older = value_of(True, 5, -1, ())
    assert decided.encode()[1] == older
    noted = replace(decided, note="of seven")
    assert noted.encode()[1] == value_of(True, 5, -1, (), "of seven")
    newer = value_of(True, 5, -1, (), "of seven", "a later build's")
    assert decode_group_decision(noted.encode()[0], newer) == noted
    with pytest.raises(ValueError, match="a note that is no text"):
        decode_group_decision(noted.encode()[0], value_of(True, 5, -1, (), 7))


def test_a_half_message_without_a_number_has_the_bytes_that_older_builds_wrote() -> None:
    half = HalfMessage(
        transactional_id="pay::p1",
        half_id="h1",
        producer_id=9,
        producer_epoch=2,
        state=HalfState.COMMITTED,
        prepared_ms=5,
        decided_by="its producer",
    )
    older = ("h1", 9, 2, 2, 5, 0, 0, 0, "its producer")
    key, value = half.encode()
    assert value == value_of(*older)
    assert decode_half_message(key, value) == half
    numbered = replace(half, half_number=7)
    assert numbered.encode()[1] == value_of(*older, 7)
    assert decode_half_message(key, value_of(*older, 7, "a later build's")) == numbered
    with pytest.raises(ValueError, match="a number that is none"):
        decode_half_message(key, value_of(*older, "7"))
