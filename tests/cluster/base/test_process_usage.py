"""What Linux says of this process."""

import os
import pathlib
import time

import pytest
from fencepost.cluster.base.process_usage import process_usage

pytestmark = pytest.mark.skipif(
    not pathlib.Path("/proc/self/stat").exists(), reason="there is no /proc on this system"
)


def test_it_is_this_process_and_now() -> None:
    usage = process_usage()
    assert usage is not None
    assert usage.cpu_s == pytest.approx(sum(os.times()[:2]), abs=0.2)
    assert 1 << 20 < usage.resident_bytes < usage.virtual_bytes
    assert usage.threads >= 1 and usage.max_fds > 0
    assert time.time() - 86_400 * 30 < usage.started_s < time.time()


def test_a_file_that_is_opened_is_one_descriptor_more(tmp_path: pathlib.Path) -> None:
    before = process_usage()
    with (tmp_path / "f").open("w"):
        during = process_usage()
    assert before is not None and during is not None
    assert during.open_fds == before.open_fds + 1


def test_it_began_once() -> None:
    """Another number at each look would be a restart to who watches `changes(process_start_time_seconds)`."""
    first, second = process_usage(), process_usage()
    assert first is not None and second is not None
    assert first.started_s == second.started_s
