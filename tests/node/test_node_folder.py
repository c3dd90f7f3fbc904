"""Whose folder it is."""

import contextlib
import itertools
import pathlib
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from fencepost.chaos.sim.loop import NodeDown
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged, Trouble
from fencepost.cluster.base.exit_codes import EXIT_IDENTITY, CannotRun
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.real_disk import RealDisk
from fencepost.cluster.wire.peer_lives import TOLD_MAX, UNKNOWN, Life
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


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["passwd", "hosts"], "not empty: there is hosts, passwd"),
        (["orders-0"], "not empty: there is orders-0"),
        (["cluster.json", "node-1"], "made: each node has one of its own"),
    ],
)
def test_a_folder_of_somebody_else_is_not_begun_with(
    disk: RealDisk, tmp_path: pathlib.Path, names: list[str], said: str
) -> None:
    """`log.dirs=/etc` wrote eight files there; in the folder of a cluster it began another one, and neither could be started."""
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(CannotRun, match=said) as refused:
        NodeFolder(disk, str(tmp_path), BrokerId(1), uuid4).open()
    assert refused.value.exit_code == EXIT_IDENTITY
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(names)


@pytest.mark.parametrize(
    "names",
    [[], [".lock"], ["lost+found", ".snapshot"], ["log", "pid"], ["metadata", "orders-0", "notes"]],
)
def test_an_empty_folder_and_one_of_a_start_that_came_no_further_are_begun_with(
    disk: RealDisk, tmp_path: pathlib.Path, names: list[str]
) -> None:
    for name in names:
        (tmp_path / name).touch()
    owned(disk, tmp_path, 1, "c1")


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


def begun(disk: RealDisk, path: pathlib.Path) -> Life:
    folder = NodeFolder(disk, str(path), BrokerId(1), uuid4)
    folder.open()
    folder.join("c1")
    folder.close()
    return folder.told_life


def test_each_start_is_a_life_whose_past_has_all_before_it(
    disk: RealDisk, tmp_path: pathlib.Path
) -> None:
    lives = [begun(disk, tmp_path) for _ in range(TOLD_MAX + 3)]
    assert [each.number for each in lives] == [*range(1, TOLD_MAX + 4)]
    for place, life in enumerate(lives):
        assert life.is_known and len(life.names) <= TOLD_MAX
        assert all(life.has_been(each.number, each.name) for each in lives[: place + 1])
        assert not any(life.has_been(each.number, each.name) for each in lives[place + 1 :])


def test_a_folder_that_is_put_back_never_catches_up(disk: RealDisk, tmp_path: pathlib.Path) -> None:
    begun(disk, tmp_path)
    copy = (tmp_path / "meta.properties").read_bytes()
    seen = begun(disk, tmp_path)
    (tmp_path / "meta.properties").write_bytes(copy)
    again = [begun(disk, tmp_path) for _ in range(5)]
    assert again[-1].number > seen.number
    assert not any(each.has_been(seen.number, seen.name) for each in again)


def test_a_folder_of_an_older_build_begins_its_first_life(
    disk: RealDisk, tmp_path: pathlib.Path
) -> None:
    kept = f"version=1\ncluster.id=c1\nnode.id=1\ndirectory.id={UUID(int=7)}\nby.hand=x\n"
    (tmp_path / "meta.properties").write_text(kept)
    life = begun(disk, tmp_path)
    assert (life.disk, life.number) == (UUID(int=7).bytes, 1)
    assert (tmp_path / "meta.properties").read_text().startswith(kept)


def test_an_empty_folder_tells_no_life_before_it_belongs_to_a_cluster(
    disk: RealDisk, tmp_path: pathlib.Path
) -> None:
    folder = NodeFolder(disk, str(tmp_path), BrokerId(1), uuid4)
    folder.open()
    assert folder.told_life == UNKNOWN
    folder.join("c1")
    assert folder.told_life.number == 1


@pytest.mark.parametrize("line", ["life=x", "life=-1", "life=1\nlife.names=g", f"life={1 << 62}"])
def test_a_damaged_life_is_named(disk: RealDisk, tmp_path: pathlib.Path, line: str) -> None:
    (tmp_path / "meta.properties").write_text(f"version=1\ncluster.id=c1\nnode.id=1\n{line}\n")
    with pytest.raises(LogDamaged, match="they say how often this folder was begun with"):
        NodeFolder(disk, str(tmp_path), BrokerId(1), uuid4).open()


class Told:
    """Starts of a node with its folder, until the power goes, and which lives others have heard of."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lives: list[Life] = []
        self.struck = False

    def start(self) -> None:
        folder = NodeFolder(self.world.restart("n").disk, "/data", BrokerId(1), uuid4)
        folder.open()
        self._tell(folder)
        folder.join("c1")
        self._tell(folder)
        life = folder.next_life()
        folder.write_life(life)
        folder.begin_life(life)
        self._tell(folder)

    def _tell(self, folder: NodeFolder) -> None:
        if folder.told_life.is_known:
            self.lives.append(folder.told_life)

    async def starts(self, strike: int, *, torn: bool) -> None:
        def power_goes(count: int) -> None:
            if count == strike:
                self.struck = True
                self.world.crash("n", torn=torn)

        self.world.restart("n")
        self.world.kill("n")
        self.world.disk("n").on_operation = power_goes
        for _ in range(3):
            with contextlib.suppress(NodeDown):
                self.start()
                self.world.kill("n")


@pytest.mark.parametrize("torn", [False, True])
def test_no_two_starts_tell_the_same_life_whenever_the_power_goes(torn: bool) -> None:
    """Whatever the disk has then, the next start can begin, and has in its past all that was told."""
    for strike in itertools.count(1):
        with World(strike) as world:
            told = Told(world)
            world.run(told.starts(strike, torn=torn))
            if not told.struck:
                assert strike > 30
                break
            told.start()
            last = told.lives[-1]
            assert all(last.has_been(each.number, each.name) for each in told.lives)
