"""Which names a topic may have, in the words Kafka refuses the others with (its `Topic.validate`)."""

import re
from collections.abc import Iterable
from typing import Final

TOPIC_NAME_LENGTH_MAX: Final = 249  # Kafka's: a folder is called after it, with -PARTITION behind
# Kafka's own metadata log. It is no topic here, and none may be made of that name (KAFKA-17300).
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
# Every entry of the metadata log names the version that it expects under this word (`brokers.touched_by_image_expected`), and a
# batch that touches one name twice is refused by all nodes, those of older builds too: no other rule may be applied to it.
RESERVED_TOPICS: Final = frozenset({"image"})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z", re.ASCII)


def why_topic_name_invalid(name: str) -> str | None:
    """Kafka's sentence, or None when the name is fine."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length"
            f" {TOPIC_NAME_LENGTH_MAX}"
        )
    if not _LEGAL.match(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than"
            " ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def why_topic_not_made(name: str) -> str | None:
    """The same for one that is not there. A build before the word was one may have made a topic of it, which is fine."""
    if name in RESERVED_TOPICS:
        return (
            f"Topic name is invalid: '{name}' is a word of the metadata log itself. Choose another one,"
            f" such as '{name}s'."
        )
    return why_topic_name_invalid(name)


def may_collide(name: str) -> bool:
    """`a.b` and `a_b` are one name to metrics, which turn dots into underscores."""
    return "." in name or "_" in name


def unified(name: str) -> str:
    return name.replace(".", "_")


def colliding_names(names: Iterable[str]) -> dict[str, str]:
    """Unified name -> the topic that has it, of those that may collide."""
    return {unified(name): name for name in sorted(names, reverse=True) if may_collide(name)}
