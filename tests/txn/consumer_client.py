"""A client of a consumer group for tests: as KIP-848 wants it, but slow, forgetful and mortal."""

import random
from typing import Any
from uuid import UUID

from consumer_world import Coordinator, Fields, request
from fencepost.cluster.base.errors import ErrorCode


class Client:
    """A member as KIP-848 wants it, but slow, forgetful and mortal as the dice will have it."""

    def __init__(self, rng: random.Random, member_id: str, instance_id: str | None = None) -> None:
        self.rng = rng
        self.member_id = member_id
        self.instance_id = instance_id
        self.names: tuple[str, ...] | None = ()
        self.regex: str | None = None
        self.assignor: str | None = None
        self.epoch = 0
        self.held: set[tuple[UUID, int]] = set()
        self.wanted: set[tuple[UUID, int]] = set()
        self.revokes_in = 0  # heartbeats until its revocation callback is done
        self.news = True  # it has something to say about its subscription
        self.acknowledges = False  # it has something to say about what it holds
        self.says_all = False  # it does not know what its coordinator has heard
        self.is_alive = True
        self.errors: list[ErrorCode] = []

    @property
    def is_locked_out(self) -> bool:
        """Another live member has its instance id: it can do nothing but try again."""
        locked = self.errors and self.errors[-1] is ErrorCode.unreleased_instance_id
        return self.epoch == 0 and bool(locked)

    def body(self) -> Any:
        fields: Fields = {"instance_id": self.instance_id}
        if self.epoch == 0 or self.news:
            fields |= {
                "names": self.names,
                "subscribed_topic_regex": self.regex,
                "server_assignor": self.assignor,
            }
        if self.epoch != 0 and (self.acknowledges or self.says_all or self.rng.random() < 0.1):
            held: dict[UUID, set[int]] = {}
            for topic_id, partition in self.held:
                held.setdefault(topic_id, set()).add(partition)
            fields["holding"] = held
        if self.epoch != 0 and self.says_all:
            names = () if self.names is None else self.names
            fields |= {"rebalance_timeout_ms": 60_000, "names": names}
        return request(self.member_id, self.epoch, **fields)

    def beat(self, coordinator: Coordinator, *, lose_answer: bool = False) -> Fields:
        if self.revokes_in > 0:
            self.revokes_in -= 1
            if self.revokes_in == 0:
                self.settle()
        reply = coordinator.hear(self.body())
        if lose_answer:
            self.news = self.says_all = True  # as after a timeout
        else:
            self.take(reply)
        return reply

    def take(self, reply: Fields) -> None:
        code = reply["error_code"]
        if code is not ErrorCode.none:
            self.errors.append(code)
            if code in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch):
                self.forget()
            elif code is ErrorCode.fenced_instance_id:
                self.is_alive = False
            elif code is ErrorCode.group_id_not_found:
                self.forget()
            else:
                assert code is ErrorCode.unreleased_instance_id, reply
            return
        self.epoch = reply["member_epoch"]
        self.news = self.acknowledges = self.says_all = False
        if reply["assignment"] is None:
            return
        rows = reply["assignment"]["topic_partitions"]
        self.wanted = {(row["topic_id"], p) for row in rows for p in row["partitions"]}
        if self.held - self.wanted and self.revokes_in == 0:
            self.revokes_in = self.rng.choice((0, 0, 1, 2, 4))
        if self.revokes_in == 0:
            self.settle()

    def settle(self) -> None:
        """Its callbacks are done: it reads what it was given, and nothing else."""
        if self.held != self.wanted:
            self.held = set(self.wanted)
            self.acknowledges = True

    def forget(self) -> None:
        self.epoch = 0
        self.held.clear()
        self.wanted.clear()
        self.revokes_in = 0
        self.news, self.acknowledges = True, False
