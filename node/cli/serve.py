"""`fencepost serve`: a node from a TOML file, `FENCEPOST_…` variables and flags, in rising order."""

import argparse
import os

from ..config import NodeConfig
from ..process import run_node


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
    config = NodeConfig.load(flags=arguments.set, environment=os.environ, file=arguments.config)
    return run_node(config)
