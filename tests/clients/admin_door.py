"""A node with an admin door for the suites of `fencepost.clients`, and a stand-in for one that answers as told."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from brokers import AGAINST, as_variables
from fencepost.clients.transactional import AdminApi
from support.fencepost_process import fencepost

OPENED = re.compile(r'"admin_open".*"address": \["([^"]+)", (\d+)\]')


class Served(NamedTuple):
    bootstrap: str
    admin: AdminApi


@contextmanager
def served(settings: Mapping[str, str]) -> Iterator[Served]:
    """One node of its own: Kafka has no such door."""
    if AGAINST != "fencepost" or "FENCEPOST_TEST_BOOTSTRAP" in os.environ:
        pytest.skip("asks the admin door of a node of its own")
    with fencepost(environment=as_variables(settings)) as node:
        found = OPENED.search(node.process.said())
        assert found is not None, node.process.said()
        yield Served(node.bootstrap, AdminApi(f"http://{found[1]}:{found[2]}", timeout_s=30.0))


Told = Callable[[str, str, dict[str, Any]], tuple[int, Any] | None]


@contextmanager
def told(answer: Told) -> Iterator[str]:
    """A door that answers with what `answer(method, path, body)` gives; None hangs up without a word."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length) or b"{}")
            given = answer(self.command, self.path, body)
            if given is None:
                self.close_connection = True
                return
            status, fields = given
            encoded = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def __getattr__(self, name: str) -> Any:
            if name in ("do_GET", "do_POST"):
                return self._serve
            raise AttributeError(name)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
