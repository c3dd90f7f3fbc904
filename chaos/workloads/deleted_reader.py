"""A reader of a partition of which records are deleted: overtaken, it goes on where the partition begins now, as clients do that
reset to the earliest offset.

INVARIANT  it is told that its offset is not there only when somebody has asked to delete what is there, and goes on behind that.
PREVENTS   a consumer that leaves out records which nobody deleted, or is given some that were.
PROVED BY  tests/sim/test_deleting.py::test_a_reader_that_nobody_has_overtaken_is_told_to_end
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode, Trouble

from ..checkers.history import Operation
from ..checkers.observations import Begins
from .cluster_client import Leader
from .cluster_stream import StreamReader
from .deleter import Judge, where_it_begins


class DeletedReader(StreamReader):
    """`judge` is set before it reads."""

    judge: Judge
    overtaken = 0  # so many times
    _since = 0

    async def step(self) -> bool:
        self._since = self.judge.acknowledged(self.key)
        return await super().step()

    def _answered(self, leader: Leader, answer: Any) -> None:
        super()._answered(leader, answer)
        epoch = leader.leader_epoch
        begins = Begins(self.name, self.key, epoch, self.offset, self._since, is_exact=False)
        self.judge.see(begins)
        if answer.log_start_offset >= 0:
            start = answer.log_start_offset
            self.judge.see(Begins(self.name, self.key, epoch, start, self._since))

    async def _refused(self, leader: Leader, error: ErrorCode) -> bool:
        if error is not ErrorCode.offset_out_of_range:
            return await super()._refused(leader, error)
        try:
            start = await where_it_begins(leader, self.topic, self.partition, self.judge, self.name)
        except Trouble:
            start = None
        if start is None:
            self.client.forget(self.topic, self.partition, leader)
            return False
        if start <= self.offset:
            return await super()._refused(leader, error)
        self.overtaken += 1
        self.offset = start
        self.history.append(Operation("start", "ok", self.name, self.key, offset=start))
        return True
