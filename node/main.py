"""`fencepost`: one command for the node and for the people who work with it.

Only the module of the command that was named is imported: a node starts in about a second, and help and
completion answer at once.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from .cli import COMMANDS

EXIT_USAGE, EXIT_INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point; returns the exit code."""
    if not __debug__:
        print(
            "fencepost refuses to run with assertions off (python -O or PYTHONOPTIMIZE): "
            "they are what keeps a broken invariant from reaching the disk. Run it without.",
            file=sys.stderr,
        )
        return EXIT_USAGE
    _do_without_hypothesis()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # while a command is still being imported
        return EXIT_INTERRUPTED


def _run(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fencepost",
        description="A replicated log that speaks Kafka's wire protocol.",
        epilog="`fencepost COMMAND --help` says more about each. Start with `fencepost dev`.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    # Options of the top level take no values, so the first word that is none names the command.
    named = next((word for word in words if not word.startswith("-")), None)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == named:
            loaded = importlib.import_module(module)
            loaded.configure(command)
            command.set_defaults(run=loaded.run)
    arguments, unknown = parser.parse_known_args(words)
    if unknown:  # argparse's own would show how to use `fencepost`, not what was named
        _named(parser, words).error(f"unrecognized arguments: {' '.join(unknown)}")
    code: int = arguments.run(arguments)
    return code


def _named(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the innermost command that these words name."""
    for word in words:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
                break
    return parser


def _do_without_hypothesis() -> None:
    """Kio registers strategies with Hypothesis when it can import it: 0.1 s and 10 MB of a node's start.

    Only developers have it installed. A test that has imported it already keeps it.
    """
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]


class _Version(argparse.Action):
    """argparse's own wants the text at once; reading it from the metadata takes 40 ms of every command."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib.metadata import version

        print(f"fencepost {version('fencepost')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
