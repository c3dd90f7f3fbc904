"""One node as a process: its loop, its signals, its one line `ready …`."""

import asyncio
import gc
import signal
import sys

import uvloop
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.real_env import RealEnv

from .broker import Broker
from .config import NodeConfig

EXIT_OK, EXIT_REFUSED = 0, 1


def run_node(config: NodeConfig) -> int:
    """Run until SIGTERM or SIGINT, then stop cleanly. Returns the exit code."""
    try:
        uvloop.run(_run(config))
    except Trouble as refused:
        print(f"fencepost: {refused}", file=sys.stderr)
        return EXIT_REFUSED
    except OSError as refused:
        print(f"fencepost: {_sentence(refused, config)}", file=sys.stderr)
        return EXIT_REFUSED
    return EXIT_OK


def _sentence(refused: OSError, config: NodeConfig) -> str:
    """What the disk said when the node was started, with the file and what can be done."""
    what = refused.strerror or str(refused)
    if refused.filename is not None:
        what = f"{refused.filename}: {what}"
    return (
        f"{what}. The node keeps everything in {config.log_dir}: it must be a folder, or be made as one, "
        "that this user may write to. Choose another with `fencepost dev --data FOLDER`, or log.dirs."
    )


async def _run(config: NodeConfig) -> None:
    env = RealEnv()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(env, config)
    starting = asyncio.create_task(broker.start(), name="start")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        host, port = starting.result()
        # What is there when the node serves (code, metadata, logs) Python's collector need not look at again. It must not look
        # less often, though: with a threshold of 20,000 instead of 700 a node under load held 400 MB in cycles, not 90.
        gc.collect()
        gc.freeze()
        print(f"ready {host}:{port}", flush=True)
        if broker.admin.address is not None and sys.stderr.isatty():
            print(
                "fencepost: admin door: http://{}:{}".format(*broker.admin.address), file=sys.stderr
            )
        await stopping
    else:
        # It waits for other nodes, or reads its logs: neither keeps it from being stopped.
        starting.cancel()
        await asyncio.wait([starting])
    env.log.info("node_stopping")
    await broker.stop()
