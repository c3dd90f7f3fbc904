"""A node's folder: held by one process, and belonging to one node of one cluster.

INVARIANT  a folder is opened by one process at a time, and only by the node that wrote it; it has an id of its own,
           and no other folder has that.
PREVENTS   two processes appending to the same segments; a disk mounted at the wrong node.
PROVED BY  tests/node/test_node_folder.py::test_a_folder_of_another_node_is_refused
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from fencepost.cluster.base.durable_folder import make_durable_folder
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.exit_codes import EXIT_IDENTITY, EXIT_LATER, CannotRun
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Disk
from fencepost.cluster.metadata.image import NO_DISK

META: Final = "meta.properties"  # Kafka's name and form
LOCK: Final = ".lock"
DISK_ID: Final = "directory.id"  # Kafka's name
VERSION: Final = "1"


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
        self._new_id = new_id
        self._release: Callable[[], None] = _nothing_held

    @property
    def metadata_path(self) -> str:
        return f"{self.path}/metadata"

    def open(self) -> None:
        """Lock the folder and read whose it is; an empty one belongs to nobody yet."""
        make_durable_folder(self.disk, self.path)
        try:
            self._release = self.disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError:
            raise CannotRun(
                f"{self.path} is in use by another fencepost process. Stop that one, or give this one "
                "another folder (`fencepost dev --data FOLDER`, or log.dirs).",
                EXIT_LATER,
            ) from None
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
        if self.disk_id == NO_DISK:
            self.disk_id = self._new_id()
        text = f"version={VERSION}\ncluster.id={cluster_id}\nnode.id={self.node_id}\n{DISK_ID}={self.disk_id}\n"
        self.disk.replace(f"{self.path}/{META}", text.encode())
        self.cluster_id = cluster_id

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
