"""Where a transactional id lives."""

from typing import Final

GROUP_SEPARATOR: Final = "::"


def transactional_partition_key(transactional_id: str) -> str:
    """What decides the partition: for a member of a transaction group (`GROUP::MEMBER`) the group, so that one batch
    of one log can end all members at once; for all others the id itself, as in Kafka."""
    group, _, member = transactional_id.partition(GROUP_SEPARATOR)
    return group if group and member else transactional_id
