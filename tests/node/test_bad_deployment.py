"""What a real process says, and how it ends, where a volume, a port or a folder is not what it should be."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey, decode_response
from fencepost.cluster.wire.versions import SUPPORTED
from raw_door import answer, framed
from sim_node import batch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

START_S = 60.0
CAPBSET_DROP, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2
NOBODY = 54321
STARTED: "list[Serving]" = []
OPENED: list[socket.socket] = []


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Of a test that failed."""
    yield
    for each in STARTED:
        if each.child.returncode is None:
            each.end(signal.SIGKILL)
    for each in OPENED:
        each.close()
    STARTED.clear()
    OPENED.clear()


class Serving:
    """`fencepost serve` of one folder, its log in JSON."""

    def __init__(
        self, data: Path, *settings: str, before: Callable[[], None] | None = None
    ) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at its end
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        flags = [f"log.dirs={data}", f"listeners=PLAINTEXT://127.0.0.1:{self.port}", *settings]
        command = [sys.executable, "-m", "fencepost.node.main", "serve"]
        self.child = subprocess.Popen(
            [*command, *(word for flag in flags for word in ("--set", flag))],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            preexec_fn=before,  # noqa: PLW1509 - only prctl runs in there
        )
        self.said = ""
        STARTED.append(self)

    def ready(self) -> None:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line.startswith("ready "):
            self.end()
            raise AssertionError(f"not ready: {self.said}")

    def end(self, number: int | None = None) -> int:
        """Its exit code; what it said is in `lines`."""
        if number is not None:
            self.child.send_signal(number)
        self.child.communicate(timeout=START_S)
        self._read()
        self._log.close()
        return self.child.returncode

    def _read(self) -> None:
        self.said = os.pread(self._log.fileno(), 1 << 20, 0).decode()

    def until(self, event: str) -> dict[str, Any]:
        """The first line of that event."""
        deadline = time.monotonic() + START_S
        while not (found := self.lines(event)):
            assert time.monotonic() < deadline and self.child.poll() is None, self.said
            time.sleep(0.02)
            self._read()
        return found[0]

    def lines(self, event: str) -> list[dict[str, Any]]:
        whole = self.said[: self.said.rfind("\n") + 1]
        told = [json.loads(line) for line in whole.splitlines()]
        return [line for line in told if line["event"] == event]


class Plain:
    """A client of few words, of one topic."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), START_S)
        OPENED.append(self.socket)

    def ask(self, key: ApiKey, **fields: Any) -> Any:
        version = SUPPORTED[key][1]
        self.socket.sendall(framed(key, version, **fields))
        return decode_response(key, version, answer(self.socket))[1]

    def create(self, partitions: int) -> UUID:
        topic = {"name": "t", "num_partitions": partitions, "replication_factor": 1}
        found: UUID = (
            self.ask(ApiKey.create_topics, timeout=9_000, topics=[topic]).topics[0].topic_id
        )
        return found

    def produce(self, topic_id: UUID, partitions: Sequence[int], value: bytes) -> None:
        data = [{"index": each, "records": batch(value)} for each in partitions]
        topics = [{"topic_id": topic_id, "partition_data": data}]
        reply = self.ask(ApiKey.produce, acks=-1, timeout=9_000, topic_data=topics)
        for each in reply.responses[0].partition_responses:
            assert each.error_code is ErrorCode.none

    def ends(self, topic_id: UUID, partitions: Sequence[int]) -> list[int]:
        """The high watermark of each."""
        wanted = [{"partition": each, "fetch_offset": 0} for each in partitions]
        topics = [{"topic_id": topic_id, "partitions": wanted}]
        reply = self.ask(
            ApiKey.fetch, max_wait=0, max_bytes=1 << 20, session_epoch=-1, topics=topics
        )
        return [each.high_watermark for each in reply.responses[0].partitions]


def refused(serving: Serving) -> tuple[int, str]:
    """Exit code and sentence; the same code stands in the line."""
    code = serving.end()
    (line,) = serving.lines("node_refused")
    assert line["exit_code"] == code and line["node_id"] == 1
    return code, line["cause"]


@contextlib.contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(place)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs the command `mount`")
    if done.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def without_powers() -> None:
    """Root reads and writes whatever belongs to whom; this process is to be like any other."""
    libc = ctypes.CDLL(None)
    for each in (DAC_OVERRIDE, DAC_READ_SEARCH):
        libc.prctl(CAPBSET_DROP, each, 0, 0, 0)


def test_a_folder_of_somebody_else_is_a_sentence_that_says_whose(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o500)
    if os.getuid() == 0:
        os.chown(data, NOBODY, NOBODY)
    code, sentence = refused(Serving(data, before=without_powers))
    assert code == 73
    owner = data.stat().st_uid
    assert f"{data} belongs to user {owner}" in sentence
    assert f"this process runs as user {os.getuid()}" in sentence
    assert f"`chown -R {os.getuid()}:{os.getgid()} {data}`" in sentence


def test_a_disk_that_is_mounted_read_only_is_a_sentence_that_says_so(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m", "ro") as disk:
        code, sentence = refused(Serving(disk / "data"))
    assert code == 73
    assert "mounted read-only" in sentence and "log.dirs" in sentence


def test_a_disk_that_is_full_at_the_start_is_waited_for_and_told(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", f"size={1 << 20}") as disk:
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        serving = Serving(disk / "data")
        assert serving.until("metadata_disk_full")["level"] == "error"
        ballast.unlink()
        serving.ready()
        assert serving.end(signal.SIGTERM) == 0
        assert serving.lines("metadata_disk_has_room_again")


def test_a_port_that_is_taken_may_be_free_later(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        code, sentence = refused(Serving(tmp_path / "data", f"listeners={address}"))
    assert code == 75 and "in use" in sentence


def test_a_folder_that_another_process_has_may_be_free_later(tmp_path: Path) -> None:
    first = Serving(tmp_path)
    first.ready()
    code, sentence = refused(Serving(tmp_path))
    assert code == 75 and f"{tmp_path} is in use by another fencepost process" in sentence
    assert first.end(signal.SIGTERM) == 0


def test_a_setting_that_only_a_part_of_the_node_can_judge_is_a_sentence_too(tmp_path: Path) -> None:
    """A restart mends it no more than another: RestartPreventExitStatus has 2."""
    code, sentence = refused(Serving(tmp_path, "group.consumer.assignors=uniform,rnage"))
    assert code == 2
    assert sentence == (
        "Invalid value rnage for configuration group.consumer.assignors: there are uniform, range"
        " (from the command line)"
    )


def test_a_folder_of_another_node_is_named_with_its_owner(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=abc\n")
    code, sentence = refused(Serving(tmp_path))
    assert code == 78 and "belongs to node 7, and this is node 1" in sentence


def test_a_node_that_was_killed_says_at_the_next_start_what_it_had_to_recover(
    tmp_path: Path,
) -> None:
    first = Serving(tmp_path)
    first.ready()
    plain = Plain(first.port)
    topic_id = plain.create(1)
    for size in [1_000] * 19 + [21_000]:  # of what came before the last, a checkpoint may tell
        plain.produce(topic_id, [0], b"v" * size)
    assert first.end(signal.SIGKILL) == -signal.SIGKILL  # as the kernel does when memory runs out
    second = Serving(tmp_path)
    second.ready()
    assert Plain(second.port).ends(topic_id, [0]) == [20]
    assert second.end(signal.SIGTERM) == 0
    (line,) = second.lines("last_run_unclean")
    assert (line["partitions"], line["bytes_cut"], line["level"]) == (1, 0, "warn")
    assert line["bytes"] > 20 * 1_000
    assert line["message"].startswith(
        "The last run ended without a clean stop (its process was killed or broke off; an exit code of 137"
    )
    third = Serving(tmp_path)
    third.ready()
    assert third.end(signal.SIGTERM) == 0
    assert not third.lines("last_run_unclean"), "that one had been stopped cleanly"


@pytest.mark.timeout(300)
def test_told_to_stop_while_it_recovers_it_ends_with_0_and_the_next_start_has_all(
    tmp_path: Path,
) -> None:
    first = Serving(tmp_path)
    first.ready()
    plain, written = Plain(first.port), list(range(400))
    topic_id = plain.create(len(written))
    plain.produce(topic_id, written, b"v" * 100)
    first.end(signal.SIGKILL)
    for event in ("node_starts", "log_recovered"):
        again = Serving(tmp_path)
        again.until(event)
        assert again.end(signal.SIGTERM) == 0, again.said
        early = again.lines("node_stopped_early")
        assert early or again.lines("node_stopped"), "it went on to the end, and was stopped then"
        assert early or event != "node_starts"
    last = Serving(tmp_path)
    last.ready()
    assert Plain(last.port).ends(topic_id, written) == [1] * len(written)
    assert last.end(signal.SIGTERM) == 0
