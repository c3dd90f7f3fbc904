"""Whether clients that are told this node's addresses come to this node.

INVARIANT  what is said of an address was seen: a name that is not known, a port where nobody answers, or an answer
           that did not come from here. Nothing is guessed from how an address looks.
PREVENTS   a cluster whose every node runs and which no client can use, because `advertised.listeners` names a machine
           that is gone, or its neighbour.
PROVED BY  tests/node/test_address_check.py::test_an_address_that_leads_to_another_node_is_named

How it knows: it connects as a client would, with a client id that nobody else has, and asks for the API versions. If
an answer comes and no request of that name has come to this node's own door, another server gave it.

What was found is kept in `Services.addresses`, for the metrics. An address that was not right is looked at again every
minute, and named again when something else is found there; one that is right is not.

An address that can't be reached from here may be right all the same: the outer one of a container often is. That is a
warning. So is an answer of another server, which a name service that is behind may give for a while. Two living nodes
that advertise one address are a fault for sure: the later one does not start (`wait_until_free`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.exit_codes import EXIT_IDENTITY, CannotRun
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.image import ClusterImage, Endpoint
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

if TYPE_CHECKING:
    from .broker import Broker

ANSWER_S_MAX: Final = 5.0
# A container's name is often known a moment after the container runs.
TRIES, PAUSE_S = 3, 2.0
PEERS: Final = "PEER"
FREE_CHECK_S: Final = 0.2
AGAIN_S: Final = 60.0
# What was found of an address, and the event that says it.
RIGHT: Final = "right"
EVENT_OF: Final = {
    RIGHT: "address_checked",
    "of_another": "address_of_another",
    "unresolved": "address_unresolved",
    "not_reached": "address_not_reached",
}


class AddressCheck:
    """Of a node that is ready; `run` ends when each address leads here."""

    def __init__(self, env: Env, broker: "Broker") -> None:
        self._env = env
        self._broker = broker

    async def run(self) -> None:
        while any([not await self._check(each) for each in self._endpoints()]):
            await self._env.clock.sleep(AGAIN_S)

    def _endpoints(self) -> list[Endpoint]:
        """Only what is spoken here as clients speak it: TLS would need a client's certificates."""
        me = self._broker.image.brokers.get(self._broker.config.node_id)
        return [
            endpoint
            for endpoint in (() if me is None else me.endpoints)
            if endpoint.listener != PEERS and endpoint.protocol == "PLAINTEXT"
        ]

    async def _check(self, endpoint: Endpoint) -> bool:
        """Whether it leads here. Told once, until something else is found."""
        found, cause = await self._find(endpoint)
        known = self._broker.services.addresses
        before, known[endpoint.listener] = known.get(endpoint.listener), found
        log = self._env.log
        if found == before:
            return found == RIGHT
        fields = {"listener": endpoint.listener, "host": endpoint.host, "port": endpoint.port}
        if found == RIGHT:
            (log.debug if before is None else log.info)(EVENT_OF[found], **fields)
        elif cause:
            log.warn(EVENT_OF[found], **fields, cause=cause)
        else:
            log.error(EVENT_OF[found], **fields)
        return found == RIGHT

    async def _find(self, endpoint: Endpoint) -> tuple[str, str]:
        """And why nothing could be asked there."""
        why = ""
        for number in range(TRIES):
            if number:
                await self._env.clock.sleep(PAUSE_S)
            try:
                return (RIGHT if await self._ask(endpoint) else "of_another"), ""
            except Trouble as trouble:
                why = str(trouble)
        unknown = any(each in why for each in _UNKNOWN_NAME)
        return ("unresolved" if unknown else "not_reached"), why

    async def _ask(self, endpoint: Endpoint) -> bool:
        """Whether the question came to this node's own door."""
        name = f"fencepost-address-check-{self._env.rng.getrandbits(64):016x}"
        checks = self._broker.services.address_checks
        checks[name] = False
        client = WireClient(
            self._env, endpoint.host, endpoint.port, client_id=name, timeout_s=ANSWER_S_MAX
        )
        try:
            await client.request(ApiKey.api_versions)
            return checks[name]
        finally:
            del checks[name]
            await client.close()


# What getaddrinfo says of a name that it does not know, in glibc's and musl's words.
_UNKNOWN_NAME: Final = (
    "Name or service not known",
    "Name does not resolve",
    "Temporary failure in name resolution",
    "No address associated with hostname",
    "unknown node",
)


def taken_by(
    image: ClusterImage, node_id: BrokerId, endpoints: Sequence[Endpoint]
) -> tuple[BrokerId, Endpoint] | None:
    """Another living node that clients are sent to at one of these addresses."""
    mine = {(each.host, each.port): each for each in endpoints}
    for broker in image.alive_brokers():
        for each in broker.endpoints:
            if broker.broker_id != node_id and (each.host, each.port) in mine:
                return broker.broker_id, mine[each.host, each.port]
    return None


async def wait_until_free(
    env: Env,
    image: ClusterImage,
    node_id: BrokerId,
    endpoints: Sequence[Endpoint],
    *,
    within_s: float,
) -> None:
    """CannotRun where another node has an address of ours for so long: a dead one would have been fenced by then."""
    give_up = env.clock.steady() + within_s
    while (found := taken_by(image, node_id, endpoints)) is not None:
        if env.clock.steady() >= give_up:
            other, endpoint = found
            raise CannotRun(
                f"{endpoint.host}:{endpoint.port} ({endpoint.listener}) is where node {other} tells clients to "
                f"find it, and it is alive: node {node_id} can't be there too. Set advertised.listeners to an "
                "address that leads to this node alone.",
                EXIT_IDENTITY,
            )
        await env.clock.sleep(FREE_CHECK_S)
