"""A node's folder: held by one process, and belonging to one node of one cluster.

INVARIANT  a folder is opened by one process at a time, and only by the node that wrote it, or when nobody has written anything
           there; it has an id of its own, and no other folder has that; each process that begins with it is in a life of
           its own, whose number is on the disk when `open` returns.
PREVENTS   two processes appending to the same segments; a disk mounted at the wrong node; a node's files among those of
           somebody else; a folder that is put back as it was, and passes for the one that it was later
           (`cluster/wire/peer_lives.py`).
PROVED BY  tests/node/test_node_folder.py::test_a_folder_of_another_node_is_refused
           tests/node/test_node_folder.py::test_a_folder_of_somebody_else_is_not_begun_with
           tests/node/test_node_folder.py::test_no_two_starts_tell_the_same_life_whenever_the_power_goes
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from fencepost.cluster.base.durable_folder import make_durable_folder
from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, LogDamaged
from fencepost.cluster.base.exit_codes import EXIT_IDENTITY, EXIT_LATER, CannotRun
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Disk
from fencepost.cluster.metadata.image import NO_DISK
from fencepost.cluster.wire.peer_lives import NUMBER_END, TOLD_MAX, UNKNOWN, Life

META: Final = "meta.properties"  # Kafka's name and form
LOCK: Final = ".lock"
DISK_ID: Final = "directory.id"  # Kafka's name
LIFE: Final = "life"
LIVES: Final = "life.names"  # of that one and those before it, the newest last
VERSION: Final = "1"
# A start that came no further may have left some of these without `META`.
LEFT_BY_A_NODE: Final = frozenset(
    {META, "metadata", "partition-offsets", "last_seen", "clean-shutdown"}
)
# What may lie in a new node's folder: a file system's own, and what `fencepost dev` writes down of it.
BESIDE: Final = frozenset({"lost+found", "log", "pid", "node.toml"})
DEV_CLUSTER: Final = "cluster.json"
NAMED_MAX: Final = 5
Lives = tuple[int, tuple[int, ...]]  # the number of one, and names up to it
NO_LIFE: Final[Lives] = (0, ())


class NodeFolder:
    """`<log.dirs>`: `meta.properties`, the lock, `metadata/` for the quorum, and a folder a partition."""

    def __init__(
        self, disk: Disk, path: str, node_id: BrokerId, new_id: Callable[[], UUID]
    ) -> None:
        self.disk = disk
        self.path = path
        self.node_id = node_id
        self.cluster_id: str | None = None
        # Given once, kept with the folder: how the cluster tells an empty disk in this node from the one before.
        self.disk_id = NO_DISK
        # 0 where it could not be written, as the disk was full: then it is told to nobody.
        self._life = NO_LIFE
        self.why_no_life = ""
        self._properties: dict[str, str] = {}
        self._new_id = new_id
        self._release: Callable[[], None] = _nothing_held

    @property
    def metadata_path(self) -> str:
        return f"{self.path}/metadata"

    @property
    def told_life(self) -> Life:
        return Life(self.disk_id.bytes, *self._life) if self._life != NO_LIFE else UNKNOWN

    def open(self) -> None:
        """Lock the folder, read whose it is, and begin another life of it; an empty one belongs to nobody yet."""
        make_durable_folder(self.disk, self.path)
        lock = f"{self.path}/{LOCK}"
        is_new = not self.disk.exists(lock)
        try:
            self._release = self.disk.lock(lock)
        except BlockingIOError:
            raise CannotRun(
                f"{self.path} is in use by another fencepost process. Stop that one, or give this one "
                "another folder (`fencepost dev --data FOLDER`, or log.dirs).",
                EXIT_LATER,
            ) from None
        if (why := self._why_not_begun()) is not None:
            if is_new:
                self.disk.remove(lock)
            self.close()
            raise why
        path = f"{self.path}/{META}"
        if not self.disk.exists(path):
            return
        properties = _parse(path, self.disk.read_all(path))
        owner = properties.get("node.id")
        if owner != str(self.node_id):
            self.close()
            raise CannotRun(
                f"{path} says that this folder belongs to node {owner}, and this is node "
                f"{self.node_id}. Mount the right disk, or set node.id={owner}.",
                EXIT_IDENTITY,
            )
        self.cluster_id = properties.get("cluster.id")
        if DISK_ID in properties:
            self.disk_id = _id_of(path, properties[DISK_ID])
        self._properties = properties
        life = self.next_life()
        try:
            self.write_life(life)
        except OSError as refused:
            if refused.errno not in DISK_FULL_ERRNOS:
                raise
            self.why_no_life = str(refused)
        else:
            self.begin_life(life)

    def _why_not_begun(self) -> CannotRun | None:
        """A folder is not begun with when it holds what no node has left there: /etc, or a whole cluster of `fencepost dev`."""
        # Of a file that was written whole or not at all a start may have left the part that was written.
        names = [name.removesuffix(".tmp") for name in self.disk.list(self.path)]
        others = sorted(name for name in names if name not in BESIDE and not name.startswith("."))
        if not others or LEFT_BY_A_NODE.intersection(names):
            return None
        what = f"no node's folder, and not empty: there is {', '.join(others[:NAMED_MAX])}"
        if DEV_CLUSTER in others:
            what = "the folder of a cluster that `fencepost dev --nodes` made: each node has one of its own in it"
        return CannotRun(
            f"{self.path} is {what}. Give this node a folder that is empty or its own (log.dirs, or `fencepost dev --data "
            "FOLDER`).",
            EXIT_IDENTITY,
        )

    def next_life(self) -> Lives:
        number, names = _lives_of(f"{self.path}/{META}", self._properties)
        return number + 1, (*names, self._new_name())[-TOLD_MAX:]

    def write_life(self, life: Lives) -> None:
        """Blocks; the disk has it then."""
        self._write(**_written(life))

    def begin_life(self, life: Lives) -> None:
        self._life, self.why_no_life = life, ""

    def _new_name(self) -> int:
        return self._new_id().int >> 66

    def _write(self, **properties: str) -> None:
        """What is not named stays as it is, whoever wrote it."""
        written = {**self._properties, **properties}
        text = "".join(f"{name}={value}\n" for name, value in written.items())
        self.disk.replace(f"{self.path}/{META}", text.encode())
        self._properties = written

    def join(self, cluster_id: str) -> None:
        """Write down whose folder this is; refuse a cluster that it does not belong to."""
        if self.cluster_id == cluster_id and self.disk_id != NO_DISK:
            return
        if self.cluster_id not in (None, cluster_id):
            raise CannotRun(
                f"{self.path}/{META} says cluster {self.cluster_id}, and the metadata says "
                f"{cluster_id}: this folder was put together from two clusters.",
                EXIT_IDENTITY,
            )
        is_first = self.cluster_id is None
        disk_id = self._new_id() if self.disk_id == NO_DISK else self.disk_id
        whose = {"version": VERSION, "cluster.id": cluster_id, "node.id": str(self.node_id)}
        life = (1, (self._new_name(),)) if is_first else self._life
        self._write(**whose, **{DISK_ID: str(disk_id)}, **(_written(life) if is_first else {}))
        self.disk_id, self.cluster_id, self._life = disk_id, cluster_id, life

    def close(self) -> None:
        self._release()
        self._release = _nothing_held


def _id_of(path: str, text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as damaged:
        raise LogDamaged(
            f"{path} says {DISK_ID}={text}, which is no id. It was a UUID: without it nobody knows whether this is the "
            "disk that this node had. If it is, write the id back that another node's log names; if not, take the line out."
        ) from damaged


def _written(life: Lives) -> dict[str, str]:
    return {LIFE: str(life[0]), LIVES: ",".join(f"{name:016x}" for name in life[1])}


def _lives_of(path: str, properties: dict[str, str]) -> Lives:
    """None yet in a folder of an older build."""
    number, names = properties.get(LIFE, "0"), properties.get(LIVES, "")
    try:
        life = int(number), tuple(int(name, 16) for name in names.split(",") if name)
        if all(0 <= each < NUMBER_END for each in (life[0], *life[1])):
            return life
    except ValueError:
        pass
    raise LogDamaged(
        f"{path} says {LIFE}={number} and {LIVES}={names}, which are none: they say how often this folder was begun with, and"
        " the others know it by that. Write both back as they were, or let the node begin with an empty folder, as after a"
        " disk was replaced (deploy/docker/README.md)."
    )


def _nothing_held() -> None:
    return


def _parse(path: str, data: bytes) -> dict[str, str]:
    try:
        lines = [line.strip() for line in data.decode().splitlines()]
    except UnicodeDecodeError as damaged:
        raise LogDamaged(f"{path} is not text; it names the node and cluster of this folder") from (
            damaged
        )
    found = {}
    for line in lines:
        name, separator, value = line.partition("=")
        if line and not line.startswith("#") and separator:
            found[name.strip()] = value.strip()
    if "node.id" not in found or "cluster.id" not in found:
        raise LogDamaged(
            f"{path} does not name node.id and cluster.id. If it was lost, write both into it again; "
            "`version=1` stands in its first line."
        )
    return found
