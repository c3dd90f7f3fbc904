"""What a cluster's refusals and its silence are called, in Kafka's words, and what a person can do next.

INVARIANT  an error of Kafka's is told by the name that Kafka's own documentation has, whatever librdkafka calls it.
PREVENTS   a person who looks for UNKNOWN_TOPIC_OR_PART, and finds nothing.
PROVED BY  tests/node/test_cli_refusals.py::test_an_error_of_kafkas_has_kafkas_name
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..few import few
from .checked import Failed
from .children import ADMIN_PORTS_APART
from .kafka_client import KafkaError
from .printable import quoted

# Where librdkafka's name is another one than Kafka's (org.apache.kafka.common.protocol.Errors).
KAFKAS_NAMES: Final[Mapping[int, str]] = {
    KafkaError.UNKNOWN: "UNKNOWN_SERVER_ERROR",
    KafkaError.INVALID_MSG: "CORRUPT_MESSAGE",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "UNKNOWN_TOPIC_OR_PARTITION",
    KafkaError.INVALID_MSG_SIZE: "INVALID_FETCH_SIZE",
    KafkaError.NOT_LEADER_FOR_PARTITION: "NOT_LEADER_OR_FOLLOWER",
    KafkaError.MSG_SIZE_TOO_LARGE: "MESSAGE_TOO_LARGE",
    KafkaError.STALE_CTRL_EPOCH: "STALE_CONTROLLER_EPOCH",
    KafkaError.TOPIC_EXCEPTION: "INVALID_TOPIC_EXCEPTION",
}

# librdkafka's and Kafka's codes -> what a person can do next.
_NEXT_STEP: Final[Mapping[int, str]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "`fencepost topic list` shows the topics there are.",
    KafkaError._UNKNOWN_TOPIC: "`fencepost topic list` shows the topics there are.",
    KafkaError._UNKNOWN_PARTITION: "`fencepost topic describe TOPIC` shows its partitions.",
    KafkaError.TOPIC_ALREADY_EXISTS: "`fencepost topic describe TOPIC` shows it as it is.",
    KafkaError.GROUP_ID_NOT_FOUND: "`fencepost group list` shows the groups there are.",
    KafkaError.NON_EMPTY_GROUP: "Stop its members first; `fencepost group describe GROUP` names them.",
    KafkaError.UNKNOWN_MEMBER_ID: "While a group has members only they move its positions; stop them "
    "first: `fencepost group describe GROUP` names them.",
    KafkaError.INVALID_REPLICATION_FACTOR: "It can't be larger than the number of brokers.",
    KafkaError.INVALID_PARTITIONS: "Name a total of 1 or more, and more than there are now.",
    KafkaError.TOPIC_EXCEPTION: "A name has 1 to 249 of a-z, A-Z, 0-9, `.`, `_` and `-`, and no client writes to a topic of "
    "the cluster's own (`__…`).",
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise the topic's max.message.bytes: "
    "`fencepost config set --topic TOPIC max.message.bytes=…`.",
    KafkaError.LEADER_NOT_AVAILABLE: "`fencepost partition list --offline` says why, and what to do.",
    KafkaError.OFFSET_NOT_AVAILABLE: "`fencepost node voters` says whether anybody is there to decide.",
    KafkaError._MSG_TIMED_OUT: "The cluster did not acknowledge in time; the record may still be there.",
}

# What a node says, as Kafka does, of a setting that it reads at its start only.
AT_THE_START: Final = "Cannot update these configs dynamically"
# "HTTP", which an admin door answers with, taken for the length of an answer.
HTTP_AS_A_SIZE: Final = f"Invalid response size {int.from_bytes(b'HTTP')} "


def nobody_answers(bootstrap: str, why: object) -> Failed:
    """One node that is down is no cluster that is: who knows the others' addresses may not know that they can be said."""
    return Failed(
        f"no broker answers at {bootstrap} ({why}). If other nodes of the cluster live, name them too:"
        " `--bootstrap A:PORT,B:PORT,C:PORT`, or $FENCEPOST_BOOTSTRAP. If none runs, start one with `fencepost dev`."
    )


def why_silent(said: Sequence[Any], last: KafkaError) -> str:
    """Of all that librdkafka told while it looked for a broker; `last` is what the call itself failed with."""
    told = [each.str() for each in said if ":" in each.str()]
    for each in told:
        if HTTP_AS_A_SIZE in each:
            return (
                f'{each.partition("/")[0]} begins its answer with "HTTP": is this an admin door (admin.listener)? Clients are'
                f" to go to listeners, which `fencepost dev` has {ADMIN_PORTS_APART} ports below"
            )
    return told[0] if told else _text(last)


def explain(what: str, error: KafkaError, **names: str) -> str:
    """`names`: what a next step calls TOPIC or GROUP, where that is known."""
    step = _NEXT_STEP.get(error.code(), "")
    for word, name in names.items():
        step = step.replace(word.upper(), quoted(name))
    return f"{what}: {_text(error)}{' ' + step if step else ''}"


def _text(error: KafkaError) -> str:
    text = error.str().removeprefix("Broker: ").removeprefix("Local: ")
    name = KAFKAS_NAMES.get(error.code()) or error.name().removeprefix("_")
    return f"{name}: {text}".rstrip(".") + "."


def of_the_start(refused: str, names: Sequence[str]) -> str:
    """The next step where one of these settings can't be changed while a node runs; nothing behind other refusals."""
    told = re.findall(r"[\w.-]+", refused) if AT_THE_START in refused else []
    at_start = [name for name in names if name in told]
    if not at_start:
        return ""
    variables = few([f"${variable_of(name)}" for name in at_start])
    return (
        f" A node reads that when it starts: put it into each node's file (or {variables}), and restart them, one after the"
        " other."
    )


def variable_of(setting: str) -> str:
    return f"FENCEPOST_{setting.upper().replace('.', '_')}"
