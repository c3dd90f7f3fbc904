"""How the nodes of the quorum speak: which messages there are, and how they are written.

INVARIANT  nothing of a peer reaches Raft but a known message, whole, with the term in which it was said.
PREVENTS   a pickle from whoever reaches the port; an acknowledgement of an earlier term that counts in this one.
PROVED BY  tests/cluster/quorum/test_transport.py::test_only_what_raft_needs_is_let_in

pysyncobj sends pickles, and its `next_node_idx` has no term. Here a message is msgpack, of a known type, with known
fields of known types, behind its sender's term at the time when it was said.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgpack
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from ..base.errors import FrameRefused, LogDamaged
from ..base.ids import NODE_ID_END, BrokerId
from .segment_format import Entry
from .voters import VOTERS_KIND, read_voters

_INT: Final = (int,)
_BOOL: Final = (bool,)
_BYTES: Final = (bytes,)
_FLOAT: Final = (float,)
_ENTRIES: Final = (list,)
# Of terms, indexes, sizes. A peer's term has room above it, for the elections of those who take it up.
_INT_END: Final = 2**63
_TERM_END: Final = 2**62
_KINDS: Final = (0, 1, VOTERS_KIND)  # of entries: `held.py`
NOBODYS_ID: Final = BrokerId(-1)

# Type -> its fields and their types. `stamp` is the leader's steady clock when it said what is answered: its lead
# lasts as long as a majority has answered something that it said recently.
MESSAGES: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    "pre_vote": {"round": _INT, "last_log_index": _INT, "last_log_term": _INT},
    # In round 0, which nobody asks in, of a leader that goes: whoever stands next may have this node's vote.
    "pre_vote_granted": {"round": _INT, "fresh": _BOOL},
    "request_vote": {"term": _INT, "last_log_index": _INT, "last_log_term": _INT},
    "response_vote": {"term": _INT, "fresh": _BOOL},
    "append_entries": {
        "commit_index": _INT,
        "entries": _ENTRIES,
        "previous_index": _INT,
        "previous_term": _INT,
        "stamp": _FLOAT,
    },
    # The log is the leader's before `next_index`, durably.
    "held": {"next_index": _INT, "stamp": _FLOAT},
    # What was sent does not follow on what is there: begin at `next_index`.
    "gap": {"next_index": _INT, "stamp": _FLOAT},
    # Heard; the disk is not as far yet.
    "alive": {"stamp": _FLOAT},
    # A part of the snapshot that ends with that entry.
    "snapshot": {
        "last_index": _INT,
        "last_term": _INT,
        "position": _INT,
        "size": _INT,
        "data": _BYTES,
        "stamp": _FLOAT,
    },
    "snapshot_wanted": {"last_index": _INT, "position": _INT, "stamp": _FLOAT},
    # Of a node that hears no leader, or for it: who is asked and does not lead sends it on, as the node may know
    # none but voters of long ago.
    "follow": {"node_id": _INT},
    # Of a leader that goes: stand for election now.
    "timeout_now": {},
    # The answer to who is in an earlier term; the term before the message says all.
    "behind": {},
}


def write_message(message: Mapping[str, Any], sender_term: int) -> bytes:
    """A frame for a peer."""
    check_message(message)
    return bytes(msgpack.packb([sender_term, dict(message)], use_bin_type=True))


def read_message(frame: bytes | memoryview) -> tuple[int, dict[str, Any]]:
    """The sender's term and its message. FrameRefused for all that is none."""
    try:
        sender_term, message = msgpack.unpackb(frame, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as trouble:
        raise FrameRefused(f"A message of the quorum is not msgpack: {trouble}.") from trouble
    is_term = type(sender_term) is int and 0 <= sender_term < _TERM_END
    if not is_term or not isinstance(message, dict):
        raise FrameRefused("A message of the quorum is not [term, fields].")
    check_message(message)
    if message["type"] == "append_entries":
        message["entries"] = [_entry(each) for each in message["entries"]]
    return sender_term, message


def check_message(message: Mapping[str, Any]) -> None:
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in MESSAGES:
        raise FrameRefused(f"A message of the quorum has the unknown type {kind!r}.")
    fields = MESSAGES[kind]
    if message.keys() != {"type", *fields}:
        raise FrameRefused(f"A {kind} of the quorum has the fields {sorted(map(str, message))}.")
    for name, types in fields.items():
        # bool is an int to isinstance.
        value = message[name]
        end = NODE_ID_END if name == "node_id" else _INT_END
        if type(value) not in types or (types is _INT and not 0 <= value < end):
            raise FrameRefused(f"A {kind} of the quorum has {name} {value!r:.100}.")


def _entry(item: object) -> Entry:
    match item:
        case [bytes(command), int(idx), int(term)] if command and 0 <= term < _TERM_END:
            _check_command(command)
            return Entry(command, idx, term)
        case _:
            raise FrameRefused("An entry in a message of the quorum is not [command, index, term].")


def _check_command(command: bytes) -> None:
    """What is in the log must be read by all who have it: one entry that can't be ends them, one after the other."""
    if command[0] not in _KINDS:
        raise FrameRefused(f"An entry in a message of the quorum is of kind {command[0]}.")
    if command[0] == VOTERS_KIND:
        try:
            read_voters(command[1:])
        except (LogDamaged, ValueError, TypeError, msgpack.exceptions.UnpackException) as wrong:
            raise FrameRefused(
                f"A set of voters in a message of the quorum is none: {wrong}."
            ) from wrong


class Links(Protocol):
    """The connections to the other nodes, on the peer door."""

    def send(self, node_id: BrokerId, frame: bytes) -> None:
        """Queue a frame; one that can't be sent is lost, as in any network."""


class QuorumTransport(Transport):  # type: ignore[misc]  # pysyncobj has no types
    """What SyncObj and its subclass say goes out at once, stamped with the term in which it is said."""

    def __init__(self, links: Links | None = None) -> None:
        super().__init__(None, None, [])
        self._links = links
        self.term: Callable[[], int] = lambda: 0  # of this node; the shell sets it

    def send(self, node: Node, message: Mapping[str, Any]) -> bool:
        """SyncObj's own entry; the votes that it shows were stored before."""
        if node.id != NOBODYS_ID:
            self.say(node.id, message)
        return True

    def say(self, node_id: BrokerId, message: Mapping[str, Any]) -> None:
        assert self._links is not None, "a node without links has something to say"
        self._links.send(node_id, write_message(message, self.term()))

    def destroy(self) -> None:
        """Links belong to the node."""
