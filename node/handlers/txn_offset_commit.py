"""TxnOffsetCommit, api key 28, versions 0-5.

Does      stores a group's positions as part of a transaction: they count when it is committed. Asks the transaction's
          coordinator first whether it is open; from version 5 on also makes the positions part of it (KIP-890).
Versions  2 leader epochs; 3 flexible, and who commits in the group (KIP-447); 4 TRANSACTION_ABORTABLE; 5 clients that never
          ask to add offsets.
Refuses   UNKNOWN_TOPIC_OR_PARTITION, INVALID_GROUP_ID, NOT_COORDINATOR, what the transaction's coordinator says of the
          producer, then what the group says of its member.
"""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.runtime.moments import Began

from ..services import HandlerContext

E = ErrorCode
ABORTABLE_SINCE: Final = 4  # TRANSACTION_ABORTABLE
ADDS_ITSELF_SINCE: Final = 5
# Before, a client can't say of which generation of its group it is (aiokafka has never learnt to), and is fenced by what
# is known here. Version 2 can't either: those are Java's producers from 2.0 to 2.4, one for each partition that is read,
# which fence each other by transactional id and keep transactions open while others join.
FENCED_ELSEWHERE_SINCE: Final = 2
# The client asked the group's coordinator. That the other one can't be reached is not for it to mend: it tries again.
_IN_OTHER_WORDS: Final[Mapping[ErrorCode, ErrorCode]] = {
    E.producer_fenced: E.invalid_producer_epoch,
    E.concurrent_transactions: E.coordinator_not_available,
    E.coordinator_load_in_progress: E.coordinator_not_available,
    E.network_exception: E.coordinator_not_available,
    E.not_coordinator: E.coordinator_not_available,
    E.not_enough_replicas: E.coordinator_not_available,
    E.request_timed_out: E.coordinator_not_available,
}


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    heard = ctx.services.positions_heard_over
    who = request.producer_id, request.producer_epoch

    async def verify(place: TopicPartition) -> ErrorCode:
        if heard.is_late(who, ctx.connection):
            return E.not_coordinator  # nobody reads this
        said = await ctx.services.verifier.verify_producer(
            place,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            add=ctx.api_version >= ADDS_ITSELF_SINCE,
        )
        if heard.is_given_up(who, ctx.connection):
            return E.not_coordinator  # nor this
        if said is E.transaction_abortable and ctx.api_version < ABORTABLE_SINCE:
            return E.invalid_txn_state
        return _IN_OTHER_WORDS.get(said, said)

    async def began() -> Began | ErrorCode:
        started = await ctx.services.transaction_starts.of(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
        return E.not_coordinator if heard.is_given_up(who, ctx.connection) else started

    return await ctx.services.groups.txn_offset_commit(
        ctx,
        request,
        verify=verify,
        began=None if ctx.api_version >= FENCED_ELSEWHERE_SINCE else began,
    )
