"""Topics that come into being because somebody asked for them.

Clients create topics by asking for their metadata (`auto.create.topics.enable`), coordinators by being looked
for (`__consumer_offsets`). Many ask at once for the same topic; it is created once, and all of them wait for it.
"""

import asyncio
from collections.abc import Sequence

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ports import Env
from fencepost.cluster.controller.commands import AutoCreateTopics
from fencepost.cluster.controller.service import Executes
from fencepost.cluster.metadata.topic_names import why_topic_not_made

# Like Kafka's purgatory for auto-created topics, this waits for the quorum, not for a person.
CREATE_TIMEOUT_S = 5.0
TOPICS_NAMED_MAX = 10  # in a line of the log


class Topics:
    """Creates what is missing, and says why something is."""

    def __init__(self, env: Env, controller: Executes) -> None:
        self.env = env
        self.controller = controller
        self._creating: dict[str, asyncio.Future[ErrorCode]] = {}

    def why_missing(self, name: str) -> ErrorCode:
        """The error for a topic that is not there: impossible name, or just unknown."""
        if why_topic_not_made(name) is not None:
            return ErrorCode.invalid_topic_exception
        return ErrorCode.unknown_topic_or_partition

    async def create_automatically(self, names: Sequence[str]) -> None:
        """Create those that may be created; whoever asked looks at the image afterwards."""
        wanted = [name for name in names if why_topic_not_made(name) is None]
        mine = [name for name in dict.fromkeys(wanted) if name not in self._creating]
        others = [self._creating[name] for name in wanted if name in self._creating]
        if mine:
            await self._create(mine)
        if others:
            await asyncio.wait(others, timeout=CREATE_TIMEOUT_S)

    async def _create(self, names: list[str]) -> None:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._creating.update(dict.fromkeys(names, done))
        try:
            async with asyncio.timeout(CREATE_TIMEOUT_S):
                await self.controller.execute(AutoCreateTopics(names=tuple(names)))
        except (TimeoutError, Trouble) as trouble:
            named = names[:TOPICS_NAMED_MAX]
            self.env.log.warn("topic_auto_create_failed", topics=named, cause=str(trouble))
        finally:
            for name in names:
                del self._creating[name]
            done.set_result(ErrorCode.none)
