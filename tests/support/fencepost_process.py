"""A real `fencepost dev` for a test: started on a free port, ended with the block, its log in the failure."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fencepost.chaos.harness.processes import Node

LOG_TAIL = 3_000


@contextmanager
def fencepost(
    data: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> Iterator[Node]:
    """A running node. With `data` it goes on with what is there and leaves it; without, it starts empty.

    A node that dies by itself inside the block fails the test, whatever the clients made of that.
    """
    folder = None if data else Path(tempfile.mkdtemp(prefix="fencepost-"))
    node = Node(data or folder / "data", environment=environment)
    try:
        node.start()
        yield node
        assert node.process.alive, f"the node died:\n{node.process.said()[-LOG_TAIL:]}"
        exit_code = node.stop()
        assert exit_code == 0, f"exit code {exit_code}:\n{node.process.said()[-LOG_TAIL:]}"
    finally:
        node.kill()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
