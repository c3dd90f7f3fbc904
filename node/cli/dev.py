"""`fencepost dev`: a node with nothing to configure.

The process that is started is the node. The same command on the same folder goes on with what is there.
"""

import argparse
import os

from .start import start

PORT_MAX = 65_535


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=_port,
        default=9092,
        help="the client door's port on 127.0.0.1 (9092); 0 takes any",
    )
    parser.add_argument("--data", default="data", help="the folder that keeps everything (./data)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting by Kafka's name, such as flush.policy=os; may be repeated",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: say 0 to {PORT_MAX}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    return start(
        flags=[
            f"listeners=PLAINTEXT://127.0.0.1:{arguments.port}",
            f"log.dirs={os.path.abspath(arguments.data)}",
            *arguments.set,
        ],
        file=None,
    )
