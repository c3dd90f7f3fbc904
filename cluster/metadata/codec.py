"""How commands are written into the metadata log.

INVARIANT  what any released version wrote, every later one reads; what a node can't read ends it with a sentence.
PREVENTS   a new node's command that an old node of the same quorum skips: their images would part in silence.
PROVED BY  tests/cluster/metadata/test_codec.py::test_an_unknown_command_is_refused_by_name

One entry of the quorum's log is a *batch*: commands that happen together or not at all, each written as
[number, version, fields].
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, Self

import msgpack

from ..base.errors import Outcome, Trouble
from . import levels
from .records import ALL_COMMANDS

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024  # of one entry; 10,000 changed partitions take under 1 MiB


class CommandUnreadable(Trouble):
    """A command of the log can't be read here: it is damaged, or written by a later version."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Outcome.REFUSED)


class Command(Protocol):
    """What every command of the log has."""

    TYPE: ClassVar[int]
    VERSION: ClassVar[int]

    def pack(self, _version: int) -> list[Any]: ...

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self: ...


COMMANDS: Final[Mapping[int, type[Command]]] = {command.TYPE: command for command in ALL_COMMANDS}


def encode(commands: Sequence[Command], level: int = levels.NEWEST) -> bytes:
    """One entry of the log: the commands of a batch, each as [number, version, fields], as nodes of this level read them."""
    packed = []
    for command in commands:
        version = levels.version_for(command, level)
        packed.append([command.TYPE, version, command.pack(version)])
    return bytes(msgpack.packb(packed, use_bin_type=True))


def decode(entry: bytes) -> list[Command]:
    """The commands of an entry. CommandUnreadable names what this version of the code can't read."""
    try:
        packed = msgpack.unpackb(entry, raw=False, strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException) as trouble:
        raise CommandUnreadable(f"A metadata command is not msgpack: {trouble}.") from trouble
    if not isinstance(packed, list):
        raise CommandUnreadable(f"A metadata entry is a {type(packed).__name__}, not a list.")
    return [_decode_one(item) for item in packed]


def _decode_one(item: Any) -> Command:
    match item:
        case [int(number), int(version), list(fields)]:
            pass
        case _:
            raise CommandUnreadable("A metadata command is not [number, version, fields].")
    command = COMMANDS.get(number)
    if command is None:
        raise CommandUnreadable(
            f"Metadata command {number} is not known to this version of Fencepost. A newer version"
            " wrote it: start this node with at least that version."
        )
    newest = levels.version_at(number, levels.reads())
    if not 1 <= version <= newest:
        raise CommandUnreadable(
            f"Metadata command {number} ({command.__name__}) has version {version}; this version of"
            f" Fencepost reads 1 to {newest}. Start this node with a newer one."
        )
    try:
        return command.unpack(version, fields)
    except (ValueError, TypeError, AttributeError) as trouble:
        raise CommandUnreadable(
            f"Metadata command {number} ({command.__name__}, version {version}) is damaged:"
            f" {trouble}."
        ) from trouble
