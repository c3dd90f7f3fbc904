"""`fencepost serve`: a node from a TOML file, `FENCEPOST_…` variables and flags, in rising order."""

import argparse

from .start import start


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="a TOML file with Kafka's setting names")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting by Kafka's name; may be repeated; beats the file and the environment",
    )


def run(arguments: argparse.Namespace) -> int:
    return start(flags=arguments.set, file=arguments.config)
