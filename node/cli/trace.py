"""`fencepost trace`: one request through the logs of several nodes, in order of time.

It reads JSON lines, as nodes write them (`log.format=json`), and what container engines and Kubernetes put in front of
them. Lines that are none are passed over.
"""

import argparse
import contextlib
import heapq
import io
import json
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS
from fencepost.cluster.base.log import text_of

from .full_output import written_whole
from .printable import json_text

EXIT_OK, EXIT_NOT_FOUND, EXIT_USAGE = 0, 1, 2
Line = dict[str, Any]
_STDIN: Final = "-"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "request_id", help="NODE-CONNECTION-CORRELATION, as `request_id` of a line has it"
    )
    parser.add_argument(
        "files", nargs="*", default=[_STDIN], metavar="FILE", help="logs of nodes; - or none: stdin"
    )
    parser.add_argument("--json", action="store_true", help="print the lines as they are")


def run(arguments: argparse.Namespace) -> int:
    """1 when no line has that id."""
    return written_whole(lambda: _followed(arguments), no_room=EXIT_USAGE)


def _followed(arguments: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        # `| head` ends it; whoever called goes on as before.
        stack.callback(signal.signal, signal.SIGPIPE, signal.signal(signal.SIGPIPE, signal.SIG_DFL))
        try:
            sources = [_opened(stack, name) for name in arguments.files]
        except OSError as missing:
            print(f"fencepost: {missing.filename}: {missing.strerror}", file=sys.stderr)
            return EXIT_USAGE
        found = [_of_request(source, arguments) for source in sources]
        # Each file is in order of time already, but for a clock that was set.
        number = 0
        try:
            for _, shown in heapq.merge(*found, key=lambda each: each[0]):
                number += 1
                print(shown)
        except OSError as broken:
            if broken.errno in DISK_FULL_ERRNOS:
                raise
            print(f"fencepost: this is not all: {broken}", file=sys.stderr)
            return EXIT_USAGE
    if not number:
        print(
            f"fencepost: no line has the request id {arguments.request_id}. Only what is slow, fails or is asked for "
            "by `request.log` is logged: `fencepost config set --broker ID request.log=client=CLIENT_ID`.",
            file=sys.stderr,
        )
    return EXIT_OK if number else EXIT_NOT_FOUND


def _opened(stack: contextlib.ExitStack, name: str) -> IO[str]:
    if name == _STDIN:
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="replace")
        return sys.stdin
    return stack.enter_context(open(name, encoding="utf-8", errors="replace"))


def _of_request(source: Iterable[str], arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The time, and what is printed."""
    for text in source:
        if arguments.request_id not in text:
            continue
        with contextlib.suppress(RecursionError):  # as in `_read`
            line = _read(text)
            if line and arguments.request_id in str(line.get("request_id", "")).split(","):
                yield str(line.get("time", "")), _shown(line, as_json=arguments.json)


def _read(text: str) -> Line | None:
    """From its first brace on: `docker compose logs` puts a name in front. No node's line is nested a thousand deep."""
    try:
        line = json.loads(text[text.index("{") :])
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _shown(line: Line, *, as_json: bool) -> str:
    """What can't be written, such as half of a pair that stands for one character, is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    known = {**line, "level": str(line.get("level", ""))}
    text = json_text(line) if as_json else text_of(known)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        if as_json:
            return json.dumps(line)
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text
