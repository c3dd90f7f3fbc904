"""What `fencepost dev --nodes N` keeps in its folder, and the sentence for each folder that it can't go on with."""

import fcntl
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.cluster.base.exit_codes import EXIT_LATER
from fencepost.node.cli import children, dev, dev_folder
from fencepost.node.cli.children import ADMIN_PORTS_APART, free_port, held, is_free
from fencepost.node.cli.dev_folder import (
    DevFolder,
    Refused,
    Taken,
    admin_port,
    node_flags,
    node_settings,
)
from fencepost.node.config import NodeConfig
from fencepost.node.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DevFolder]:
    with DevFolder(str(tmp_path / "data")) as opened:
        yield opened


def test_the_same_command_finds_the_ports_and_the_secret_of_the_last(folder: DevFolder) -> None:
    first = folder.layout(3, 0)
    assert len({*first.client_ports, *first.peer_ports}) == 6
    assert folder.layout(3, 0) == first
    assert folder.secret() == folder.secret() != ""


def test_an_admin_port_that_was_another_one_stays_that(folder: DevFolder) -> None:
    """The usual one was taken when the cluster was made, and is free again: people know the other by now."""
    port = free_port()
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", port + ADMIN_PORTS_APART))
        first = folder.layout(1, port)
    assert first.admin_ports[0] != port + ADMIN_PORTS_APART
    assert folder.layout(1, port) == first


def test_a_client_port_named_is_followed_by_the_others_and_may_change(folder: DevFolder) -> None:
    port = free_port()
    first = folder.layout(2, port)
    assert first.client_ports == (port, port + 1)
    other = free_port({port - 1, port, port + 1, *first.peer_ports})
    moved = folder.layout(2, other)
    assert (moved.client_ports, moved.peer_ports) == ((other, other + 1), first.peer_ports)


def test_a_peer_port_that_somebody_took_meanwhile_is_left_to_them(folder: DevFolder) -> None:
    first = folder.layout(3, 0)
    with socket.create_server(("127.0.0.1", first.peer_ports[1])):
        second = folder.layout(3, 0)
    assert second.peer_ports[1] != first.peer_ports[1]
    assert (second.peer_ports[0], second.peer_ports[2]) == (
        first.peer_ports[0],
        first.peer_ports[2],
    )


def test_a_client_port_that_somebody_has_is_named(folder: DevFolder) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as door:
        port = door.getsockname()[1]
        with pytest.raises(Taken, match=rf"127\.0\.0\.1:{port} already(.|\n)*--port PORT"):
            folder.layout(3, port - 1)


def test_a_start_that_failed_leaves_a_folder_that_a_node_can_begin_with(
    tmp_path: Path, capsys
) -> None:
    """It left its lock there: no node's folder, and not empty. The code is the node's own, which has a port of its own taken."""
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", free_port())) as door:
        port = str(door.getsockname()[1])
        assert main(["dev", "--nodes", "3", "--port", port, "--data", str(data)]) == EXIT_LATER
    assert f"something listens on 127.0.0.1:{port} already" in capsys.readouterr().err
    assert list(data.iterdir()) == []


def test_a_lock_that_was_taken_away_meanwhile_is_not_held(folder: DevFolder, monkeypatch) -> None:
    """Between another one's open and its flock: both would hold the folder."""
    real = fcntl.flock
    ended = [folder.__exit__, lambda: None]

    def flock(lock: int, how: int) -> None:
        ended.pop(0)()
        real(lock, how)

    monkeypatch.setattr(dev_folder.fcntl, "flock", flock)
    with DevFolder(str(folder.path)):
        assert ended == []
        monkeypatch.undo()
        with pytest.raises(Taken):
            DevFolder(str(folder.path)).__enter__()


def test_a_folder_with_another_number_of_nodes_is_refused(folder: DevFolder) -> None:
    folder.layout(3, 0)
    with pytest.raises(Refused, match=r"--nodes 3, and this would be 5(.|\n)*who votes"):
        folder.layout(5, 0)


def test_a_damaged_memory_is_named_with_what_to_do(folder: DevFolder) -> None:
    (folder.path / "cluster.json").write_text('{"version": 1')
    with pytest.raises(Refused, match=r"cluster\.json can't be read(.|\n)*remove it"):
        folder.layout(3, 0)


def test_the_secret_is_for_this_user_alone(folder: DevFolder) -> None:
    folder.secret()
    assert stat.S_IMODE((folder.path / "peer.secret").stat().st_mode) == 0o600


def test_a_second_supervisor_is_told_who_holds_the_folder(folder: DevFolder) -> None:
    with pytest.raises(Taken, match=r"supervisor is process \d+"):
        DevFolder(str(folder.path)).__enter__()


@pytest.mark.slow
def test_a_single_node_and_a_cluster_do_not_share_a_folder(tmp_path: Path, capsys) -> None:
    single, several = tmp_path / "single", tmp_path / "several"
    single.mkdir()
    (single / "meta.properties").touch()
    assert main(["dev", "--nodes", "3", "--data", str(single)]) == 1
    assert "started without --nodes" in capsys.readouterr().err
    with DevFolder(str(several)) as folder:
        folder.layout(3, 0)
    assert main(["dev", "--data", str(several)]) == 1
    assert "holds a cluster. Go on with it by `fencepost dev --nodes N" in capsys.readouterr().err


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").touch()
    assert main(["dev", "--nodes", "3", "--data", str(tmp_path / "file" / "data")]) == 1
    assert "must be a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "variable", "part"),
    [
        (
            ("--port", "65535"),
            None,
            "--port 65535: node 3 would be at port 65537. Say 65533 or less",
        ),
        (("--set", "node.id=4"), None, "--set node.id can't hold for several nodes"),
        ((), "FENCEPOST_LISTENERS", "FENCEPOST_LISTENERS=x can't hold for several nodes"),
        ((), "FENCEPOST_LOG_DIRS", "Unset it"),
    ],
)
def test_what_only_one_node_can_be_told_is_refused_for_several(
    tmp_path: Path, capsys, monkeypatch, words, variable, part
) -> None:
    if variable:
        monkeypatch.setenv(variable, "x")
    assert main(["dev", "--nodes", "3", "--data", str(tmp_path / "data"), *words]) == 2
    assert part in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_start_of_nothing_is_said(tmp_path: Path, capsys) -> None:
    assert main(["dev", "--data", str(tmp_path), "--start", "2"]) == 1
    said = capsys.readouterr()
    assert "no cluster runs on" in said.err and "--nodes N" in said.err and said.out == ""
    assert main(["dev", "--data", str(tmp_path), "--start", "2", "--set", "flush.policy=os"]) == 2
    assert "fencepost config set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("nodes", "voters", "copies", "in_sync"),
    [(1, 1, 1, 1), (2, 1, 2, 1), (4, 3, 3, 2), (7, 5, 3, 2)],
)
def test_as_many_vote_and_hold_copies_as_there_are_nodes_for(
    folder: DevFolder, nodes: int, voters: int, copies: int, in_sync: int
) -> None:
    layout = folder.layout(nodes, 0)
    assert layout.voters == voters
    settings = node_settings(layout)
    assert settings["default.replication.factor"] == settings["offsets.topic.replication.factor"]
    assert settings["default.replication.factor"] == str(copies)
    assert settings["min.insync.replicas"] == str(in_sync)
    flags = node_flags(layout, folder, nodes)
    assert f"node.id={nodes}" in flags
    quorum = [flag for flag in flags if flag.startswith("controller.quorum.voters=")]
    assert [flag.count("@") for flag in quorum] == ([voters] if nodes > 1 else [])


def test_a_free_port_is_none_that_the_kernel_gives_to_connections() -> None:
    """A node's port that a client's connection was given meanwhile is a node that can't come back, or one whose admin door
    is not where it is looked for."""
    if not children.PORT_RANGE.exists():
        pytest.skip("only Linux says what its kernel hands out")
    first = int(children.PORT_RANGE.read_text().split()[0])
    ports = [free_port() for _ in range(200)]
    doors = [door for port in ports for door in (port, port + ADMIN_PORTS_APART)]
    assert all(door < first and is_free(door) for door in doors)


def test_what_each_node_is_told_is_a_setting_that_there_is(folder: DevFolder) -> None:
    layout = folder.layout(3, 0)
    given = node_settings(layout) | dict(
        flag.split("=", 1) for flag in node_flags(layout, folder, 2)
    )
    assert NodeConfig(given).node_id == 2


def test_a_port_whose_node_is_down_is_given_to_no_other_cluster() -> None:
    """Else the clients of the first, which know a node by its port, write to the second."""
    port = free_port()
    with held([port]):
        assert not is_free(port)
        with held([port]):  # whoever can't hold it as well goes on without
            pass
        assert not is_free(port)
    assert is_free(port)


def test_an_admin_door_elsewhere_than_people_look_is_told(capsys) -> None:
    port = free_port()
    usual = port + ADMIN_PORTS_APART
    dev._say_unusual({port: usual})
    assert capsys.readouterr().err == ""
    with socket.create_server(("127.0.0.1", usual)):
        dev._say_unusual({port: admin_port(port)})
        assert f"port {usual} is taken, so the admin door of the node at {port} is at" in (
            capsys.readouterr().err
        )
    dev._say_unusual({port: port + 1})
    assert f"port {usual} was taken when" in capsys.readouterr().err
