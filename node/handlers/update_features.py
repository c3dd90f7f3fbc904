"""UpdateFeatures, api key 57, versions 0-2.

Does      has the controller change the levels of features, all that are named or none.
Versions  1 names the kind of change and may only validate; 2 answers one error for all.
Refuses   INVALID_UPDATE_VERSION, in Kafka's words.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.commands import FeatureUpdate, UpdateFeatures
from fencepost.cluster.controller.features_policy import UpgradeType

from ..controller_calls import ask_controller, trouble_code
from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    command = UpdateFeatures(
        updates=tuple(
            FeatureUpdate(
                name=each.feature, level=each.max_version_level, upgrade_type=_upgrade_type(each)
            )
            for each in request.feature_updates
        ),
        validate_only=getattr(request, "validate_only", False),
    )
    result, trouble = await ask_controller(ctx.services, command, request.timeout)
    if result is None:
        return {"error_code": trouble_code(trouble), "error_message": str(trouble), "results": []}
    done = result.error_code is ErrorCode.none
    return {
        "error_code": result.error_code,
        "error_message": result.error_message,
        # As Kafka: none where it failed, and an odd word where it did not.
        "results": [
            {"feature": each.feature, "error_code": ErrorCode.none, "error_message": "NONE"}
            for each in request.feature_updates
            if done
        ],
    }


def _upgrade_type(update: Any) -> int:
    """Version 0 knows only whether it may go down; upward is upward then."""
    if hasattr(update, "upgrade_type"):
        return int(update.upgrade_type)
    return UpgradeType.UPGRADE
