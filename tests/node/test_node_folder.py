"""Whose folder it is."""

import pathlib
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from fencepost.cluster.base.errors import LogDamaged, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.real_disk import RealDisk
from fencepost.node.node_folder import NodeFolder


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    disk = RealDisk()
    yield disk
    disk.close()


def owned(disk: RealDisk, path: pathlib.Path, node: int, cluster: str) -> None:
    folder = NodeFolder(disk, str(path), BrokerId(node), uuid4)
    folder.open()
    folder.join(cluster)
    folder.close()


def test_a_folder_of_another_node_is_refused(disk: RealDisk, tmp_path: pathlib.Path) -> None:
    owned(disk, tmp_path, 1, "c1")
    with pytest.raises(Trouble, match="belongs to node 1, and this is node 2"):
        NodeFolder(disk, str(tmp_path), BrokerId(2), uuid4).open()
    owned(disk, tmp_path, 1, "c1")


def test_a_folder_of_another_cluster_is_refused(disk: RealDisk, tmp_path: pathlib.Path) -> None:
    owned(disk, tmp_path, 1, "c1")
    folder = NodeFolder(disk, str(tmp_path), BrokerId(1), uuid4)
    folder.open()
    with pytest.raises(Trouble, match="put together from two clusters"):
        folder.join("c2")
    folder.close()


def test_a_folder_is_held_by_one_process_at_a_time(disk: RealDisk, tmp_path: pathlib.Path) -> None:
    first = NodeFolder(disk, str(tmp_path), BrokerId(1), uuid4)
    first.open()
    with pytest.raises(Trouble, match="in use by another fencepost process"):
        NodeFolder(disk, str(tmp_path), BrokerId(1), uuid4).open()
    first.close()
    NodeFolder(disk, str(tmp_path), BrokerId(1), uuid4).open()


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"version=1\nnode.id=1\n", b"junk"])
def test_a_damaged_identity_is_named(disk: RealDisk, tmp_path: pathlib.Path, text: bytes) -> None:
    (tmp_path / "meta.properties").write_bytes(text)
    with pytest.raises(LogDamaged, match=r"meta\.properties"):
        NodeFolder(disk, str(tmp_path), BrokerId(1), uuid4).open()


def test_a_folder_keeps_its_id(disk: RealDisk, tmp_path: pathlib.Path) -> None:
    ids = []
    for _ in range(2):
        folder = NodeFolder(disk, str(tmp_path / "one"), BrokerId(1), uuid4)
        folder.open()
        folder.join("c1")
        folder.close()
        ids.append(folder.disk_id)
    other = NodeFolder(disk, str(tmp_path / "other"), BrokerId(1), uuid4)
    other.open()
    other.join("c1")
    assert ids[0] == ids[1] != other.disk_id


def test_a_folder_of_an_older_build_is_given_an_id(disk: RealDisk, tmp_path: pathlib.Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c1\nnode.id=1\n")
    folder = NodeFolder(disk, str(tmp_path), BrokerId(1), lambda: UUID(int=7))
    folder.open()
    folder.join("c1")
    assert f"directory.id={UUID(int=7)}" in (tmp_path / "meta.properties").read_text()


def test_a_damaged_id_is_named(disk: RealDisk, tmp_path: pathlib.Path) -> None:
    text = "version=1\ncluster.id=c1\nnode.id=1\ndirectory.id=x\n"
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(LogDamaged, match=r"directory\.id=x, which is no id"):
        NodeFolder(disk, str(tmp_path), BrokerId(1), uuid4).open()
