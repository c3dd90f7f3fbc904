"""One that is heard while another one's fencing waits for the disk is fenced all the same (liveness._fence)."""

import asyncio
from typing import Any

from test_liveness import TIMEOUT_S, Scene


def test_one_that_is_heard_while_another_is_fenced_is_left_alone() -> None:
    scene = Scene()
    propose = scene.quorum.propose

    async def slowly(record: bytes) -> Any:
        await asyncio.sleep(1.0)
        return await propose(record)

    scene.quorum.propose = slowly
    answers: list[Any] = []

    async def heartbeat() -> None:
        answers.append(await scene.liveness.execute(scene.heartbeat(3)))

    fenced_3: list[bool] = []
    scene.silence(2)
    scene.silence(3)
    # Both are silent for a session; 3 is heard while the fencing of 2 is on its way, and in each half second from then on.
    first = TIMEOUT_S + 0.6
    beats = [(first + 0.5 * n, lambda: asyncio.ensure_future(heartbeat())) for n in range(4)]
    looks = [(first + 0.1 * n, lambda: fenced_3.append(3 in scene.fenced)) for n in range(20)]
    scene.play(TIMEOUT_S + 3, *beats, *looks)
    scene.loop.close()
    assert answers and not answers[0].is_fenced
    assert not any(fenced_3), "it was heard, told that it is not fenced, and fenced"
