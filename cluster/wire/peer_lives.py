"""Which life of its folder each node is in. One begins with each process, and from time to time while it runs.

INVARIANT  of one folder, which its id names, nobody is let in whose past has not in it what was seen of that folder here:
           it began with a copy of an earlier day.
PREVENTS   a node whose folder of before was put back: it has forgotten for whom it voted and what it acknowledged, and would
           vote a second time, or count as one who has what it lacks.
PROVED BY  tests/node/test_folder_of_before.py::test_what_was_acknowledged_outlives_a_voters_folder_of_before

A life has a number, one more than that of the life before, and dice give it a name. Both are on the disk before anybody
is told. The numbers alone would not do: a folder that was put back counts on from where it was, and has overtaken what was
seen after a few starts; but it never comes to have the names. What is not known (of an older build; a folder that belongs
to no cluster yet; a disk that was full; a past that is longer than what is told of it) is compared with nothing.

Peers tell each other what they have seen, too: who was down while a node was in some life knows of it as soon as it meets
one who was not.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ..base.errors import FrameRefused
from ..base.ids import NODE_ID_END, BrokerId

LIFE: Final = "life"  # the message
DISK_SIZE: Final = 16  # bytes of a folder's id
TOLD_MAX: Final = 24  # lives of a past: they have to fit into a greeting
NUMBER_END: Final = 1 << 62
# Folders that are remembered: those of nodes that were replaced, too.
SEEN_MAX: Final = 1000
SEEN_TOLD_MAX: Final = 200


class Life(NamedTuple):
    """Of a folder. `number` is 0 where nobody knows; `names` are those of the last ones, up to this one."""

    disk: bytes
    number: int
    names: tuple[int, ...]

    @property
    def is_known(self) -> bool:
        return self.number > 0 and any(self.disk) and bool(self.names)

    @property
    def name(self) -> int:
        return self.names[-1]

    def has_been(self, number: int, name: int) -> bool:
        """Whether that life is this one, or of its past. What is too long ago is taken for it."""
        ago = self.number - number
        return ago >= 0 and (ago >= len(self.names) or self.names[-1 - ago] == name)


# Whoever makes a node of another one's copy changes `node.id` in it: that is another folder.
Folder = tuple[BrokerId, bytes]
UNKNOWN: Final = Life(bytes(DISK_SIZE), 0, ())


class Seen(NamedTuple):
    """The last life of a folder that was seen."""

    number: int
    name: int


class PeerLives:
    """`mine` is this node's own life, `on_news` is called when one of `seen` has changed."""

    def __init__(self, mine: Callable[[], Life] = lambda: UNKNOWN) -> None:
        self.mine = mine
        self.seen: dict[Folder, Seen] = {}
        self.on_news: Callable[[], None] = _nobody_keeps_them

    def seen_instead(self, node_id: BrokerId, life: Life | None) -> int:
        """The number of a life that was seen here and is not of its past; 0 when there is none, and it may be let in."""
        if life is None or not life.is_known:
            return 0
        seen = self.seen.get((node_id, life.disk))
        return 0 if seen is None or life.has_been(*seen) else seen.number

    def saw(self, node_id: BrokerId, life: Life | None) -> None:
        """It is let in."""
        if life is None or not life.is_known:
            return
        assert not self.seen_instead(node_id, life), "a folder of before was let in"
        self._note((node_id, life.disk), Seen(life.number, life.name))

    def _note(self, folder: Folder, now: Seen) -> None:
        if self.seen.get(folder) == now:
            return
        self.seen.pop(folder, None)  # it is the last one to be forgotten now
        self.seen[folder] = now
        while len(self.seen) > SEEN_MAX:
            del self.seen[next(iter(self.seen))]
        self.on_news()

    def hear(self, node_id: BrokerId, header: dict[str, Any], _payload: memoryview) -> None:
        """A message: another life has begun there, or lives of others were seen there."""
        life = read_life(header.get("life"))
        if not self.seen_instead(node_id, life):  # else it is kept out when it comes again
            self.saw(node_id, life)
        for folder, seen in read_seen(header.get("seen", [])):
            known = self.seen.get(folder)
            if known is None or known.number < seen.number:
                self._note(folder, seen)

    def packed_seen(self) -> list[object]:
        """The newest of it, and so much that it fits into a message."""
        newest = list(self.seen.items())[-SEEN_TOLD_MAX:]
        return [[*folder, *seen] for folder, seen in newest]


def pack_life(life: Life) -> list[object]:
    return [life.disk, life.number, list(life.names)]


def read_life(said: object) -> Life | None:
    """None of a build that does not tell it."""
    match said:
        case None:
            return None
        case [bytes(disk), int(number), list(names)] if (
            len(disk) == DISK_SIZE
            and len(names) <= TOLD_MAX
            and all(type(each) is int and 0 <= each < NUMBER_END for each in (number, *names))
        ):
            return Life(disk, number, tuple(names))
    raise FrameRefused("a peer tells a life that is none")


def read_seen(said: object) -> list[tuple[Folder, Seen]]:
    found = []
    if not isinstance(said, list) or len(said) > SEEN_MAX:
        raise FrameRefused("a peer tells no list of lives that it has seen")
    for item in said:
        match item:
            case [int(node_id), bytes(disk), int(number), int(name)] if (
                0 <= node_id < NODE_ID_END and (life := read_life([disk, number, [name]]))
            ):
                found.append(((BrokerId(node_id), disk), Seen(life.number, life.name)))
            case _:
                raise FrameRefused("a peer tells a life seen that is none")
    return found


def why_not(life: Life | None, seen: int) -> str:
    """For whoever refuses it."""
    number = 0 if life is None else life.number
    return (
        f"its folder is one of before: it is in life {number}, and life {seen} of that folder, which was seen here, is not in"
        " its past, so it may lack what it acknowledged"
    )


def _nobody_keeps_them() -> None:
    return
