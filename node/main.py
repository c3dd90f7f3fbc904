"""`fencepost`: one command for the node and for the people who work with it.

Only the module of the command that was named is imported: a node starts in about a second, and completion
answers at once.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import version

from fencepost.cluster.base.errors import ConfigRefused

from .cli import COMMANDS

EXIT_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point; returns the exit code."""
    if not __debug__:
        print(
            "fencepost refuses to run with assertions off (python -O or PYTHONOPTIMIZE): "
            "they are what keeps a broken invariant from reaching the disk. Run it without.",
            file=sys.stderr,
        )
        return EXIT_USAGE
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="fencepost",
        description="A replicated log that speaks Kafka's wire protocol.",
        epilog="`fencepost COMMAND --help` says more about each. Start with `fencepost dev`.",
    )
    parser.add_argument("--version", action="version", version=f"fencepost {version('fencepost')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    named = next((word for word in words if word in COMMANDS), None)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == named:
            loaded = importlib.import_module(module)
            loaded.configure(command)
            command.set_defaults(run=loaded.run)
    arguments = parser.parse_args(words)
    try:
        code: int = arguments.run(arguments)
    except ConfigRefused as refused:
        print(f"fencepost: {refused}", file=sys.stderr)
        return EXIT_USAGE
    return code


if __name__ == "__main__":
    sys.exit(main())
