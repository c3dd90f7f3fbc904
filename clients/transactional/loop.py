"""Consume, transform, produce, exactly once: outputs and positions in one transaction, whatever happens in between.

    loop = TransactionalLoop(
        bootstrap=…, topics=["orders"], group_id="billing",
        transform=lambda order: [Output("invoices", value=bill(order.value()))],
    )
    loop.run()                       # until loop.stop(), from a signal handler or another thread

INVARIANT  after anything but a commit that is known to have succeeded, positions are those that the cluster has.
PREVENTS   a message that is processed twice, or never, because the outcome of a commit was guessed at.
PROVED BY  tests/clients/test_transactional_loop.py::test_whatever_fails_each_input_shows_exactly_once

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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from .identity import POLL_S, retrying
from .outputs import Output, Outputs

MESSAGES_MAX: Final = 500  # in one transaction
WAIT_S: Final = 0.1  # for the first message of one
CALL_S: Final = 5.0
HANGS_S: Final = 2 * CALL_S  # a call that has not come back by then never will
RETRY_S: Final = 60.0
# A process that is killed keeps readers from going past its transaction for as long.
TRANSACTION_TIMEOUT_MS: Final = 10_000

log = logging.getLogger("fencepost.clients")


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
        self._transform = transform
        self._messages_max = messages_max
        self._wait_s = wait_s
        self._stopping = threading.Event()
        self._producer_config = {
            "bootstrap.servers": bootstrap,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            **(producer_config or {}),
            "transactional.id": transactional_id or unique,
        }
        self._producer: Producer | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "auto.offset.reset": "earliest",
                **(consumer_config or {}),
                "group.id": group_id,
                # Positions are the transactions'.
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe(list(topics))
        self.committed = 0  # messages, in transactions that were committed
        self.aborted = 0  # transactions

    def run(self) -> None:
        """Until `stop`. Raises what the transformation raises, and what no retry helps against: `OutputRefused` for an
        output that no broker takes."""
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
        self._consumer.close()

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
        """One transaction, if there is anything to read; how many messages it committed."""
        producer = self._producer or self._new_producer()
        messages = self._read()
        if not messages:
            producer.poll(0)
            return 0
        is_settled = False
        outputs = Outputs()
        try:
            self._process(producer, messages, outputs)
            is_settled = True
        except KafkaException as trouble:
            error = trouble.args[0]
            self._recover(producer, error)
            self._rewind(messages)
            is_settled = True
            refusal = outputs.refusal(error)
            if refusal is not None:
                raise refusal from trouble
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
        self.committed += len(messages)
        return len(messages)

    # -- one transaction -------------------------------------------------------------------------

    def _new_producer(self) -> Producer:
        """Fences the one before, and has its open transaction aborted."""
        producer = Producer(self._producer_config)
        retrying(lambda: producer.init_transactions(CALL_S), RETRY_S)
        self._producer = producer
        return producer

    def _read(self) -> list[Message]:
        found = []
        for message in self._consumer.consume(self._messages_max, self._wait_s):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.fatal():
                raise KafkaException(error)
            elif error.code() != KafkaError._PARTITION_EOF:
                log.warning("reading: %s", error)
        if not found:
            return found
        # A rebalance inside of `consume` may have taken away what was read before it.
        ours = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return [each for each in found if (each.topic(), each.partition()) in ours]

    def _process(self, producer: Producer, messages: Sequence[Message], outputs: Outputs) -> None:
        producer.begin_transaction()
        for message in messages:
            for output in self._transform(message):
                outputs.produce(producer, output)
        positions: dict[tuple[str, int], int] = {}
        for message in messages:
            positions[message.topic(), message.partition()] = message.offset() + 1
        offsets = [TopicPartition(*place, positions[place]) for place in positions]
        group = self._consumer.consumer_group_metadata()
        retrying(lambda: _send_offsets(producer, offsets, group), RETRY_S)
        retrying(lambda: producer.commit_transaction(CALL_S), RETRY_S)

    # -- when it fails ---------------------------------------------------------------------------

    def _recover(self, producer: Producer, error: KafkaError) -> None:
        log.warning("transaction: %s", error)
        # `produce` says no more than _STATE of a transaction that has failed meanwhile; the abort tells why it did.
        if error.txn_requires_abort() or error.code() == KafkaError._STATE:
            self._abort(producer)
        else:
            # Fenced, or lost count, or the outcome can't be told: the next incarnation's first request ends it.
            self._producer = None

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
        firsts: dict[tuple[str, int], int] = {}
        for message in messages:
            firsts.setdefault((message.topic(), message.partition()), message.offset())
        wanted = [TopicPartition(*place) for place in firsts]
        for at in self._committed(wanted):
            # Nothing was ever committed there: what was read first is where it began.
            start = at.offset if at.offset >= 0 else firsts[at.topic, at.partition]
            try:
                self._consumer.seek(TopicPartition(at.topic, at.partition, start))
            except KafkaException as gone:
                log.info("%s-%s is another member's now: %s", at.topic, at.partition, gone)

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
