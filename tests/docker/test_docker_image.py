"""The image by itself: its size, who it runs as, and how it starts and stops."""

import os
import subprocess
import time
from typing import Any

from confluent_kafka import Producer
from containers import BASE, DATA, LABEL, Lab, Node, remove_what_dead_runs_left, until
from fencepost.chaos.harness.processes import free_port

MEGABYTE = 1_000_000
ADDED_BYTES_MAX = 80 * MEGABYTE


def alone(lab: Lab, volume: str | None = None, **options: Any) -> tuple[Node, int]:
    """A node with nothing but the image's own settings, and the port that it is reached at."""
    port = free_port()
    settings = {
        "FENCEPOST_LISTENERS": f"PLAINTEXT://0.0.0.0:{port}",
        "FENCEPOST_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
    }
    where = volume or lab.volume()
    return lab.node("alone", settings, volume=where, ports={port: port}, **options), port


def produce(port: int, value: str) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
    producer.produce("orders", value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    assert failed == [None]


def test_the_image_adds_less_than_80_mb_to_its_base(engine, image) -> None:
    sizes = [engine.images.get(name).attrs["Size"] for name in (image, BASE)]
    added = sizes[0] - sizes[1]
    print(f"the image adds {added / MEGABYTE:.1f} MB to its base of {sizes[1] / MEGABYTE:.0f} MB")
    assert added < ADDED_BYTES_MAX


def test_the_image_says_who_it_runs_as_and_how_it_is_to_be_treated(engine, image) -> None:
    config = engine.images.get(image).attrs["Config"]
    assert config["User"] == "10001:10001"
    assert config["StopSignal"] == "SIGTERM"
    assert list(config["Volumes"]) == [DATA]
    assert config["Healthcheck"]["Test"] == ["CMD", "fencepost", "health"]
    assert config["Labels"]["org.opencontainers.image.title"] == "Fencepost"


def test_nothing_in_the_image_installs_packages_or_may_be_written_to_by_the_node(lab) -> None:
    writable = (
        "find / -xdev -writable -not -type l -not -path '/proc/*' -not -path '/dev/*' 2>/dev/null"
    )
    container = lab.container(
        "looks", entrypoint=["sh", "-c", f"python -m pip --version; id -u; {writable}; true"]
    )
    container.start()
    container.wait(timeout=60)
    said = container.logs().decode().splitlines()
    assert "No module named pip" in said[0]
    assert said[1] == "10001"
    assert {
        each for each in said[2:] if not each.startswith(("/tmp", "/var/tmp", "/run/lock"))
    } <= {DATA}


def test_a_node_that_is_told_nothing_serves_and_stops_cleanly(lab) -> None:
    volume = lab.volume()
    node, port = alone(lab, volume)
    node.start()
    node.wait_ready()
    produce(port, "first")

    def health() -> str:
        node.container.reload()
        status: str = node.container.attrs["State"]["Health"]["Status"]
        return status

    until("healthy", lambda: health() == "healthy", 60)
    began = time.monotonic()
    assert node.stop() == 0, node.said
    print(f"a clean stop took {time.monotonic() - began:.2f} s")
    again, port = alone(lab, volume)
    again.start()
    again.wait_ready()
    produce(port, "second")
    assert "fencepost-test" not in again.said


def test_a_node_that_is_stopped_before_it_listens_for_signals_ends_at_once(lab) -> None:
    """As process 1 without a handler it would be deaf to SIGTERM, and be killed after the whole time of grace."""
    node, _ = alone(lab)
    node.start()
    began = time.monotonic()
    node.container.stop(timeout=60)
    took = time.monotonic() - began
    assert took < 30, f"it took {took:.1f} s"


def test_an_orphan_in_the_container_is_reaped(lab) -> None:
    node, _ = alone(lab)
    node.start()
    node.wait_ready()
    orphan = "sh -c 'sleep 0.2 & exit' & sleep 0.6; grep -l 'State:.Z' /proc/[0-9]*/status; true"
    _, zombies = node.container.exec_run(["sh", "-c", orphan])
    assert zombies == b""


def test_a_wrong_setting_ends_the_container_with_a_sentence(lab) -> None:
    node = lab.node("wrong", {"FENCEPOST_NUM_PARTITION": "3"})
    node.start()
    assert node.wait_ended() in (2, 64)
    assert "did you mean FENCEPOST_NUM_PARTITIONS?" in node.said


def test_what_a_killed_run_has_left_is_removed_by_the_next(engine, image) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = engine.volumes.create(f"left-by-{gone.pid}", labels={LABEL: str(gone.pid)})
    mine = engine.volumes.create(f"kept-by-{os.getpid()}", labels={LABEL: str(os.getpid())})
    try:
        remove_what_dead_runs_left(engine)
        names = {each.name for each in engine.volumes.list()}
        assert left.name not in names
        assert mine.name in names
    finally:
        mine.remove()
