"""`fencepost dev`: a node with nothing to configure.

The process that is started is the node. The same command on the same folder goes on with what is there.
"""

import argparse
import os

from ..config import NodeConfig
from ..process import run_node


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=int,
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


def run(arguments: argparse.Namespace) -> int:
    data = os.path.abspath(arguments.data)
    config = NodeConfig.load(
        flags=[
            f"listeners=PLAINTEXT://127.0.0.1:{arguments.port}",
            f"log.dirs={data}",
            *arguments.set,
        ],
        environment=os.environ,
        file=None,
    )
    return run_node(config)
