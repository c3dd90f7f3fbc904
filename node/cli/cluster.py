"""What the commands for people share: how they reach a cluster, and what a failure is called."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

try:
    import confluent_kafka
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
except ModuleNotFoundError:
    sys.exit(
        "fencepost: this command needs the Kafka client: pip install 'fencepost[clients]' "
        "(from a checkout: make install)"
    )

BOOTSTRAP: Final = "127.0.0.1:9092"
TIMEOUT_S: Final = 15.0
# How long to look for a broker before saying that there is none.
CONNECT_S: Final = 5.0

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

# librdkafka's and Kafka's codes -> what a person can do next.
_NEXT_STEP: Final[Mapping[int, str]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "`fencepost topic list` shows the topics there are.",
    KafkaError._UNKNOWN_TOPIC: "`fencepost topic list` shows the topics there are.",
    KafkaError._UNKNOWN_PARTITION: "`fencepost topic describe TOPIC` shows its partitions.",
    KafkaError.TOPIC_ALREADY_EXISTS: "`fencepost topic describe TOPIC` shows it as it is.",
    KafkaError.GROUP_ID_NOT_FOUND: "`fencepost group list` shows the groups there are.",
    KafkaError.NON_EMPTY_GROUP: "Stop its members first; `fencepost group describe GROUP` names them.",
    KafkaError.INVALID_REPLICATION_FACTOR: "It can't be larger than the number of brokers.",
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise the topic's max.message.bytes: "
    "`fencepost config set --topic TOPIC max.message.bytes=…`.",
    KafkaError._MSG_TIMED_OUT: "The cluster did not acknowledge in time; the record may still be there.",
}


class Failed(Exception):
    """What could not be done, in a sentence that a person can act on."""


def add_cluster_arguments(parser: argparse.ArgumentParser, *, with_json: bool = True) -> None:
    parser.add_argument(
        "--bootstrap",
        default=os.environ.get("FENCEPOST_BOOTSTRAP", BOOTSTRAP),
        metavar="HOST:PORT",
        help=f"where the cluster is ($FENCEPOST_BOOTSTRAP, or {BOOTSTRAP})",
    )
    if with_json:
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def client_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "bootstrap.servers": arguments.bootstrap,
        "client.id": "fencepost-cli",
        "log_level": 0,
        "error_cb": lambda _: None,  # said by the call that fails, with its context
    }


def connect(arguments: argparse.Namespace) -> AdminClient:
    """An admin client that has reached a broker."""
    admin = AdminClient(client_settings(arguments))
    try:
        admin.list_topics(topic="", timeout=CONNECT_S)
    except KafkaException as failure:
        raise Failed(
            f"no broker answers at {arguments.bootstrap} ({_text(failure.args[0])}). "
            "Start one with `fencepost dev`, or name another with --bootstrap."
        ) from failure
    return admin


def outcome(what: str, future: "Future[Any]") -> Any:
    """A future's result; Failed with the cluster's own sentence and the next step."""
    try:
        return future.result(TIMEOUT_S)
    except KafkaException as failure:
        raise Failed(explain(what, failure.args[0])) from failure


def explain(what: str, error: KafkaError) -> str:
    step = _NEXT_STEP.get(error.code(), "")
    return f"{what}: {_text(error)}{' ' + step if step else ''}"


def _text(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}".rstrip(".") + "."


def pairs(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE words."""
    found = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise Failed(f"{word!r} is not NAME=VALUE")
        found[name] = value
    return found


Command = Callable[[argparse.Namespace], int]


def run_safely(command: Command, arguments: argparse.Namespace) -> int:
    """Run one command; a failure is one sentence on standard error and exit code 1."""
    try:
        return command(arguments)
    except Failed as failure:
        print(f"fencepost: {failure}", file=sys.stderr)
    except KafkaException as failure:
        print(f"fencepost: {explain('the cluster refused', failure.args[0])}", file=sys.stderr)
    except BrokenPipeError:
        sys.stderr.close()  # `| head` went away: not a failure of ours
        return EXIT_OK
    except KeyboardInterrupt:
        return 130
    return EXIT_FAILED


__all__ = [
    "EXIT_FAILED",
    "EXIT_OK",
    "Failed",
    "add_cluster_arguments",
    "client_settings",
    "connect",
]
__all__ += ["confluent_kafka", "explain", "outcome", "pairs", "run_safely"]
