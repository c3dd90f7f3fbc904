"""IncrementalAlterConfigs, api key 44, versions 0-1.

Does      sets, unsets, appends to or subtracts from single settings of topics, brokers and groups.
Versions  1 flexible.
Refuses   INVALID_CONFIG, INVALID_REQUEST and what else the controller says, resource by resource.
"""

from typing import Any

from ..config_changes import alter
from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await alter(ctx.services, request, replace_all=False)
