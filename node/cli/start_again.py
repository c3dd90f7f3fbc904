"""`fencepost dev --data DIR --start N`: has the supervisor, which runs elsewhere, start a node again."""

import contextlib
import json
import os
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from .dev_folder import SOCKET, DevFolder
from .printable import quoted

EXIT_OK, EXIT_FAILED = 0, 1
ANSWER_S: Final = 5.0
STOPPED: Final = "Tt"  # proc(5): by a signal, by a debugger
# ApiVersions of version 0, whole: length, api key 18, version, correlation id, no client id.
ANY_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def ask_for_start(folder: DevFolder, number: int) -> int:
    """The supervisor starts it, this process says what came of it."""
    try:
        answer = _ask(folder, {"start": number})
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        say(
            f"no cluster runs on {folder.path}. Start all of its nodes with "
            f"`fencepost dev --nodes N --data {quoted(str(folder.path))}`."
        )
        return EXIT_FAILED
    except PermissionError as closed:
        say(
            f"{folder.path}: {closed.strerror}. This user may not ask the cluster that runs there, if one does: run it"
            f" as the user who started it{_owner(folder)}, or name another folder with --data."
        )
        return EXIT_FAILED
    except ConnectionError:
        answer = {}
    except OSError as wrong:
        say(f"{folder.path}: {wrong.strerror}. Name the folder of a running cluster with --data.")
        return EXIT_FAILED
    if "note" in answer:
        say(answer["note"])
        if (why := _why_silent(folder, number, answer)) is not None:
            say(why)
            return EXIT_FAILED
    if "ready" in answer:
        print(f"ready {answer['ready']}", flush=True)
        return EXIT_OK
    if "waits" in answer:
        say(answer["waits"])
        return EXIT_OK
    say(answer.get("refused", "the cluster ended before the node served"))
    return EXIT_FAILED


def _why_silent(folder: DevFolder, number: int, answer: Mapping[str, str]) -> str | None:
    """Why a node that runs is of no use, and the next step; None when it answers, or when others are what it waits for."""
    pid = answer.get("pid", "")
    again = f"`fencepost dev --data {quoted(str(folder.path))} --start {number}`"
    if _is_stopped(pid):
        return (
            f"node {number} does not answer: process {pid} is stopped (SIGSTOP). `kill -CONT {pid}` lets it go on; or end"
            f" it with `kill -9 {pid}`, then {again}."
        )
    if "ready" not in answer or _answers(answer["ready"]):
        return None
    return (
        f"node {number} said that it serves, and does not answer at {answer['ready']} within {ANSWER_S:.0f} s. Its log is"
        f" {folder.node(number) / 'log'}; if it stays so, end it with `kill -9 {pid or 'PID'}`, then {again}."
    )


def _is_stopped(pid: str) -> bool:
    try:
        told = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it has just ended, or there is no /proc here
        return False
    return told.rpartition(")")[2].split()[0] in STOPPED


def _answers(place: str) -> bool:
    """Whether the client door does: the kernel takes a connection for a process that hangs, too."""
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_S) as door:
            door.sendall(ANY_VERSIONS)
            return door.recv(1) != b""
    except OSError:
        return False


def _owner(folder: DevFolder) -> str:
    try:
        return f" ({folder.path.owner()})"
    except (OSError, KeyError):  # nobody can tell, or that one has no name here
        return ""


def _ask(folder: DevFolder, question: Mapping[str, int]) -> dict[str, str]:
    with socket.socket(socket.AF_UNIX) as door:
        with inside(folder):
            door.connect(SOCKET)
        with door.makefile("rw") as file:
            file.write(json.dumps(question) + "\n")
            file.flush()
            answer: dict[str, str] = json.loads(file.readline() or "{}")
            return answer


@contextlib.contextmanager
def inside(folder: DevFolder) -> Iterator[None]:
    """A socket's path may have 107 bytes at most, so it is named from within. Where this process was may be gone."""
    before = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.chdir(folder.path)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def say(sentence: str) -> None:
    print(f"fencepost: {sentence}", file=sys.stderr, flush=True)
