"""What the loop reads is never behind its group's position: a leader that was deposed, and has not heard of it, has a shorter log.

INVARIANT  a message before the group's position is processed only when nobody has told of an end there, or behind (`asking_others.py`).
PREVENTS   a loop that writes all of a topic once more, for the word of one broker that was cut off.
PROVED BY  tests/clients/test_transactional_going_back.py::test_a_position_behind_one_brokers_end_is_no_reason_to_begin_anew

1. A leader is cut off from its cluster when its log ends at 10, and deposed. The loop reads on from the new one, and commits 15.
2. It is started again, and the broker that it asks for metadata is the old leader, which still takes itself for one.
3. That one says that 15 is out of range. librdkafka goes where `auto.offset.reset` says: to the beginning.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from .asking_others import ASKED_MIN, each_to_ask

Place = tuple[str, int]
Positions = Callable[[list[TopicPartition]], list[TopicPartition]]

ASK_S: Final = 5.0

log = logging.getLogger("fencepost.clients")


class Onward:
    """Of one loop: is shown all that is read, and told wherever it is sent."""

    def __init__(self, client: Mapping[str, Any], committed: Positions) -> None:
        self._client = {**client, "isolation.level": "read_uncommitted"}
        self._committed = committed
        self._next: dict[Place, int] = {}  # what comes next, where that is known

    def is_sent(self, place: Place, offset: int) -> None:
        self._next[place] = offset

    def is_taken(self, _consumer: Any, partitions: Iterable[TopicPartition]) -> None:
        """By a rebalance: whoever has them next commits what comes next."""
        for each in partitions:
            self._next.pop((each.topic, each.partition), None)

    def take(self, messages: Iterable[Message]) -> tuple[list[Message], dict[Place, int]]:
        """What to process, and from where on to read again."""
        found, after = list(messages), dict(self._next)
        back: dict[
            Place, int
        ] = {}  # where a partition goes on, if that is not behind what came before, or nothing did
        for each in found:
            place, offset = (each.topic(), each.partition()), each.offset()
            if place not in after or offset < after[place]:
                back.setdefault(place, offset)
            after[place] = offset + 1
        again = self._behind(back) if back else {}
        self._next.update({place: after[place] for place in after if place not in again})
        return [each for each in found if (each.topic(), each.partition()) not in again], again

    def _behind(self, back: Mapping[Place, int]) -> dict[Place, int]:
        """The group's positions in those of the partitions that must not be read from there."""
        behind = {}
        for at in self._committed([TopicPartition(*place) for place in back]):
            place = at.topic, at.partition
            if back[place] < at.offset and self._may_be_there(place, at.offset, back[place]):
                behind[place] = at.offset
        return behind

    def _may_be_there(self, place: Place, position: int, offset: int) -> bool:
        furthest = -1
        for _ in each_to_ask(ASKED_MIN):
            furthest = max(furthest, self._end(place))
            if furthest >= position:
                break
        which = (
            f"{place[0]}-{place[1]}: it was sent to offset {offset}, and its group is at {position}"
        )
        if 0 <= furthest < position:
            log.warning(
                "%s. The partition ends at %s now: it was made anew, or has lost its last records. It is read from there",
                which,
                furthest,
            )
            return False
        log.warning(
            "%s. Its leader may be one that was deposed and has not heard of it: it is read from its group's position again",
            which,
        )
        return True

    def _end(self, place: Place) -> int:
        client = Consumer(self._client)
        try:
            _, end = client.get_watermark_offsets(TopicPartition(*place), ASK_S)
        except KafkaException as trouble:
            log.info("where %s-%s ends can't be asked for: %s", *place, trouble)
            return -1
        finally:
            client.close()
        return int(end)
