"""The Dockerfile: what it puts into the image, without an engine that builds it."""

import re
import subprocess
import sys
import tomllib

import pytest
from containers import ROOT

DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()


def required(extras: str) -> list[str]:
    """What its own line writes into requirements.txt."""
    (line,) = re.findall(r"^RUN python3 (-c \".*\") >requirements\.txt", DOCKERFILE, re.MULTILINE)
    script = f"{sys.executable} {line}"
    asked = subprocess.run(
        ["sh", "-c", script], cwd=ROOT, env={"EXTRAS": extras}, capture_output=True, check=True
    )
    return asked.stdout.decode().splitlines()


@pytest.mark.parametrize("extras", ["clients", "clients,otel"])
def test_the_image_has_the_packages_of_the_extras_that_are_asked_for(extras: str) -> None:
    """Spans are an extra: a node that is told to send them, and has none, does not start."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    wanted = [package for extra in extras.split(",") for package in optional[extra]]
    assert required(extras) == [*project["dependencies"], *wanted]


def test_an_extra_that_is_not_there_ends_the_build() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        required("clients,spans")


def test_who_asks_for_nothing_gets_the_commands() -> None:
    """That is what people type into a container at night."""
    assert re.findall(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE) == ["clients"]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^\t  name,EXTRAS ", makefile, re.MULTILINE)
