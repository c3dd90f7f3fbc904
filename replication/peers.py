"""What replication needs of the peer door: streams, and word of a peer that is there (again)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Chunk


class Stream(Protocol):
    """See `cluster/wire/peer_link.py`. `read` raises ConnectionLost when the peer fell silent."""

    @property
    def peer_id(self) -> BrokerId: ...

    async def read(self) -> tuple[dict[str, Any], memoryview] | None: ...

    def write(self, header: dict[str, Any], chunks: Sequence[Chunk] = ()) -> None: ...

    def abort(self) -> None: ...


OnStream = Callable[[BrokerId, dict[str, Any], Any], Awaitable[None]]


class Door(Protocol):
    """See `cluster/wire/peer_door.py`."""

    async def open_stream(
        self, node_id: BrokerId, kind: str, hello: Mapping[str, Any]
    ) -> Stream: ...

    def on_stream(self, kind: str, handler: OnStream) -> None: ...

    def on_up(self, call: Callable[[BrokerId], None]) -> None: ...
