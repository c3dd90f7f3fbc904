"""What `dev` and `serve` share: settings are read, and this process becomes the node."""

import os
import sys
from collections.abc import Sequence

from fencepost.cluster.base.errors import ConfigRefused

from ..config import NodeConfig
from ..process import run_node

EXIT_USAGE = 2


def start(*, flags: Sequence[str], file: str | None) -> int:
    """Runs until the node is told to stop. A setting that can't be is exit code 2, before anything is touched."""
    try:
        config = NodeConfig.load(flags=flags, environment=os.environ, file=file)
    except ConfigRefused as refused:
        print(f"fencepost: {refused}", file=sys.stderr)
        return EXIT_USAGE
    return run_node(config)
