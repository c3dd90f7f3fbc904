"""Kafka's own command-line tools, run as programs."""

import subprocess

from support.kafka_peer import NotFetched, java
from support.needs import give_up

TOOL_TIMEOUT_S = 90  # on a busy machine a JVM takes half a minute


def run_tool(name: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
    """What the tool prints; it must end with `code`."""
    try:
        command = java(name, *arguments)
    except NotFetched as error:
        give_up(str(error))
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode == code, f"{name} ended with {done.returncode}:\n{printed}"
    return printed
