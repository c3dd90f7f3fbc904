import asyncio
from typing import Any

from fencepost.cluster.base.tasks import TaskOwner


def owner() -> tuple[TaskOwner, list[BaseException]]:
    deaths: list[BaseException] = []
    return TaskOwner(deaths.append), deaths


def test_a_task_that_raises_ends_the_node() -> None:
    async def main() -> None:
        tasks, deaths = owner()

        async def broken() -> None:
            raise AssertionError("an epoch went backwards")

        tasks.spawn(broken(), name="flusher")
        await asyncio.sleep(0.01)
        assert [str(death) for death in deaths] == ["an epoch went backwards"]
        assert len(tasks) == 0

    asyncio.run(main())


def test_a_cancelled_task_and_one_that_ends_hurt_nobody() -> None:
    async def main() -> None:
        tasks, deaths = owner()
        waiting = tasks.spawn(asyncio.sleep(100), name="waits")
        tasks.spawn(asyncio.sleep(0), name="ends")
        assert tasks.names() == ["waits", "ends"]
        waiting.cancel()
        await asyncio.sleep(0.01)
        assert deaths == [] and len(tasks) == 0

    asyncio.run(main())


def test_cancelling_all_waits_for_their_last_words_and_for_those_they_start() -> None:
    async def main() -> None:
        tasks, deaths = owner()
        said: list[str] = []

        async def last_words() -> None:
            said.append("second")

        async def stubborn() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(0.01)
                said.append("first")
                tasks.spawn(last_words(), name="late")

        tasks.spawn(stubborn(), name="stubborn")
        await asyncio.sleep(0)
        await tasks.cancel_all()
        assert said[:1] == ["first"] and len(tasks) == 0 and deaths == []

    asyncio.run(main())


def test_whoever_cancels_all_is_not_cancelled_itself() -> None:
    async def main() -> None:
        tasks, deaths = owner()
        done: list[Any] = []

        async def stop() -> None:
            await tasks.cancel_all()
            done.append(True)

        other = tasks.spawn(asyncio.sleep(100), name="other")
        await tasks.spawn(stop(), name="stop")
        assert done and other.cancelled() and deaths == []

    asyncio.run(main())
