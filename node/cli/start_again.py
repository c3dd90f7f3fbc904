"""`fencepost dev --data DIR --start N`: has the supervisor, which runs elsewhere, start a node again."""

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping

from .dev_folder import SOCKET, DevFolder
from .printable import quoted

EXIT_OK, EXIT_FAILED = 0, 1


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
    if "ready" in answer:
        print(f"ready {answer['ready']}", flush=True)
        return EXIT_OK
    if "waits" in answer:
        say(answer["waits"])
        return EXIT_OK
    say(answer.get("refused", "the cluster ended before the node served"))
    return EXIT_FAILED


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
