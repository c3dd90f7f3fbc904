"""DescribeConfigs, api key 32, versions 1-4.

Does      shows the settings of topics, brokers and groups: what is in force, and who set it.
Versions  3 documentation and types on request; 4 flexible.
Refuses   INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST for a resource that is not here.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.describe import DescribedConfig, NotDescribed, describe

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return {"results": [_describe(ctx, request, resource) for resource in request.resources]}


def _describe(ctx: HandlerContext, request: Any, resource: Any) -> dict[str, Any]:
    services = ctx.services
    described = describe(
        services.image,
        services.config.text,
        services.config.node_id,
        resource.resource_type,
        resource.resource_name,
    )
    whose = {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
    if isinstance(described, NotDescribed):
        error = {"error_code": described.error_code, "error_message": described.message}
        return {**whose, **error, "configs": []}
    wanted = resource.configuration_keys
    with_documentation = getattr(request, "include_documentation", False)
    return {
        **whose,
        "error_code": ErrorCode.none,
        "error_message": None,
        "configs": [
            _config(each, request.include_synonyms, with_documentation)
            for each in described
            if not wanted or each.name in wanted
        ],
    }


def _config(
    config: DescribedConfig, with_synonyms: bool, with_documentation: bool
) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "read_only": config.read_only,
        "config_source": config.source,
        "is_sensitive": config.sensitive,
        "config_type": config.type,
        "documentation": config.documentation if with_documentation else None,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": each.source}
            for each in config.synonyms
        ]
        if with_synonyms
        else [],
    }
