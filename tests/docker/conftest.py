"""The engine that DOCKER_HOST names, and the image, built once a session."""

import contextlib
import io
from collections.abc import Iterator

import docker
import pytest
from containers import ROOT, Cluster, Lab, remove_what_dead_runs_left
from fencepost.chaos.faults.container_image import pip_settings
from support.needs import give_up, missing

TAG = "fencepost-test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "docker":
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def engine() -> Iterator[object]:
    reason = missing("docker")
    if reason is not None:
        give_up(reason)
    client = docker.from_env(timeout=300)
    remove_what_dead_runs_left(client)
    yield client
    client.close()


@pytest.fixture(scope="session")
def image(engine) -> Iterator[str]:
    """What the Dockerfile makes of this checkout."""
    tag = f"{TAG}:now"
    engine.images.build(
        path=str(ROOT),
        dockerfile="deploy/docker/Dockerfile",
        tag=tag,
        network_mode="host",
        buildargs=pip_settings() | {"VERSION": "now"},
        rm=True,
        forcerm=True,
    )
    yield tag
    engine.images.remove(tag, noprune=True)
    forget_old_builds(engine)


@pytest.fixture(scope="session")
def next_image(engine, image) -> Iterator[str]:
    """Another image with the same program in it: the next version."""
    tag = f"{TAG}:next"
    label = "org.opencontainers.image.version=next"
    file = io.BytesIO(f"FROM {image}\nLABEL {label}\n".encode())
    engine.images.build(fileobj=file, tag=tag, rm=True, forcerm=True)
    yield tag
    engine.images.remove(tag)


def forget_old_builds(engine) -> None:
    """The last one's layers stay: the next build is a matter of seconds."""
    for label in ("fencepost.stage=build", "org.opencontainers.image.title=Fencepost"):
        unnamed = engine.images.list(filters={"dangling": True, "label": label})
        unnamed.sort(key=lambda image: str(image.attrs["Created"]))
        for image in unnamed[:-1]:
            with contextlib.suppress(docker.errors.APIError):  # another run works with it
                engine.images.remove(image.id)


@pytest.fixture
def lab(engine, image) -> Iterator[Lab]:
    with Lab(engine, image) as lab:
        yield lab


@pytest.fixture(scope="module")
def cluster(engine, image) -> Iterator[Cluster]:
    with Lab(engine, image) as lab:
        yield Cluster(lab)
