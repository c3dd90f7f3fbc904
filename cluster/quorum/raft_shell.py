"""The metadata quorum of one node: pysyncobj behind one replicated method, on our disk, our clock and our loop."""

from collections.abc import Mapping

from ..base.ids import BrokerId
from ..base.ports import Env
from ..metadata.machine import MetadataMachine, Result


class Quorum:
    """`folder` holds journal, vote and snapshot; `voters` are node id -> (host, port) of the peer door."""

    def __init__(
        self,
        env: Env,
        folder: str,
        machine: MetadataMachine,
        node_id: BrokerId,
        voters: Mapping[BrokerId, tuple[str, int]],
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Load snapshot and journal; the image holds all that this node knew. LogDamaged names what it can't read."""

    async def wait_ready(self) -> None:
        """Wait until a leader is known and this node has applied all that was committed when it came."""

    async def propose(self, record: bytes) -> Result:
        """Have the quorum agree on an entry; its result, applied here. Trouble when it can't be known to have been."""
        raise NotImplementedError

    @property
    def is_leader(self) -> bool: ...

    @property
    def term(self) -> int: ...

    @property
    def leader_id(self) -> BrokerId | None: ...

    async def stop(self) -> None: ...
