"""Three voters, each a thread with a loop of its own, whose votes take long to sync: while one is stored its loop stands still.

On the simulator's virtual time a sync on the loop takes none.
"""

import asyncio
import pathlib
import threading
import time

import pytest
from fencepost.cluster.quorum.vote_file import Vote, VoteFile
from test_quorum_on_real_sockets import Node, agree, free_ports

SYNC_S = 0.45
# Two syncs, one after the other, and what it takes to miss a leader; more where two stand at once.
ELECTED_WITHIN_S = 25.0


class Thread:
    """One node."""

    def __init__(
        self, folder: pathlib.Path, node_id: int, peers: dict[int, tuple[str, int]]
    ) -> None:
        self.node_id = node_id
        self._folder, self._peers = str(folder), peers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._started = threading.Event()
        self._thread.start()
        assert self._started.wait(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.node = self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_forever()
        self._loop.close()

    async def _start(self) -> Node:
        node = Node(self._folder, self.node_id, self._peers)
        await node.start()
        return node

    def do(self, coroutine, timeout_s: float = 30.0):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    @property
    def leads(self) -> bool:
        async def leads() -> bool:
            return self.node.quorum.is_leader

        return self.do(leads())

    def end(self) -> None:
        self.do(self.node.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def leader_of(threads: list[Thread], within_s: float) -> Thread:
    began = time.monotonic()
    while time.monotonic() - began < within_s:
        for each in threads:
            if each.leads:
                return each
        time.sleep(0.02)
    raise AssertionError(f"nobody was elected in {within_s} s")


@pytest.mark.slow
def test_where_a_vote_takes_half_a_second_to_sync_another_is_elected(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = {each: ("127.0.0.1", port) for each, port in zip((1, 2, 3), free_ports(3), strict=True)}
    threads = [Thread(tmp_path / str(each), each, peers) for each in peers]
    write, slow = VoteFile._write, threading.Event()

    def slowly(self: VoteFile, place: int, vote: Vote) -> None:
        if slow.is_set():
            time.sleep(SYNC_S)
        write(self, place, vote)

    monkeypatch.setattr(VoteFile, "_write", slowly)
    try:
        leader = leader_of(threads, 30)
        slow.set()
        leader.do(leader.node.door.close())
        others = [each for each in threads if each is not leader]
        second = leader_of(others, ELECTED_WITHIN_S)
        second.do(agree([second.node], "after"))
    finally:
        slow.clear()
        for each in threads:
            each.end()
