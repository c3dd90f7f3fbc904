"""AlterConfigs, api key 33, versions 0-2.

Does      replaces all settings of a resource by those given: the older way, which unsets what it does not name.
Versions  2 flexible.
Refuses   INVALID_CONFIG, INVALID_REQUEST and what else the controller says, resource by resource.
"""

from typing import Any

from ..config_changes import alter
from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await alter(ctx.services, request, replace_all=True)
