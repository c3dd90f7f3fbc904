"""DescribeCluster, api key 60, versions 0-2.

Does      tells an admin client the cluster's id, its controller and its brokers.
Versions  1 endpoint types (controllers have no door of their own here); 2 fenced brokers on request.
Refuses   UNSUPPORTED_ENDPOINT_TYPE, MISMATCHED_ENDPOINT_TYPE.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode

from ..services import HandlerContext

_BROKERS, _CONTROLLERS = 1, 2


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    services = ctx.services
    asked = getattr(request, "endpoint_type", _BROKERS)
    if asked != _BROKERS:
        known = asked == _CONTROLLERS
        return {
            "error_code": ErrorCode.mismatched_endpoint_type
            if known
            else ErrorCode.unsupported_endpoint_type,
            "error_message": "The request was sent to an endpoint of the wrong type."
            if known
            else f"Unsupported endpoint type {asked}",
            "endpoint_type": asked,
            "cluster_id": "",
            "brokers": [],
        }
    with_fenced = getattr(request, "include_fenced_brokers", False)
    brokers = []
    for broker_id in sorted(services.image.brokers):
        broker = services.image.brokers[broker_id]
        endpoint = broker.endpoint(ctx.origin.listener)
        if endpoint is None or (broker.fenced and not with_fenced):
            continue
        brokers.append(
            {
                "broker_id": broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": broker.rack,
                "is_fenced": broker.fenced,
            }
        )
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": services.image.cluster_id,
        "controller_id": services.random_broker_id(),
        "brokers": brokers,
    }
