"""What AlterConfigs and IncrementalAlterConfigs share: the same command, one of them by replacing everything."""

from datetime import timedelta
from typing import Any, Final

from fencepost.cluster.controller.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ResourceChange,
)

from .controller_calls import ask_controller, trouble_code
from .services import Services

# The requests have no timeout of their own.
_TIMEOUT: Final = timedelta(seconds=30)


async def alter(services: Services, request: Any, *, replace_all: bool) -> dict[str, Any]:
    command = AlterConfigs(
        resources=tuple(
            ResourceChange(
                resource_type=resource.resource_type,
                name=resource.resource_name,
                changes=tuple(
                    ConfigChange(
                        name=each.name,
                        operation=getattr(each, "config_operation", ConfigOperation.SET),
                        value=each.value,
                    )
                    for each in resource.configs
                ),
            )
            for resource in request.resources
        ),
        validate_only=request.validate_only,
        replace_all=replace_all,
    )
    results, trouble = await ask_controller(services, command, _TIMEOUT)
    if results is None:
        error = {"error_code": trouble_code(trouble), "error_message": str(trouble)}
        return {
            "responses": [
                {
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                    **error,
                }
                for resource in request.resources
            ]
        }
    return {
        "responses": [
            {
                "error_code": result.error_code,
                "error_message": result.error_message,
                "resource_type": result.resource_type,
                "resource_name": result.name,
            }
            for result in results
        ]
    }
