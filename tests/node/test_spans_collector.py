"""Spans whose collector is away, says nothing, never ends its answer, or answers without end."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from fencepost.cluster.base.real_env import RealEnv
from support.alone import held_to

try:
    from fencepost.node.tracing.otel import STOP_S_MAX, OtelSpans, exported_to, provider_of
except ImportError:
    assert os.environ.get("CI") != "true", "CI has the extra `otel`"
    pytest.skip("needs OpenTelemetry: pip install -e '.[otel]'", allow_module_level=True)

SLACK_S = 2.0
QUEUED = 2_500  # more than are kept
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"


class Collector:
    """Reads a request, says `head`, and then `piece` again and again."""

    def __init__(self, listener: socket.socket, head: bytes, piece: bytes, pause_s: float) -> None:
        self.listener, self.head, self.piece, self.pause_s = listener, head, piece, pause_s
        self.url = "http://127.0.0.1:{1}/v1/traces".format(*listener.getsockname())
        self.over = threading.Event()
        self.asked = 0
        self.sent = 0

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                taken, _ = self.listener.accept()
                self.asked += 1
                threading.Thread(target=self.answer, args=(taken,), daemon=True).start()

    def answer(self, taken: socket.socket) -> None:
        with taken, suppress(OSError):
            taken.recv(1 << 16)
            taken.sendall(self.head)
            while not self.over.wait(self.pause_s):
                taken.sendall(self.piece)
                self.sent += len(self.piece)


@contextmanager
def collector(head: bytes = b"", piece: bytes = b"", pause_s: float = 0.1) -> Iterator[Collector]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = Collector(listener, head, piece, pause_s)
        thread = threading.Thread(target=serving.serve, daemon=True)
        thread.start()
        yield serving
        serving.over.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def spans_to(url: str, queued: int = QUEUED) -> OtelSpans:
    env = RealEnv()
    spans = OtelSpans(env.clock, exported_to(url, provider_of(1, 1.0)))
    for _ in range(queued):
        now_s = env.clock.steady()
        span = spans.begin("produce", now_s, {})
        assert span is not None
        span.end(now_s, "none")
    return spans


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize(
    ("head", "piece"),
    [(b"", b""), (HEAD, b"x"), (b"HTTP/1.1 200 OK\r\nX: ", b"x")],
    ids=["says nothing", "never ends its answer", "never ends its head"],
)
def test_no_collector_holds_up_a_stop(head: bytes, piece: bytes) -> None:
    """A stop was held for 8 s by one that said nothing, for 30 s by the others: who stops nodes kills them by then."""

    async def stop(url: str) -> float:
        spans = spans_to(url)
        began = time.monotonic()
        await spans.close()
        return time.monotonic() - began

    with collector(head, piece) as serving:
        began = time.monotonic()
        took_s = asyncio.run(stop(serving.url))  # waits for the threads of its executor, too
        assert took_s < held_to(STOP_S_MAX + SLACK_S)
        assert time.monotonic() - began < held_to(STOP_S_MAX + 2 * SLACK_S)


@pytest.mark.slow
def test_what_a_collector_answers_is_not_read() -> None:
    """One whose answer has no end took the exporter's thread for ever, and of the node's memory what it liked."""

    async def scenario(serving: Collector) -> None:
        spans = spans_to(serving.url)
        while serving.asked < 2:  # the second batch is sent: the first answer was left
            await asyncio.sleep(0.05)
        await spans.close()

    with collector(HEAD, b"x" * (1 << 20), 0.001) as serving:
        asyncio.run(asyncio.wait_for(scenario(serving), 30.0))
        assert serving.sent < 32 << 20
