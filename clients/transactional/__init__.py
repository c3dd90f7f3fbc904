"""What librdkafka does not have: the exactly-once loop, half messages with check-back, transaction groups.

pip install fencepost[clients]
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
from .loop import TransactionalLoop
from .outputs import Output, OutputRefused

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
    "MemberWrote",
    "MembersLeftOut",
    "Output",
    "OutputRefused",
    "TransactionGroup",
    "TransactionalLoop",
    "Verdict",
]
