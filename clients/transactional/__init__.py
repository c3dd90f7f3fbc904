"""What librdkafka does not have: the exactly-once loop, half messages with check-back, transaction groups.

pip install '.[clients]', in the checkout
from fencepost.clients.transactional import HalfMessageProducer, TransactionalLoop, TransactionGroup
"""

from .admin_api import AdminApi, AdminRefused, AdminUnreachable
from .checker import Checker, Verdict
from .groups import (
    DecidedBefore,
    Decision,
    GroupMember,
    MembersLeftOut,
    MemberWrote,
    TransactionGroup,
)
from .half_messages import (
    HalfMessage,
    HalfMessageInDoubt,
    HalfMessageIsOver,
    HalfMessageProducer,
    HalfOutcome,
)
from .inputs import InputRefused
from .loop import TransactionalLoop
from .loop_limits import TransactionTooSlow
from .outputs import Output
from .refused_records import OutputRefused

__all__ = [
    "AdminApi",
    "AdminRefused",
    "AdminUnreachable",
    "Checker",
    "DecidedBefore",
    "Decision",
    "GroupMember",
    "HalfMessage",
    "HalfMessageInDoubt",
    "HalfMessageIsOver",
    "HalfMessageProducer",
    "HalfOutcome",
    "InputRefused",
    "MemberWrote",
    "MembersLeftOut",
    "Output",
    "OutputRefused",
    "TransactionGroup",
    "TransactionTooSlow",
    "TransactionalLoop",
    "Verdict",
]
