"""What of a log is known to be damaged: where, and what is still read around it.

INVARIANT  a reader is given nothing of a batch that is known to be damaged; what lies before and behind it, it is given.
PREVENTS   a damaged batch handed out until a client's checksum refuses it, for ever, or is not asked to.
PROVED BY  tests/replication/log/test_scrub.py::test_a_log_is_read_around_what_is_damaged

A node keeps a list of such logs beside them (`DamagedLogs`), or a clean stop would have the next start trust them again.
A line too many costs that start a look at one segment.
"""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Disk, Env

from .segment_files import read_if_there
from .walk import damaged

if TYPE_CHECKING:
    from .log import Log

FILE_NAME: Final = "damaged-logs"
VERSION: Final = 1


class Damage(NamedTuple):
    """Offsets that can't be had from here. None at all (`first_offset` is `next_offset`): the disk does not read them."""

    first_offset: int
    next_offset: int
    path: str
    position: int
    cause: str

    def reaches(self, log_start_offset: int) -> bool:
        """Whether it is in a log that starts there."""
        return max(self.next_offset, self.first_offset + 1) > log_start_offset

    def told(self) -> LogDamaged:
        return damaged(self.path, self.position, self.first_offset, self.cause)

    @property
    def sentence(self) -> str:
        return str(self.told())


class KnownDamage(LogDamaged):
    """Somebody asked for offsets that are known to be damaged; it was said when they were found."""


def readable_until(known: Iterable[Damage], offset: int, limit: int) -> int:
    """Up to where a reader may go that begins at `offset`. KnownDamage where that is damaged itself."""
    for each in known:
        if each.next_offset <= offset:
            continue
        if each.first_offset <= offset:
            behind = f"Offset {each.next_offset} is the next that may be there"
            raise KnownDamage(f"{each.sentence}. {behind}")
        return min(limit, each.first_offset)
    return limit


def joined(known: Iterable[Damage], more: Damage) -> tuple[Damage, ...]:
    others = [each for each in known if each.first_offset != more.first_offset]
    return tuple(sorted([*others, more]))


def below(known: Iterable[Damage], end_offset: int) -> tuple[Damage, ...]:
    """What is left of it in a log that was cut."""
    return tuple(each for each in known if each.first_offset < end_offset)


class DamagedLogs:
    """The list, of one node: which logs, and where the first damage is."""

    def __init__(self, env: Env, data_dir: str) -> None:
        self._env = env
        self._path = f"{data_dir}/{FILE_NAME}"
        self._offsets: dict[TopicPartition, tuple[str, int]] = {}  # topic id and offset

    def load(self) -> None:
        """A list that can't be read is none: the logs are read again after each start."""
        data = read_if_there(self._env.disk, self._path)
        if data is None:
            return
        try:
            self._offsets = dict(_read(data.decode("utf-8", errors="replace")))
        except (ValueError, KeyError, TypeError) as error:
            self._env.log.warn("damaged_logs_unreadable", path=self._path, cause=repr(error))

    def of(self, partition: TopicPartition, topic_id: UUID | None) -> int | None:
        known = self._offsets.get(partition)
        return None if known is None or known[0] != str(topic_id) else known[1]

    async def keep(self, log: "Log") -> None:
        """What is known of this log, as it is now. What can't be written is tried again when it is asked for again."""
        name = log.topic_partition
        before = self._offsets.get(name)
        if log.damage and not log.removed:
            self._offsets[name] = (str(log.topic_id), log.damage[0].first_offset)
        else:
            self._offsets.pop(name, None)
        if self._offsets.get(name) == before:
            return
        try:
            await self._env.disk.run_aside(_write, self._env.disk, self._path, self._text())
        except OSError as error:
            if before is None:
                self._offsets.pop(name, None)
            else:
                self._offsets[name] = before
            self._env.log.warn("damaged_logs_not_written", path=self._path, cause=str(error))

    def _text(self) -> str:
        logs = [
            {"topic": name.topic, "partition": name.partition, "topic_id": id_, "offset": offset}
            for name, (id_, offset) in sorted(self._offsets.items())
        ]
        return json.dumps({"version": VERSION, "logs": logs}, indent=1)


def _read(text: str) -> Iterator[tuple[TopicPartition, tuple[str, int]]]:
    for each in json.loads(text)["logs"]:
        name = TopicPartition(str(each["topic"]), int(each["partition"]))
        yield name, (str(each["topic_id"]), int(each["offset"]))


def _write(disk: Disk, path: str, text: str) -> None:
    disk.replace(path, text.encode())
