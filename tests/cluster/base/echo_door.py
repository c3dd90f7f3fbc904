"""Who answers each frame with itself, a log that remembers, and how long a busy machine is waited for."""

from typing import Any

SOON_S = 30.0  # a busy machine lets a process wait for seconds


class Notes:
    """A log that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **fields: object) -> None:
        self.events.append(event)

    warn = error = info


async def echo(connection: Any) -> None:
    while (frame := await connection.read_frame(1 << 22)) is not None:
        connection.write([len(frame).to_bytes(4, "big"), frame])
        await connection.drain()
