"""One node as a process: its loop, its signals, its one line `ready …`, and how it ends.

INVARIANT  whatever keeps the process from being this node is one sentence on standard error and an exit code of
           `cluster/base/exit_codes.py`; told to stop, at any moment, it ends with 0.
PREVENTS   a container that restarts for ever with a traceback that nobody understands.
PROVED BY  tests/node/test_bad_deployment.py::test_a_folder_of_somebody_else_is_a_sentence_that_says_whose
"""

import asyncio
import errno
import gc
import os
import signal
import sys

import uvloop
from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, ConfigRefused, LogDamaged, Trouble
from fencepost.cluster.base.exit_codes import (
    EXIT_FOLDER,
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_USAGE,
    exit_code_of,
)
from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.real_env import RealEnv

from .address_check import AddressCheck
from .broker import Broker
from .config import NodeConfig
from .tracing.open import open_spans


def run_node(config: NodeConfig) -> int:
    """Run until SIGTERM or SIGINT, then stop cleanly. Returns the exit code."""
    log = StreamLog(
        form=config.string("log.format"),
        levels=config.string("log.level"),
        node_id=config.node_id,
    )
    try:
        uvloop.run(_run(config, log))
    except ConfigRefused as refused:
        # By a part of the node that knows more of a setting than its type.
        return _refuse(log, config.with_place(str(refused)), EXIT_USAGE)
    except Trouble as refused:
        otherwise = EXIT_FOLDER if isinstance(refused, LogDamaged) else EXIT_REFUSED
        return _refuse(log, str(refused), exit_code_of(refused, otherwise))
    except OSError as refused:
        return _refuse(log, sentence_of(refused, config.log_dir), EXIT_FOLDER)
    finally:
        log.flush()
    return EXIT_OK


def _refuse(log: StreamLog, sentence: str, exit_code: int) -> int:
    """For machines it is a line like the others; a person reads the sentence alone, as of any command."""
    if log.is_for_people:
        print(f"fencepost: {sentence}", file=sys.stderr)
    else:
        log.error("node_refused", cause=sentence, exit_code=exit_code)
    return exit_code


def sentence_of(refused: OSError, folder: str) -> str:
    """What the disk said when the node was started, with the file, the reason and what can be done."""
    what = refused.strerror or str(refused)
    path = folder if refused.filename is None else str(refused.filename)
    said = f"{path}: {what}."
    if refused.errno == errno.EROFS:
        return (
            f"{said} The disk is mounted read-only, and the node keeps everything in {folder}. Mount it for "
            "writing (a container's volume without `:ro`), or choose another folder with log.dirs."
        )
    if refused.errno in (errno.EACCES, errno.EPERM):
        return (
            f"{said} {_whose(path, folder)} Give it to that user (`chown -R {os.getuid()}:{os.getgid()} "
            f"{folder}`), run the node as its owner, or choose another folder with log.dirs."
        )
    if refused.errno in DISK_FULL_ERRNOS:
        return (
            f"{said} {_room(folder)} Nothing that was acknowledged is lost: free some space beside the node's "
            f"own files in {folder}, or enlarge the disk, and start it again."
        )
    return (
        f"{said} The node keeps everything in {folder}: it must be a folder, or be made as one, "
        "that this user may write to. Choose another with `fencepost dev --data FOLDER`, or log.dirs."
    )


def _whose(path: str, folder: str) -> str:
    """The nearest that there is tells who may write."""
    place = path
    while place and not os.path.exists(place):
        place = os.path.dirname(place)
    place = place or folder
    try:
        owner = os.stat(place)
    except OSError:
        return f"This process runs as user {os.getuid()}."
    mode = f"{owner.st_mode & 0o777:o}"
    return (
        f"{place} belongs to user {owner.st_uid} (group {owner.st_gid}, mode {mode}), and this process "
        f"runs as user {os.getuid()}."
    )


def _room(folder: str) -> str:
    try:
        found = os.statvfs(folder)
    except OSError:
        return ""
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return f"{free} of {size} bytes are free."


async def _run(config: NodeConfig, log: StreamLog) -> None:
    env = RealEnv(log=log)
    stop = asyncio.Event()
    told: list[str] = []
    loop = asyncio.get_running_loop()

    def on_signal(name: str) -> None:
        told.append(name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)
    log.info("node_starts", version=_version(), folder=config.log_dir)
    spans = open_spans(env, config)
    broker = Broker(env, config, spans)
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
        if broker.admin.address is not None and log.is_for_people:
            print(
                "fencepost: admin door: http://{}:{}".format(*broker.admin.address), file=sys.stderr
            )
        env.tasks.spawn(AddressCheck(env, broker).run(), name="advertised addresses")
        await stopping
    else:
        # It waits for other nodes, or reads its logs: neither keeps it from being stopped.
        starting.cancel()
        await asyncio.wait([starting])
    await _stop(env, broker, " and ".join(told))
    if spans is not None:
        await spans.close()


async def _stop(env: RealEnv, broker: Broker, cause: str) -> None:
    began, was_ready = env.clock.steady(), broker.is_ready
    if not was_ready:
        env.log.info("node_stopped_early", cause=cause)
    else:
        env.log.info("node_stopping", cause=cause)
    await broker.stop()
    if was_ready:
        env.log.info("node_stopped", seconds=round(env.clock.steady() - began, 3))


def _version() -> str:
    from importlib.metadata import version

    return version("fencepost")
