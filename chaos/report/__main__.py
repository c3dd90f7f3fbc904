"""`python -m fencepost.chaos.report`: the commands of this folder by themselves."""

import argparse
import sys
from collections.abc import Sequence

from .commands import add_commands


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fencepost chaos", description="What chaos has found.")
    add_commands(parser.add_subparsers(metavar="ACTION", required=True))
    chosen = parser.parse_args(arguments)
    code: int = chosen.act(chosen)
    return code


if __name__ == "__main__":
    sys.exit(main())
