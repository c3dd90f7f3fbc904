"""FindCoordinator, api key 10, versions 0-6.

Does      tells which node coordinates a group or a transactional id.
Versions  1 key types; 4 several keys at once; 6 share groups.
Refuses   INVALID_REQUEST for a key type that is not served, COORDINATOR_NOT_AVAILABLE, INVALID_GROUP_ID.
"""

from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.image import Endpoint

from ..services import HandlerContext

_GROUP, _TRANSACTION = 0, 1
KEYS_A_TURN: Final = 200  # 3 ms


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    await ctx.services.settled()
    key_type = getattr(request, "key_type", _GROUP)
    several = ctx.api_version >= 4
    keys = request.coordinator_keys if several else (request.key,)
    found = []
    for number, key in enumerate(keys, 1):
        found.append(await _find(ctx, key_type, key))
        if number % KEYS_A_TURN == 0:
            await ctx.services.env.clock.sleep(0)
    if several:
        named = zip(keys, found, strict=True)
        return {"coordinators": [{"key": key, **each} for key, each in named]}
    return found[0]


async def _find(ctx: HandlerContext, key_type: int, key: str) -> dict[str, Any]:
    services = ctx.services
    if key_type == _GROUP:
        coordinator = await services.groups.coordinator_of(key)
    elif key_type == _TRANSACTION:
        coordinator = await services.transactions.coordinator_of(key)
    else:
        return _refusal(ErrorCode.invalid_request, f"Unknown coordinator type {key_type}.")
    if isinstance(coordinator, ErrorCode):
        return _refusal(coordinator, None)
    endpoint = services.endpoint_of(coordinator, ctx.origin.listener)
    if not isinstance(endpoint, Endpoint):
        return _refusal(ErrorCode.coordinator_not_available, None)
    return {
        "node_id": coordinator,
        "host": endpoint.host,
        "port": endpoint.port,
        "error_code": ErrorCode.none,
        "error_message": "",
    }


def _refusal(error: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": error,
        "error_message": message,
    }
