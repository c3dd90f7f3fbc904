"""Asking the controller on behalf of a client: a deadline, and what a failure is called on the wire."""

import asyncio
from datetime import timedelta
from typing import TypeVar

from fencepost.cluster.base.errors import DiskFull, ErrorCode, Outcome, Trouble
from fencepost.cluster.controller.commands import ControllerCommand
from fencepost.cluster.controller.gate import TooLarge

from .services import Services

R = TypeVar("R")


async def ask_controller(
    services: Services, command: ControllerCommand[R], within: timedelta
) -> tuple[R, None] | tuple[None, Trouble]:
    """The controller's answer, or the trouble in getting one within the client's time."""
    try:
        async with asyncio.timeout(max(within.total_seconds(), 0)):
            return await services.controller.execute(command), None
    except TimeoutError:
        return None, Trouble("The controller did not answer in time; the change may still happen.")
    except Trouble as trouble:
        return None, trouble


def trouble_code(trouble: Trouble | None) -> ErrorCode:
    """REQUEST_TIMED_OUT leaves open whether it happened; NOT_CONTROLLER says that it did not.

    Clients look for another controller then. Of a full disk they shall hear at once.
    """
    if isinstance(trouble, TooLarge):
        return ErrorCode.policy_violation
    if isinstance(trouble, DiskFull):
        return ErrorCode.kafka_storage_error
    if trouble is not None and trouble.outcome is Outcome.REFUSED:
        return ErrorCode.not_controller
    return ErrorCode.request_timed_out
