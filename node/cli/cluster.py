"""What the commands for people share: how they reach a cluster, and what a failure is called."""

import argparse
import difflib
import os
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from fencepost.cluster.base.shown import printable

from .checked import CLIENT_PORT, Failed, NotUnderstood, address
from .full_output import written_whole
from .kafka_client import (
    AdminClient,
    KafkaError,
    KafkaException,
    OffsetSpec,
    TopicPartition,
    confluent_kafka,
)
from .output import began_json, has_json, show_json, show_line
from .printable import json_text
from .refusals import explain, nobody_answers, why_silent

BOOTSTRAP: Final = f"127.0.0.1:{CLIENT_PORT}"
TIMEOUT_S: Final = 15.0
# How long to look for a broker before saying that there is none, and how often to look whether it is certain.
CONNECT_S: Final = 5.0
LOOK_S: Final = 0.2
# How long librdkafka may take for what is only read: then it gives what those have told that did answer. Whoever is
# gone while nobody leads the quorum has no successor to wait for.
READ_S, READ_OF_THE_LAST_S = 12.0, 5.0
_LATE: Final = (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
_UNTOLD: Final = -1001  # librdkafka's offset of a partition whose leader was not heard in time

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def add_cluster_arguments(
    parser: argparse.ArgumentParser, *, with_json: bool = True, again: bool = False
) -> None:
    """`again` behind a word whose parser has them too: what was said before that word stands."""
    parser.allow_abbrev = False  # `--a` is not the agreement of --accept-data-loss
    parser.add_argument(
        "--bootstrap",
        default=argparse.SUPPRESS if again else os.environ.get("FENCEPOST_BOOTSTRAP", BOOTSTRAP),
        metavar="HOST:PORT",
        help=f"where the cluster is: nodes of it, with commas between ($FENCEPOST_BOOTSTRAP, or {BOOTSTRAP})",
    )
    if with_json:
        parser.add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS if again else False,
            help="print JSON, for programs",
        )


def client_settings(
    arguments: argparse.Namespace, *, on_error: Callable[[Any], None] = lambda _: None
) -> dict[str, Any]:
    """`on_error` hears what librdkafka goes on trying; the call that fails is told apart from it."""
    return {
        "bootstrap.servers": arguments.bootstrap,
        "client.id": "fencepost-cli",
        "log_level": 0,
        "error_cb": on_error,
    }


def connect(arguments: argparse.Namespace) -> AdminClient:
    """An admin client that has reached a broker."""
    _check_bootstrap(arguments.bootstrap)
    said: list[Any] = []
    admin = AdminClient(client_settings(arguments, on_error=said.append))
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            admin.list_topics(topic="", timeout=LOOK_S)
        except KafkaException as failure:
            admin.poll(0)
            all_down = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in said)
            if all_down or time.monotonic() > deadline:
                why = why_silent(said, failure.args[0])
                raise nobody_answers(arguments.bootstrap, why) from failure
        else:
            return admin


def _check_bootstrap(text: str) -> None:
    for each in text.split(","):
        address(each, "--bootstrap", CLIENT_PORT)


def find_topic(admin: AdminClient, name: str) -> Any:
    """The topic's metadata. All topics are asked for: asking for one by name would create it."""
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    if name in topics:
        return topics[name]
    raise Failed(
        f"there is no topic {name}.{guess(name, topics)} `fencepost topic list` shows those there are."
    )


def seen(what: str, future: "Future[Any]") -> Any:
    """As `outcome`, of what is only read: nothing happens yet when nobody has answered."""
    try:
        return future.result(TIMEOUT_S)
    except (KafkaException, TimeoutError) as failure:
        error = failure.args[0] if isinstance(failure, KafkaException) else None
        if error is not None and error.code() not in _LATE:
            raise Failed(explain(what, error)) from failure
        raise Failed(
            f"{what}: no answer in time. Whoever is to tell is down, or waits for others that are:"
            " `fencepost node list` shows the nodes."
        ) from failure


def outcome(what: str, future: "Future[Any]", **names: str) -> Any:
    """The result of what changes something; Failed with the cluster's own sentence and the next step."""
    try:
        return future.result(TIMEOUT_S)
    except KafkaException as failure:
        raise Failed(explain(what, failure.args[0], **names)) from failure
    except TimeoutError as late:
        raise Failed(
            f"{what}: no answer in {TIMEOUT_S:.0f} s. It may happen yet; look before trying again. "
            "`fencepost node voters` says whether anybody is there to decide."
        ) from late


def offsets_at(
    admin: AdminClient,
    places: Iterable[tuple[str, int]],
    *specs: OffsetSpec,
    skips_failed: bool = False,
    wait_s: float = READ_S,
) -> list[dict[tuple[str, int], int]]:
    """Where each of some places in the log (its start, its end, a time) is, partition by partition. Asked at once."""
    names = list(places)
    if not names:
        return [{} for _ in specs]
    asked = [
        admin.list_offsets({TopicPartition(*each): spec for each in names}, request_timeout=wait_s)
        for spec in specs
    ]
    found: list[dict[tuple[str, int], int]] = []
    for futures in asked:
        told = {}
        for place, future in futures.items():
            try:
                told[place.topic, place.partition] = _offset(place, future)
            except Failed:
                if not skips_failed:
                    raise
        found.append(told)
    return found


def _offset(place: TopicPartition, future: "Future[Any]") -> int:
    name = f"{place.topic}-{place.partition}"
    offset = int(seen(f"can't read the offsets of {name}", future).offset)
    if offset == _UNTOLD:
        raise Failed(
            f"{name}: its leader does not answer, so where it begins and ends can't be told."
            " `fencepost node list` shows who is down."
        )
    return offset


def code_of_what_is_shown(arguments: argparse.Namespace) -> int:
    """How a command ends that shows what librdkafka is told, which knows of no quorum. Whether somebody leads comes first."""
    from .leading import look_for_leader  # slow to import, and they import this one
    from .wire import Wire

    with Wire(arguments.bootstrap) as wire:
        try:
            look_for_leader(wire)
        except Failed as untold:
            say(f"{untold} So nobody says whether what follows is so now.")
            return EXIT_FAILED
        return wire.code


def need_somebody_who_leads(arguments: argparse.Namespace) -> None:
    """Before what librdkafka would wait for in silence, and then not know whether it may happen yet."""
    from .leading import need_leader  # slow to import, and they import this one
    from .wire import Wire

    with Wire(arguments.bootstrap) as wire:
        need_leader(wire)


def wait_to_read_s(code: int) -> float:
    """`code`: of whether somebody leads."""
    return READ_S if code == EXIT_OK else READ_OF_THE_LAST_S


def settle(
    kind: str,
    futures: "Mapping[str, Future[Any]]",
    *,
    failed: str,
    done: str,
    as_json: bool,
    earlier: Iterable[str] = (),
) -> int:
    """Say what became of each; one that fails does not hide the others. `earlier` were done already."""
    rows: list[dict[str, Any]] = [{kind: name, "error": None} for name in earlier]
    for name, future in futures.items():
        error = None
        try:
            outcome(f"{failed} {name}", future, **{kind: name})
        except Failed as failure:
            error = str(failure)
        rows.append({kind: name, "error": error})
        if as_json:
            continue
        if error is None:
            show_line(f"{name} {done}")
        else:
            say(error)
    if as_json:
        show_json(rows)
    return EXIT_FAILED if any(row["error"] for row in rows) else EXIT_OK


def pairs(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE words; of one name that is said twice the last counts."""
    return dict(pair_list(words))


def pair_list(words: Sequence[str]) -> list[tuple[str, str]]:
    """NAME=VALUE words, all of them and in their order."""
    found = []
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise NotUnderstood(f"{word!r} is not NAME=VALUE")
        found.append((name, value))
    return found


def guess(name: str, known: Iterable[str]) -> str:
    """A sentence behind another, if one of those may have been meant."""
    close = _closest(name, known)
    return f" Did you mean {close}?" if close else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = _closest(name, known)
    return f"did you mean {close}?" if close else "no setting has a name like it."


def _closest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def goes_on() -> bool:
    """Whether the person at the terminal says yes; the end of the input is a no."""
    try:
        return input("Go on? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def say(sentence: str) -> None:
    """What is not the result itself goes to standard error: one line, whoever chose the names in it."""
    print(f"fencepost: {printable(sentence)}", file=sys.stderr)


def records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


Command = Callable[[argparse.Namespace], int]


def run_safely(command: Command, arguments: argparse.Namespace) -> int:
    """Run one command; a failure is one sentence on standard error, for programs also JSON, and exit code 1 or 2."""
    try:
        return written_whole(lambda: _run(command, arguments))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(command: Command, arguments: argparse.Namespace) -> int:
    began_json()
    failed = EXIT_FAILED
    try:
        return command(arguments)
    except Failed as failure:
        why = str(failure)
        failed = EXIT_USAGE if isinstance(failure, NotUnderstood) else EXIT_FAILED
    except KafkaException as failure:
        why = explain("the cluster refused", failure.args[0])
    except (ValueError, OverflowError, struct.error) as wrong:
        why = _unpackable(wrong)
    say(why)
    if getattr(arguments, "json", False) and not has_json():
        print(json_text({"error": why}))
    return failed


def _unpackable(wrong: ValueError | OverflowError | struct.error) -> str:
    """The last resort for a word that no check knows. It may be a bug of ours, too, which is not to be hidden."""
    if sys.flags.dev_mode:
        raise wrong
    where = traceback.extract_tb(wrong.__traceback__)[-1]
    return (
        f"a value of this command line can't be sent: {wrong} ({type(wrong).__name__}, {where.name} in"
        f" {os.path.basename(where.filename)}). If all of them are ordinary it is a bug: PYTHONDEVMODE=1 shows it whole."
    )


class Outage:
    """Says once, on standard error, that no broker answers while a command goes on trying, and when one does."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._is_out = False

    def heard(self, error: Any) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and not self._is_out:
            self._is_out = True
            say(f"no broker answers at {self._where} any more; still trying, Ctrl-C ends it")

    def over(self) -> None:
        if self._is_out:
            self._is_out = False
            say(f"{self._where} answers again")


__all__ = [
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_OK",
    "READ_S",
    "Failed",
    "Outage",
    "add_cluster_arguments",
    "client_settings",
    "code_of_what_is_shown",
    "connect",
    "did_you_mean",
    "find_topic",
    "goes_on",
    "guess",
]
__all__ += ["confluent_kafka", "explain", "offsets_at", "outcome", "pair_list", "pairs", "records"]
__all__ += ["need_somebody_who_leads", "nobody_answers"]
__all__ += ["run_safely", "say", "seen", "settle", "wait_to_read_s"]
