"""OffsetFetch, api key 9, versions 1-10.

Does      reads a group's positions.
Versions  7 can require stable ones; 8 several groups; 9 member epochs; 10 topic ids.
Refuses   what the group coordinator says (`txn/groups/service.py`).

A group that is asked the same more than once is asked once: all its positions may be megabytes, and 5 bytes ask for
them.
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Final

from ..services import HandlerContext

SEVERAL_SINCE: Final = 8


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    if ctx.api_version >= SEVERAL_SINCE:
        groups = {_question(each): each for each in request.groups}
        request = replace(request, groups=tuple(groups.values()))
    return await ctx.services.groups.offset_fetch(ctx, request)


def _question(group: Any) -> Hashable:
    """Not whose: with a member's name for each, one group would be asked as often as there are names."""
    return group.group_id, group.topics
