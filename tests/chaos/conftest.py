"""What tests of several faults use."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults_machines import Machines
from fencepost.chaos.faults.fault import Stage
from fencepost.chaos.faults.world import World, library
from support.needs import give_up


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Path:
    """The library that stands between a process and its disk and clock."""
    if not shutil.which("gcc"):
        give_up("needs gcc: there is no `gcc` on the PATH")
    return library(tmp_path_factory.getbasetemp() / "compiled")


@pytest.fixture
def world(tmp_path, compiled) -> Iterator[World]:
    around = tmp_path / "data"
    around.mkdir()
    world = World(tmp_path / "world", around, compiled)
    yield world
    world.close()


@pytest.fixture
def machines(tmp_path, monkeypatch):
    monkeypatch.setattr(Stage, "sleep", lambda *_: None)
    made = Machines(tmp_path)
    yield made
    for world in made.worlds.values():
        world.close()
