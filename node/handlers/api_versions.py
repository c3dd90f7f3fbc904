"""ApiVersions, api key 18, versions 0-4.

Does      tells a client which APIs and versions this door serves, from the registry that dispatches them.
Versions  3 flexible, and names the client; 3 features, and at which level the metadata is written; 4 also those that begin at level 0; a version we don't have is answered in v0 (KIP-511).
Refuses   UNSUPPORTED_VERSION, INVALID_REQUEST for a client name or version that Kafka would not take.
"""

import re
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.features_policy import levels_now

from ..services import HandlerContext

# ApiVersionsRequest.isValid: letters, digits, dots and dashes, beginning and ending with a letter or digit.
# Older clients can't read a range that begins at 0 (KAFKA-17492).
LEVEL_0_SINCE = 4
_CLIENT_WORD = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    services = ctx.services
    if ctx.client_id in services.address_checks:
        services.address_checks[ctx.client_id] = (
            True  # this node asks whether its address leads here
        )
    error = ErrorCode.none
    if ctx.unsupported:
        error = ErrorCode.unsupported_version
    elif ctx.api_version >= 3 and not (
        _CLIENT_WORD.match(request.client_software_name)
        and _CLIENT_WORD.match(request.client_software_version)
    ):
        error = ErrorCode.invalid_request
    elif ctx.api_version >= 3:
        ctx.origin.software[:] = request.client_software_name, request.client_software_version
    refused = error is ErrorCode.invalid_request
    features = levels_now(services.image)
    return {
        "error_code": error,
        "api_keys": []
        if refused
        else [
            {"api_key": api.key, "min_version": api.advertised_min, "max_version": api.max_version}
            for api in services.apis
        ],
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in sorted(services.supported_features.items())
            if low > 0 or ctx.api_version >= LEVEL_0_SINCE
        ],
        "finalized_features_epoch": services.image.version,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in sorted(features.items())
        ],
    }
