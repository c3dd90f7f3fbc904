"""How voters speak: which messages there are, how they are written, and when they may leave.

INVARIANT  a message leaves only when all that it says of this voter's log and vote is durable.
PREVENTS   a leader that counts an entry as held by a follower which then loses power.
PROVED BY  tests/cluster/quorum/test_transport.py::test_nothing_leaves_before_what_it_acknowledges_is_durable

pysyncobj sends pickles, and takes them from whoever reaches its port. Here a message is msgpack, of a known type, with
known fields of known types, and carries its sender's term: `next_node_idx` has none of its own, and a late one
from an earlier term would count as a match. What comes from an earlier term than ours is dropped.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgpack
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from ..base.errors import FrameRefused
from ..base.ids import BrokerId
from .segment_format import Entry

_INT: Final = (int,)
_BOOL: Final = (bool,)
_ENTRIES: Final = (list,)

# Type -> its fields and their types. Forwarded commands, snapshots and pysyncobj's status messages are not among
# them: nobody here sends any.
MESSAGES: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    "request_vote": {"term": _INT, "last_log_index": _INT, "last_log_term": _INT},
    "response_vote": {"term": _INT},
    "append_entries": {
        "term": _INT,
        "commit_index": _INT,
        "entries": _ENTRIES,
        "prevLogIdx": (int, type(None)),
        "prevLogTerm": (int, type(None)),
    },
    "next_node_idx": {"next_node_idx": _INT, "reset": _BOOL, "success": _BOOL},
    "timeout_now": {"term": _INT},
}


def write_message(message: Mapping[str, Any], sender_term: int) -> bytes:
    """A frame for a peer."""
    check_message(message)
    return bytes(msgpack.packb([sender_term, dict(message)], use_bin_type=True))


def read_message(frame: bytes) -> tuple[int, dict[str, Any]]:
    """The sender's term and its message. FrameRefused for all that is none."""
    try:
        sender_term, message = msgpack.unpackb(frame, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as trouble:
        raise FrameRefused(f"A message of the quorum is not msgpack: {trouble}.") from trouble
    if type(sender_term) is not int or sender_term < 0 or not isinstance(message, dict):
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
        raise FrameRefused(f"A {kind} of the quorum has the fields {sorted(message)}.")
    for name, types in fields.items():
        # bool is an int to isinstance.
        if type(message[name]) not in types:
            raise FrameRefused(f"A {kind} of the quorum has {name} {message[name]!r}.")


def _entry(item: object) -> Entry:
    match item:
        case [bytes(command), int(idx), int(term)] if command:
            return Entry(command, idx, term)
        case _:
            raise FrameRefused("An entry in a message of the quorum is not [command, index, term].")


class Links(Protocol):
    """The connections to the other voters, on the peer door."""

    def send(self, node_id: BrokerId, frame: bytes) -> None:
        """Queue a frame; one that can't be sent is lost, as in any network."""


class QuorumTransport(Transport):  # type: ignore[misc]  # pysyncobj has no types
    """What SyncObj sends waits here until the shell has made its log durable, then goes out by `flush`."""

    def __init__(self, links: Links | None = None) -> None:
        super().__init__(None, None, [])
        self._links = links
        self._outbox: list[tuple[BrokerId, Mapping[str, Any]]] = []
        self.term: Callable[[], int] = lambda: 0  # of this node; the shell sets it

    def send(self, node: Node, message: Mapping[str, Any]) -> bool:
        self._outbox.append((node.id, message))
        return True

    def flush(self) -> None:
        """All that was said so far may leave: the shell calls this when the journal is not dirty."""
        outbox, self._outbox = self._outbox, []
        for node_id, message in outbox:
            assert self._links is not None, "a voter alone has said something to somebody"
            self._links.send(node_id, write_message(message, self.term()))

    def deliver(self, node: Node, frame: bytes) -> None:
        """A frame of a peer, whose identity the door has checked. FrameRefused closes its connection."""
        sender_term, message = read_message(frame)
        if sender_term < self.term():
            return
        self._onMessageReceived(node, message)

    def destroy(self) -> None:
        self._outbox.clear()
