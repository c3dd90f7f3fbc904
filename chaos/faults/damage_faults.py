"""Bytes that rot: a node that is down finds files truncated or flipped. It must say so by name, or have mended it.

What counts is that nobody is ever served damage; the readers of the load see to that. Here it is seen whether the node
says what it found, serves again with whole copies, refuses to start, or has to be given an empty disk.

INVARIANT  a node that could not mend itself has named what is damaged, in an event that speaks of damage, or the run is unknown.
PREVENTS   an empty disk that hides a node which was blind to its damage, and only complained of its neighbours.
PROVED BY  tests/chaos/test_faults_damage.py::test_who_says_nothing_of_its_damage_and_gets_an_empty_disk_makes_the_run_unknown
"""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..harness.processes import DidNotStart
from .fault import SYNC_S, Fault, LeftOut, Stage
from .plan import Strike

MENDED_S: Final = 20.0  # for a node with damaged files to be whole again by itself
# What the product logs of files that are not as they were written: what can't be written is another matter, and so is whatever
# is said of neighbours. Of these a line counts that names what was damaged.
DAMAGE_EVENTS: Final = frozenset(
    {
        "compaction_failed",
        "coordinator_unreadable",
        "damaged_logs_unreadable",
        "file_range_unreadable",
        "journal_torn_tail_cut",
        "leader_epochs_damaged",
        "log_damaged",
        "node_ends",
        "node_refused",
        "partition_offline",
        "partition_offsets_damaged",
        "peer_lives_unreadable",
        "quorum_vote_copy_damaged",
        "read_failed",
        "read_for_follower_failed",
        "retention_failed",
        "snapshot_not_usable",
        "stray_partition",
        "torn_log_cut",
        "transaction_index_damaged",
    }
)
READ_S, LOOK_S = 60.0, 0.5  # for a node to read all of its logs again
READ_AGAIN: Final = '"logs_read_again"'
LINE_MAX: Final = 300
PARTITION: Final = re.compile(r"[\w.-]+-\d+")  # the name of its folder
STARTS: Final = "node_starts"
SILENT: Final = "it said nothing of damage"


class Damage(Fault):
    """Struck only while all copies are whole, and not through before they are whole again."""

    name = "damage"
    needs = "damage"
    targets = ("one", "leaders", "coordinator", "controller")
    hold_s = (0.1, 3.0)

    def __init__(self, stage: Stage, strike: Strike) -> None:
        super().__init__(stage, strike)
        self._told = ""  # what was done to which files
        self._names = re.compile("(?!)")  # by which a line names one of them

    def begin(self) -> str:
        self.stage.wait_in_sync()
        (node,) = self.take()
        cleanly = self.rng.random() < 0.5
        self.system.kill(node, signal.SIGTERM if cleanly else signal.SIGKILL)
        folder = self.system.folder(node)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        kind = self.rng.choice((".log", ".index", ".snapshot", ""))
        fitting = [path for path in files if path.name.endswith(kind)] or files
        if not fitting:
            raise LeftOut(f"node {node} has no file that could be damaged")
        some = self.rng.sample(fitting, min(3, len(fitting)))
        self._told = "; ".join(self._strike(path, folder) for path in some)
        self._names = names_of([path.relative_to(folder) for path in some], folder.name)
        ended = "stopped" if cleanly else "killed"
        return f"node {node} was {ended}, and finds {self._told} ({self.target})"

    def _strike(self, path: Path, folder: Path) -> str:
        size = path.stat().st_size
        name = path.relative_to(folder)
        if self.rng.random() < 0.4:
            keep = self.rng.randrange(size)
            os.truncate(path, keep)
            return f"{name} cut from {size} to {keep} bytes"
        places = sorted(self.rng.sample(range(size), min(self.rng.choice((1, 1, 16)), size)))
        with path.open("r+b") as file:
            for place in places:
                file.seek(place)
                (byte,) = file.read(1)
                file.seek(place)
                file.write(bytes([byte ^ (1 << self.rng.randrange(8))]))
        return f"{len(places)} of {size} bytes of {name} flipped, the first at {places[0]}"

    def heal(self) -> str:
        if not self.nodes:
            return ""
        (node,) = self.nodes
        try:
            self.start_again([node])
            self.stage.asked.wait_in_sync(MENDED_S)
            # After a clean stop the logs are trusted until they have been read again.
            if self._has_read_again(node):
                self.stage.asked.wait_in_sync(MENDED_S)
        except (DidNotStart, TimeoutError) as not_whole:
            how = "refused to start" if isinstance(not_whole, DidNotStart) else "stayed behind"
            told = self._named(node)
            if told == SILENT:
                self.stage.trouble.append(
                    f"damage of {self.target}: node {node} {how} and {SILENT}; {self._told}"
                )
            self._replace_disk(node)
            return f"node {node} {how}, was given an empty disk, and is whole again; {told}"
        return f"node {node} is whole again by itself; {self._named(node)}"

    def _has_read_again(self, node: int) -> bool:
        """Whether it has been through all of its logs since it was started, in the time that it has for that."""
        for _ in range(round(READ_S / LOOK_S)):
            if READ_AGAIN in self._since_start(node):
                return True
            time.sleep(LOOK_S)  # also when all has to end: what comes then needs whole copies
        self.stage.trouble.append(
            f"damage of {self.target}: node {node} did not come to read its logs again in {READ_S} s"
        )
        return False

    def _since_start(self, node: int) -> str:
        return self.system.said(node).rpartition(f'"{STARTS}"')[2]

    def _named(self, node: int) -> str:
        """The sentences in which it has named its damage since its last start."""
        told: list[str] = []
        for line in self.system.said(node).splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if found.get("event") == STARTS:
                told.clear()
            elif found.get("event") in DAMAGE_EVENTS and self._names.search(_words(found)):
                told.append(str(found.get("message"))[:LINE_MAX])
        return f"it said: {' | '.join(told[:3])}" if told else SILENT

    def _replace_disk(self, node: int) -> None:
        """Not the last copy of anything: with another fault at the same time nobody else may have all of it yet."""
        self.system.kill(node)
        self.stage.asked.wait_held_by_others(node, SYNC_S)
        folder = self.system.folder(node)
        shutil.rmtree(folder)
        folder.mkdir()
        self.system.start(node)
        self.system.wait_ready([node], self.system.back_s)
        self.stage.asked.wait_in_sync(SYNC_S)


def names_of(files: Sequence[Path], folder: str) -> re.Pattern[str]:
    """Of files in the folder of that name: the path of one, of the folder that it lies in (`folder` itself is one), or the partition. A
    torn tail of the file beside it, as any kill may leave one, names none of them."""
    found = []
    for file in files:
        found.append(rf"/{re.escape(file.as_posix())}(?![\w-])")
        beside = file.parent.as_posix()
        is_top = beside == "."
        found.append(rf"/{re.escape(folder if is_top else beside)}(?![\w/-])")
        if PARTITION.fullmatch(beside):
            found.append(rf"(?<![\w./-]){re.escape(beside)}(?![\w/-])")
    return re.compile("|".join(found))


def _words(line: Mapping[str, Any]) -> str:
    """A topic and its partition are two fields of a line."""
    return "\n".join([*map(str, line.values()), f"{line.get('topic')}-{line.get('partition')}"])


KINDS = (Damage,)
