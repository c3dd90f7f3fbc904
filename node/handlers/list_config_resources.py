"""ListConfigResources, api key 74, versions 0-1.

Does      names everything that has configs: topics, brokers, groups, client metrics.
Versions  0 client metrics only; 1 the types asked for, all of them when none is named.
Refuses   UNSUPPORTED_VERSION for a type that is not listed here.
"""

from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.image import ConfigType

from ..services import HandlerContext, Services

_LISTED: Final = (
    ConfigType.TOPIC,
    ConfigType.BROKER,
    ConfigType.BROKER_LOGGER,
    ConfigType.CLIENT_METRICS,
    ConfigType.GROUP,
)


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    if ctx.api_version == 0:
        wanted = [int(ConfigType.CLIENT_METRICS)]
    else:
        wanted = sorted(set(request.resource_types)) or [int(each) for each in _LISTED]
    if any(each not in _LISTED for each in wanted):
        return {"error_code": ErrorCode.unsupported_version, "config_resources": []}
    return {
        "error_code": ErrorCode.none,
        "config_resources": [
            {"resource_name": name, "resource_type": each}
            for each in wanted
            for name in _names(ctx.services, ConfigType(each))
        ],
    }


def _names(services: Services, kind: ConfigType) -> list[str]:
    match kind:
        case ConfigType.TOPIC:
            return sorted(services.image.topics)
        case ConfigType.BROKER | ConfigType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in sorted(services.image.brokers)]
        case _:
            return sorted(name for type_, name in services.image.configs if type_ is kind)
