"""Consume, transform, produce, exactly once: outputs and positions in one transaction, whatever happens in between.

    loop = TransactionalLoop(
        bootstrap=…, topics=["orders"], group_id="billing",
        transform=lambda order: [Output("invoices", value=bill(order.value()))],
    )
    loop.run()                       # until loop.stop(), from a signal handler or another thread

INVARIANT  after anything but a commit that is known to have succeeded, positions are those that the cluster has.
PREVENTS   a message that is processed twice, or never, because the outcome of a commit was guessed at.
PROVED BY  tests/clients/test_transactional_loop.py::test_whatever_fails_each_input_shows_exactly_once,
           tests/clients/test_transactional_outcomes.py::test_a_commit_without_an_answer_is_neither_done_again_nor_left_out

An error that asks for an abort has the transaction aborted and its messages read again. A fatal one (fenced, or
librdkafka lost count) has the producer made anew. A rebalance in the middle is refused by the group's coordinator,
because positions are sent with the group's generation (KIP-447), and that asks for an abort. A call that librdkafka
does not come back from (`bounded.py`) is left behind with its producer, which its successor fences. An output that no
broker takes (`outputs.py`) is raised after the abort, as what a transformation raises is.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from .bounded import CallHangs, bounded
from .going_back import Onward
from .identity import POLL_S, retrying
from .inputs import CHECKED, MAY_NOT, Unread, refusal, what_is_missing
from .loop_limits import FENCED, MAX_POLL, TIMEOUT, LoopLimits
from .outputs import Output, Outputs
from .telling_producer import TellingProducer

MESSAGES_MAX: Final = 500  # in one transaction
WAIT_S: Final = 0.1  # for the first message of one
CALL_S: Final = 5.0
HANGS_S: Final = 2 * CALL_S  # a call that has not come back by then never will
LEAVES_S: Final = 30.0  # the same, of leaving the group
RETRY_S: Final = 60.0
# A process that is killed keeps readers from going past its transaction for as long.
TRANSACTION_TIMEOUT_MS: Final = 10_000
MAX_POLL_MS: Final = 300_000  # librdkafka's and Java's

log = logging.getLogger("fencepost.clients")


class TransformRaised(Exception):
    """A Kafka client of the transformation's own failed: no error of this loop's transaction."""

    def __init__(self, trouble: KafkaException) -> None:
        super().__init__(trouble)
        self.trouble = trouble


class TransactionalLoop:
    """Its own consumer and producer, for one thread (`stop` may come from any)."""

    def __init__(
        self,
        *,
        bootstrap: str,
        topics: Sequence[str],
        group_id: str,
        transform: Callable[[Message], Iterable[Output]],
        transactional_id: str | None = None,
        messages_max: int = MESSAGES_MAX,
        wait_s: float = WAIT_S,
        consumer_config: Mapping[str, Any] | None = None,
        producer_config: Mapping[str, Any] | None = None,
    ) -> None:
        """With a `transactional_id` of its own that it keeps over restarts, a new process ends at once what its
        predecessor left open; without one, readers wait for ten seconds."""
        unique = f"{group_id}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._topics, self._group_id = list(topics), group_id
        self._transform = transform
        self._messages_max = messages_max
        self._wait_s = wait_s
        self._stopping = threading.Event()
        self._producer_config = {
            "bootstrap.servers": bootstrap,
            TIMEOUT: TRANSACTION_TIMEOUT_MS,
            **(producer_config or {}),
            "transactional.id": transactional_id or unique,
        }
        self._may_shrink_batches = "batch.size" not in self._producer_config
        self._producer: Producer | None = None
        reads = {
            **CHECKED,
            "bootstrap.servers": bootstrap,
            "auto.offset.reset": "earliest",
            **(consumer_config or {}),
            "group.id": group_id,
            # Positions are the transactions'.
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        self._limits = LoopLimits(
            transactional_id or unique,
            int(self._producer_config[TIMEOUT]),
            int(reads.setdefault(MAX_POLL, MAX_POLL_MS)),
            self._stopping,
        )
        self._consumer = Consumer(reads)
        self._onward = Onward(reads, self._committed)
        self._consumer.subscribe(self._topics, on_revoke=self._onward.is_taken)
        self._unread = Unread()
        # Read, and neither committed nor to be read again yet: what `step` raises may leave some.
        self._unsettled: list[Message] = []
        self.committed = 0  # messages, in transactions that were committed
        self.aborted = 0  # transactions, with those that were fenced

    def run(self) -> None:
        """Until `stop`. Raises what the transformation raises, and what no retry helps against: `OutputRefused` for an output
        that no broker takes, `InputRefused` for what may not be read, `TransactionTooSlow` for a message that takes too long.
        Brokers that are away for over a minute end it, too (`KafkaException`): started again it goes on behind what was committed."""
        try:
            while not self._stopping.is_set():
                self.step()
        finally:
            self.close()

    def stop(self) -> None:
        """After the transaction that is under way."""
        self._stopping.set()

    def close(self) -> None:
        """Leave the group, so that others go on at once."""
        try:
            bounded(self._consumer.close, LEAVES_S, "leaving the group")
        except CallHangs as trouble:
            log.warning("%s; others go on when the session of this member is over", trouble)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def step(self) -> int:
        """One transaction, if there is anything to read; how many messages it committed. After it has raised it may be called
        again: what had been read is read again."""
        producer = self._producer or self._new_producer()
        if self._unsettled:
            self._rewind(self._unsettled)
        messages = self._read()
        if not messages:
            producer.poll(0)
            return 0
        is_settled = False
        outputs = Outputs(self._producer_config)
        try:
            done = self._process(producer, messages, outputs)
            is_settled = True
        except TransformRaised as theirs:
            raise theirs.trouble from theirs.trouble.__cause__
        except KafkaException as trouble:
            self._limits.worked()
            error = self._recover(producer, trouble.args[0])
            too_slow = self._limits.failed(error, messages[0])
            refused = None if self._shrinks_batches(outputs) else outputs.refusal(error)
            self._rewind(messages)
            is_settled = True
            ends = refused or too_slow
            if ends is not None:
                raise ends from trouble
            return 0
        except CallHangs as trouble:
            log.warning("transaction: %s; another producer takes over", trouble)
            self.aborted += 1
            self._producer = None
            self._rewind(messages)
            is_settled = True
            return 0
        finally:
            # The transformation raised, or its output was refused: its message is read again, by us or by others.
            if not is_settled:
                self._abort(producer)
                self._rewind(messages)
        self._limits.committed()
        self.committed += done
        self._seek(_firsts(messages[done:]))
        self._unsettled = []
        return done

    # -- one transaction -------------------------------------------------------------------------

    def _new_producer(self) -> Producer:
        """Fences the one before, and has its open transaction aborted."""
        producer = TellingProducer(self._producer_config)
        retrying(lambda: producer.init_transactions(CALL_S), RETRY_S)
        self._producer = producer
        return producer

    def _read(self) -> list[Message]:
        found = []
        refused: KafkaError | None = None
        for message in self._consumer.consume(self._messages_max, self._wait_s):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.fatal() or error.code() in MAY_NOT or self._unread.hears(message):
                refused = refused or error
            elif error.code() != KafkaError._PARTITION_EOF:
                log.warning("reading: %s%s", error, what_is_missing(error))
        self._unsettled = found
        if refused is not None:
            self._rewind(found)
            if refused.fatal():
                raise KafkaException(refused)
            raise refusal(refused, self._topics, self._group_id)
        if not found:
            return found
        # A rebalance inside of `consume` may have taken away what was read before it.
        ours = {(each.topic, each.partition) for each in self._consumer.assignment()}
        found, again = self._onward.take(
            each for each in found if (each.topic(), each.partition()) in ours
        )
        self._seek(again)
        self._unsettled = found
        return found

    def _process(self, producer: Producer, messages: Sequence[Message], outputs: Outputs) -> int:
        """How many it committed: as many as there was time for."""
        self._limits.begin()
        producer.begin_transaction()
        positions: dict[tuple[str, int], int] = {}
        done = 0
        for message in messages:
            if not self._limits.takes_another():
                break
            for output in self._transformed(message):
                outputs.produce(producer, output)
            positions[message.topic(), message.partition()] = message.offset() + 1
            done += 1
        self._limits.worked()
        offsets = [TopicPartition(*place, positions[place]) for place in positions]
        group = self._consumer.consumer_group_metadata()
        retrying(lambda: _send_offsets(producer, offsets, group), RETRY_S)
        retrying(lambda: producer.commit_transaction(CALL_S), RETRY_S)
        return done

    def _transformed(self, message: Message) -> Iterator[Output]:
        try:
            yield from self._transform(message)
        except KafkaException as trouble:
            raise TransformRaised(trouble) from None

    # -- when it fails ---------------------------------------------------------------------------

    def _recover(self, producer: Producer, error: KafkaError) -> KafkaError:
        """Why it failed, as far as librdkafka knows."""
        # `produce` says no more than _FATAL of a producer that is of no use any more; any further call says why.
        if error.code() == KafkaError._FATAL:
            error = _why_fatal(producer, error)
        log.warning("transaction: %s", error)
        # `produce` says no more than _STATE of a transaction that has failed meanwhile; the abort tells why it did.
        if error.txn_requires_abort() or error.code() == KafkaError._STATE:
            self._abort(producer)
        else:
            # Fenced, or lost count, or the outcome can't be told: the next incarnation's first request ends it.
            self._producer = None
            self.aborted += error.code() in FENCED
        return error

    def _shrinks_batches(self, outputs: Outputs) -> bool:
        """Whether the outputs that were refused are taken in smaller batches. What the user has said stays."""
        fits = outputs.batch_that_fits() if self._may_shrink_batches else None
        if fits is None:
            return False
        log.warning("outputs go on with batch.size=%d: their topic takes no larger batches", fits)
        self._producer_config["batch.size"] = fits
        self._producer = None
        return True

    def _abort(self, producer: Producer) -> None:
        self.aborted += 1
        try:
            retrying(lambda: producer.abort_transaction(CALL_S), RETRY_S)
        except KafkaException as trouble:
            log.warning("abort: %s", trouble)
            self._producer = None

    def _rewind(self, messages: Sequence[Message]) -> None:
        """Read on from where the cluster says that this group is."""
        if self._producer is None:
            # A commit whose answer was lost is decided when the next incarnation has begun, and not before.
            self._new_producer()
        firsts = _firsts(messages)
        if not firsts:
            return
        for at in self._committed([TopicPartition(*place) for place in firsts]):
            place = at.topic, at.partition
            # What was read first is behind all that this loop has committed: a coordinator that tells less was deposed, or nothing
            # was ever committed there.
            firsts[place] = max(firsts[place], at.offset)
        self._seek(firsts)
        self._unsettled = []

    def _seek(self, to: Mapping[tuple[str, int], int]) -> None:
        for place, offset in to.items():
            try:
                self._consumer.seek(TopicPartition(*place, offset))
            except KafkaException as gone:
                log.info("%s-%s is another member's now: %s", *place, gone)
            else:
                self._onward.is_sent(place, offset)

    def _committed(self, wanted: list[TopicPartition]) -> list[TopicPartition]:
        """Again after any error but a fatal one, also of one partition alone: it must not pass for "nothing committed".
        Librdkafka does not say here what may help, and gives up when the group's coordinator moves."""
        deadline = time.monotonic() + RETRY_S
        while True:
            try:
                found: list[TopicPartition] = self._consumer.committed(wanted, CALL_S)
                errors = [each.error for each in found if each.error is not None]
            except KafkaException as trouble:
                errors = [trouble.args[0]]
            if not errors:
                return found
            if errors[0].fatal() or time.monotonic() > deadline:
                raise KafkaException(errors[0])
            log.info("committed positions: %s", errors[0])
            time.sleep(POLL_S)


def _send_offsets(producer: Producer, offsets: list[TopicPartition], group: Any) -> None:
    bounded(
        lambda: producer.send_offsets_to_transaction(offsets, group, CALL_S),
        HANGS_S,
        "send_offsets_to_transaction",
    )


def _firsts(messages: Iterable[Message]) -> dict[tuple[str, int], int]:
    """The first offset of each partition."""
    firsts: dict[tuple[str, int], int] = {}
    for message in messages:
        firsts.setdefault((message.topic(), message.partition()), message.offset())
    return firsts


def _why_fatal(producer: Producer, error: KafkaError) -> KafkaError:
    try:
        producer.abort_transaction(CALL_S)
    except KafkaException as why:
        return why.args[0]
    return error
