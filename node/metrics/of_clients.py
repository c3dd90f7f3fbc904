"""The doors: clients' requests by API, connections by listener, and who was not let in."""

from typing import TYPE_CHECKING, Final

from ..address_check import EVENT_OF
from ..server import metrics as names
from .gathering import Gathering

if TYPE_CHECKING:
    from ..broker import Broker

NOT_BUILT: Final = ("produce", "fetch", "request")  # quotas of clients


class OfClients:
    def __init__(self, node: "Broker") -> None:
        self._node = node

    async def __call__(self, gathering: Gathering) -> None:
        node, put = self._node, gathering.put
        put(names.CONNECTIONS_MAX, node.limits.places.connections_max)
        for listener in node.listeners:
            counters, name = listener.counters, listener.name
            put(names.CONNECTIONS, len(listener.connections), name)
            put(names.OPENED, counters.opened, name)
            put(names.REFUSED, counters.refused, name)
            put(names.IDLE_CLOSED, counters.idle_closed, name)
            put(names.MALFORMED, counters.malformed, name)
            put(names.FAILED, counters.failed, name)
            in_flight = sum(each.in_flight for each in listener.connections)
            put(names.IN_FLIGHT, in_flight, name)
            found = node.services.addresses.get(name)
            for state in EVENT_OF:
                put(names.ADDRESS, float(state == found), name, state)
            await gathering.breathe()
        for key, counted in node.dispatcher.counters.items():
            api = api_name(key.name)
            put(names.REQUESTS, counted.requests, api)
            put(names.REQUEST_BYTES, counted.request_bytes, api)
            put(names.RESPONSE_BYTES, counted.response_bytes, api)
            if counted.requests:  # fifteen lines each: of those that are in use
                put(names.DURATION, counted.seconds, api)
            for error, count in counted.errors.items():
                put(names.ERRORS, count, api, error.name.upper())
        self._refused(gathering)

    def _refused(self, gathering: Gathering) -> None:
        node, put = self._node, gathering.put
        door = node.peers.door
        put(names.AUTHENTICATION, 0 if door is None else door.counters.handshakes_refused, "peer")
        put(names.AUTHENTICATION, node.admin.access.refused, "admin")
        put(names.AUTHENTICATION, 0, "client")
        for quota in NOT_BUILT:
            put(names.THROTTLED, 0, quota)
        put(names.THROTTLED, node.replicas.counters.throttled, "replication")


def api_name(name: str) -> str:
    """`list_offsets` as Kafka writes it: ListOffsets."""
    return "".join(word.capitalize() for word in name.split("_"))
