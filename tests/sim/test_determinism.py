"""The same seed is the same run, byte for byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fencepost.chaos.sim.world import World

SCENARIO = Path(__file__).with_name("ticking_cluster.py")


def run(seed: str, hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, str(SCENARIO), seed],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    ).stdout


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace_under_any_hash_seed() -> None:
    first = run("7", "0")
    assert run("7", "1") == run("7", "4242") == first
    assert run("8", "0") != first
    for kind in ("world.crash", "world.start", "net.cut", "disk.sync", "log.warn"):
        assert f"'{kind}'" in first, "the scenario no longer goes through this"


def test_one_more_draw_on_one_disk_leaves_the_network_as_it_was() -> None:
    def latencies(draws: int) -> list[float]:
        with World(3) as world:
            world.node("a")
            for _ in range(draws):
                world.disk("a").rng.random()
            return [world.net.delay("a", "b", 0) for _ in range(100)]

    assert latencies(0) == latencies(5)
