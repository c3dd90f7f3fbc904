"""Kafka's own exactly-once programs, killed and started again: its TransactionalMessageCopier, and a word count of Kafka Streams."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from brokers import COPIES, IN_CHAOS
from client_programs import streams_program
from confluent_kafka import KafkaException, TopicPartition
from fencepost.chaos.harness.processes import Process
from librdkafka import consumer_of, create, producer_of, send, until
from librdkafka_transactions import read_settled, values_of
from support.kafka_peer import NotFetched, java
from support.needs import give_up

pytestmark = [pytest.mark.slow, pytest.mark.needs("java"), pytest.mark.timeout(300)]

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
RUN_S = 240 if IN_CHAOS else 100
SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


class Program:
    """One that is killed and started again, and must not end by itself but when a broker died."""

    def __init__(self, command: Sequence[str], log: Path, stack: ExitStack) -> None:
        self.process = Process(command, log=log)
        stack.callback(self.process.kill)
        self.process.start()

    def kill_and_start(self) -> None:
        self.process.kill()
        self.process.start()

    def look(self) -> None:
        if not self.process.alive and self.process.exit_code != 0:
            assert IN_CHAOS, (
                f"it ended with {self.process.exit_code}: {self.process.said()[-3000:]}"
            )
            self.process.start()


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """Nothing yet, while nobody can say: librdkafka asks no coordinator twice."""
    with consumer_of(bootstrap, group) as consumer:
        parts = [TopicPartition(topic, number) for number in range(partitions)]
        try:
            return [part.offset for part in consumer.committed(parts, timeout=20)]
        except KafkaException:
            if not IN_CHAOS:
                raise
            return [-1] * partitions


def wait_while(programs: Sequence[Program], condition: Callable[[], bool], what: str) -> None:
    def holds() -> bool:
        for program in programs:
            program.look()
        return condition()

    said = "\n".join(program.process.said()[-1500:] for program in programs)
    until(holds, what=f"{what}\n{said}", wait_s=RUN_S)


@pytest.mark.parametrize(
    "mode", [(), ("--group-mode", "--use-group-metadata")], ids=["assigned", "in-a-group"]
)
def test_the_message_copier_copies_each_record_once_in_order(
    bootstrap, topic, group, fresh, tmp_path, mode
) -> None:
    """As Kafka's own transactions_test.py does it: two copiers, random aborts, hard kills."""
    target, each, partitions = fresh("target"), 1_500, 2
    for name in (topic, target):
        create(bootstrap, name, partitions=partitions)
    for part in range(partitions):
        values = [b"%d" % number for number in range(each)]
        send(producer_of(bootstrap), topic, values, partition=part, key=b"%d" % part)
    try:
        commands = [
            java(COPIER, *flags(bootstrap, topic, target, group, part, fresh), *mode, jvm=SMALL)
            for part in range(partitions)
        ]
    except NotFetched as error:
        give_up(str(error))
    with ExitStack() as stack:
        copiers = [
            Program(command, tmp_path / f"copier-{part}.log", stack)
            for part, command in enumerate(commands)
        ]

        def copied(least: int) -> bool:
            return min(committed(bootstrap, group, topic, partitions)) >= least

        for copier, least in zip(copiers, (100, 500), strict=True):
            wait_while(copiers, lambda: copied(least), f"{least} are copied")  # noqa: B023
            copier.kill_and_start()
        wait_while(copiers, lambda: copied(each), "all are copied")
    got = values_of(read_settled(bootstrap, target, partitions))
    assert got == {part: [b"%d" % n for n in range(each)] for part in range(partitions)}


def flags(bootstrap: str, topic: str, target: str, group: str, part: int, fresh) -> list[str]:
    options = {
        "broker-list": bootstrap,
        "input-topic": topic,
        "input-partition": str(part),
        "output-topic": target,
        "consumer-group": group,
        "transactional-id": fresh(f"copier-{part}"),
        "transaction-size": "50",
        "transaction-timeout": "10000",
    }
    named = [text for name, value in options.items() for text in (f"--{name}", value)]
    return [*named, "--enable-random-aborts"]


@pytest.mark.long
def test_a_word_count_of_kafka_streams_counts_each_word_once(
    bootstrap, topic, fresh, tmp_path
) -> None:
    """exactly_once_v2: what was counted, what was written and what was read move on at once."""
    target, application = fresh("counts"), fresh("word-count")
    for name in (topic, target):
        create(bootstrap, name, partitions=2)
    dice = random.Random(7)
    lines = [" ".join(dice.choices(["alpha", "beta", "gamma", "delta"], k=5)) for _ in range(300)]
    counted = Counter(word for line in lines for word in line.split())
    # A member that was killed is missed for a session; when its coordinator dies too, that takes longer.
    session_ms = "6000" if IN_CHAOS else "3000"
    arguments = [bootstrap, application, topic, target, str(tmp_path / "state"), str(COPIES)]
    command = streams_program(*arguments, session_ms, jvm=SMALL)
    producer = producer_of(bootstrap)
    with ExitStack() as stack:
        program = Program(command, tmp_path / "streams.log", stack)

        def seen() -> int:
            return len(read_settled(bootstrap, target, 2))

        for first, last in ((0, 100), (100, 200), (200, 300)):
            some = [line.encode() for line in lines[first:last]]
            send(producer, topic, some)
            if first < 200:
                wait_while([program], lambda: seen() > first * 5, "it counts")  # noqa: B023
                program.kill_and_start()
        wait_while([program], lambda: seen() >= counted.total(), "all is counted")
        program.process.stop()
    told: dict[str, list[int]] = defaultdict(list)
    for message in read_settled(bootstrap, target, 2):
        told[message.key().decode()].append(int(message.value()))
    assert told == {word: list(range(1, count + 1)) for word, count in counted.items()}
