"""The last moments of a node that stops: its clients hear who leads now before their connections end.

INVARIANT  a connection that is in use is closed only after its client has been refused by name, or a bounded time.
PREVENTS   a transaction that is lost to a stop: librdkafka sends the end of one to the coordinator that it knows, and if
           that one's name is gone from the network with its container, it gives the transaction up (2.16: `_RESOLVE`).
PROVED BY  tests/node/test_farewell.py::test_a_client_in_use_is_refused_by_name_before_its_connection_ends

What this node led is others' by now, so whatever is asked is answered with NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR, and
the client asks there. One that asks nothing is closed on: when its coordinator's connection ends it looks for the new one.
"""

from collections.abc import Sequence
from typing import Final

from fencepost.cluster.base.ports import Clock

from .server.listener import ClientListener

# Nobody has asked anything for so long: those who have work have gone elsewhere.
QUIET_S: Final = 0.25
# Some ask for ever: metadata, heartbeats of a group.
WITHIN_S: Final = 1.0
LOOK_S: Final = 0.05


async def let_clients_go(clock: Clock, doors: Sequence[ClientListener]) -> None:
    """Returns when nothing has been asked for a moment; at once without clients."""
    began = clock.steady()
    while clock.steady() - began < WITHIN_S:
        clients = [client for door in doors for client in door.connections]
        active = max((client.last_active_s for client in clients), default=began - QUIET_S)
        if not clients or clock.steady() - max(active, began) >= QUIET_S:
            return
        await clock.sleep(LOOK_S)
