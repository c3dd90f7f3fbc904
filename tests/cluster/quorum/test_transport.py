from typing import Any

import msgpack
import pytest
from fencepost.cluster.base.errors import FrameRefused
from fencepost.cluster.base.ids import NODE_ID_END
from fencepost.cluster.quorum.held import Peer
from fencepost.cluster.quorum.segment_format import Entry
from fencepost.cluster.quorum.transport import (
    MESSAGES,
    QuorumTransport,
    read_message,
    write_message,
)
from hypothesis import given
from hypothesis import strategies as st

numbers = st.integers(0, 2**63 - 1)
terms = st.integers(0, 2**62 - 1)
entry_lists = st.lists(
    st.builds(Entry, st.binary(max_size=8).map(lambda more: b"\x00" + more), numbers, terms),
    max_size=3,
)
OF_TYPE = {
    int: numbers,
    bool: st.booleans(),
    bytes: st.binary(max_size=8),
    float: st.floats(allow_nan=False),
    list: entry_lists,
}


def messages_of(kind: str) -> st.SearchStrategy:
    fields = {
        name: st.one_of([OF_TYPE[each] for each in types]) for name, types in MESSAGES[kind].items()
    }
    if "node_id" in fields:
        fields["node_id"] = st.integers(0, NODE_ID_END - 1)
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


messages = st.sampled_from(sorted(MESSAGES)).flatmap(messages_of)
VOTE = {"type": "request_vote", "term": 3, "last_log_index": 7, "last_log_term": 2}


@given(messages, terms)
def test_a_message_is_read_as_it_was_written(message: dict[str, Any], term: int) -> None:
    assert read_message(write_message(message, term)) == (term, message)


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_never_anything_else(garbage: bytes) -> None:
    with pytest.raises(FrameRefused):
        read_message(garbage)


shapes = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(messages, st.data())
def test_a_field_of_another_type_is_refused(message: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(message)))
    value = data.draw(shapes)
    changed = {**message, field: value}
    try:
        assert read_message(msgpack.packb([1, changed]))[1] == changed
    except FrameRefused:
        pass


def test_only_what_raft_needs_is_let_in() -> None:
    """pysyncobj would also apply a stranger's command, load its snapshot, and change the voters."""
    for kind in ("apply_command", "apply_command_response", "status", "add", "remove", 7, None):
        with pytest.raises(FrameRefused, match="unknown type"):
            read_message(msgpack.packb([1, {"type": kind, "term": 1}]))
    with pytest.raises(FrameRefused, match="has the fields"):
        read_message(msgpack.packb([1, {**VOTE, "serialized": b"x"}]))
    with pytest.raises(FrameRefused, match="has term True"):
        read_message(msgpack.packb([1, {**VOTE, "term": True}]))


class Sent:
    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []

    def send(self, node_id: int, frame: bytes) -> None:
        self.frames.append((node_id, frame))


def test_a_message_is_stamped_with_the_term_in_which_it_was_said() -> None:
    """`held` has no term of its own: a late one would count as a match in a later term."""
    links = Sent()
    transport = QuorumTransport(links)
    for term in (3, 4):
        transport.term = lambda term=term: term
        transport.send(Peer(2), {"type": "alive", "stamp": 1.0})
    assert [read_message(frame)[0] for _, frame in links.frames] == [3, 4]


def test_a_field_whose_name_is_no_text_is_refused() -> None:
    """Its name could not be put in order with the others, for the sentence that refuses it: the node ended."""
    with pytest.raises(FrameRefused, match="has the fields"):
        read_message(msgpack.packb([1, {"type": "behind", b"x": 1}]))
