"""Threads that wait for the disk: every answer comes, on the loop, whatever the work did."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from fencepost.cluster.base.disk_threads import DiskThreads


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    def runner(scene: Any) -> Any:
        async def main() -> Any:
            threads = DiskThreads(3, "test")
            try:
                async with asyncio.timeout(30):
                    return await scene(threads)
            finally:
                threads.close()

        return request.param(main())

    return runner


def test_answers_come_on_the_loop_and_work_runs_beside_it(run: Any) -> None:
    async def scene(threads: DiskThreads) -> list[Any]:
        loop_thread = threading.get_ident()
        found = await asyncio.gather(*(threads.run(pow, 2, each) for each in range(50)))
        assert await threads.run(threading.get_ident) != loop_thread
        return list(found)

    assert run(scene) == [2**each for each in range(50)]


@pytest.mark.parametrize("error", [OSError(5, "bad sector"), AssertionError(), SystemExit(3)])
def test_whatever_work_raises_reaches_whoever_waits(run: Any, error: BaseException) -> None:
    async def scene(threads: DiskThreads) -> None:
        def work() -> None:
            raise error

        future = threads.run(work)
        await asyncio.wait([future])
        assert future.exception() is error
        assert await threads.run(pow, 3, 2) == 9, "its thread goes on"

    run(scene)


def test_no_more_threads_than_allowed_and_none_before_they_are_needed(run: Any) -> None:
    async def scene(threads: DiskThreads) -> None:
        before = threading.active_count()
        for each in range(5):
            assert await threads.run(pow, 2, each) == 2**each
        assert threading.active_count() == before + 1
        gate = threading.Event()
        waiting = [threads.run(gate.wait) for _ in range(20)]
        assert threading.active_count() == before + 3
        gate.set()
        assert all(await asyncio.gather(*waiting))

    run(scene)


def test_where_no_more_threads_can_be_had_those_there_are_do_the_work(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of the machine, or of its memory: with one thread it is slower, and that is all."""

    async def scene(threads: DiskThreads) -> None:
        gate = threading.Event()
        first = threads.run(gate.wait)
        start, refused = threading.Thread.start, []

        def refuse(thread: threading.Thread) -> None:
            refused.append(thread)
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        waiting = [threads.run(pow, 2, each) for each in range(5)]
        assert refused
        gate.set()
        assert await first
        assert await asyncio.gather(*waiting) == [2**each for each in range(5)]
        monkeypatch.setattr(threading.Thread, "start", start)
        before = threading.active_count()
        gate.clear()
        waiting = [threads.run(gate.wait) for _ in range(20)]
        assert threading.active_count() == before + 2, "there are threads again"
        gate.set()
        assert all(await asyncio.gather(*waiting))

    run(scene)


def test_without_any_thread_there_is_no_answer_to_wait_for(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(threads: DiskThreads) -> None:
        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="new thread"):
                threads.run(pow, 2, 1)
        assert await threads.run(pow, 3, 2) == 9

    run(scene)


def test_work_whose_waiter_gave_up_is_done_all_the_same(run: Any) -> None:
    async def scene(threads: DiskThreads) -> list[int]:
        done: list[int] = []
        gate = threading.Event()
        first = threads.run(gate.wait)
        given_up = threads.run(done.append, 1)
        given_up.cancel()
        gate.set()
        await first
        while not done:
            await asyncio.sleep(0.001)
        return done

    assert run(scene) == [1]


def test_closing_waits_for_the_work_under_way() -> None:
    done: list[int] = []

    async def main() -> None:
        threads = DiskThreads(1, "test")

        def slow() -> None:
            time.sleep(0.05)
            done.append(1)

        threads.run(slow)
        threads.close()
        assert done == [1]

    asyncio.run(main())
