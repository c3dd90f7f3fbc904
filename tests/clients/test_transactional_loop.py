"""The loop against a real broker: whatever goes wrong, each input shows exactly once in the output."""

import itertools
import random
import threading
import time
from collections import Counter

import pytest
from brokers import IN_CHAOS, WAIT_S
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from fencepost.clients.transactional import Output, TransactionalLoop, loop_limits
from fencepost.clients.transactional import loop as loop_module
from fencepost.clients.transactional.telling_producer import TellingProducer
from librdkafka import consumer_of, create, producer_of, receive, send, until

pytestmark = pytest.mark.slow
INPUTS = 300
PARTITIONS = 3
QUICK = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
SERVER_SIDE = {"group.protocol": "consumer"}  # KIP-848


class Setting:
    """An input topic that is filled, an output topic, and loops between them."""

    def __init__(self, bootstrap: str, fresh, group: str) -> None:
        self.bootstrap, self.group = bootstrap, group
        self.consumer: dict[str, object] = QUICK
        self.source, self.sink = fresh("in"), fresh("out")
        for topic in (self.source, self.sink):
            create(bootstrap, topic, partitions=PARTITIONS)
        self.values = [f"v{number}" for number in range(INPUTS)]
        producer = producer_of(bootstrap)
        for value in self.values:
            send(producer, self.source, [value.encode()], key=value.encode())

    def loop(self, transform=None, **options) -> TransactionalLoop:
        return TransactionalLoop(
            bootstrap=self.bootstrap,
            topics=[self.source],
            group_id=self.group,
            transform=transform or self.copy,
            messages_max=options.pop("messages_max", 20),
            consumer_config={**self.consumer, "log_level": 0},
            producer_config={"log_level": 0},
            **options,
        )

    def copy(self, message: Message) -> list[Output]:
        return [Output(self.sink, key=message.key(), value=message.value())]

    def check(self) -> None:
        """All inputs, each once, and nothing more behind them."""
        with consumer_of(self.bootstrap, group=f"{self.group}.check") as consumer:
            consumer.subscribe([self.sink])
            found = Counter(each.value().decode() for each in receive(consumer, INPUTS))
            assert found == Counter(self.values)
            assert consumer.consume(1, timeout=0.5) == []


@pytest.fixture
def setting(bootstrap, fresh, group) -> Setting:
    return Setting(bootstrap, fresh, group)


def step_until(loop: TransactionalLoop, count: int) -> None:
    until(lambda: loop.step() >= 0 and loop.committed >= count, what=f"{count} are committed")


def test_each_input_shows_exactly_once_when_nothing_goes_wrong(setting) -> None:
    with setting.loop() as loop:
        step_until(loop, INPUTS)
        assert loop.aborted == 0 or IN_CHAOS
    setting.check()


def test_whatever_fails_each_input_shows_exactly_once(setting, monkeypatch) -> None:
    """Transformations that raise, a fenced producer, commits without an answer, a loop that is thrown away in the middle."""
    # It is fenced more often than by one successor.
    monkeypatch.setattr(loop_limits, "PAUSE_S", 0.01)
    dice = random.Random(7)
    failures = 0
    commits = itertools.count()

    class Cut(TellingProducer):
        """Of nine commits two are done and have no answer, and one is lost."""

        def commit_transaction(self, *args):
            fate = next(commits) % 9
            if fate != 8:
                super().commit_transaction(*args)
            if fate in (2, 5, 8):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(loop_module, "TellingProducer", Cut)
    places = [TopicPartition(setting.source, partition) for partition in range(PARTITIONS)]

    def fails(message: Message) -> list[Output]:
        if dice.random() < 0.02:
            raise ValueError("not this time")
        return setting.copy(message)

    deadline = time.monotonic() + 3 * WAIT_S
    done = 0
    while done < INPUTS:
        assert time.monotonic() < deadline
        with setting.loop(fails, transactional_id=f"{setting.group}-1") as loop:
            for _ in range(40):
                try:
                    loop.step()
                except ValueError:
                    failures += 1
                if dice.random() < 0.1:
                    other = Producer(
                        {
                            "bootstrap.servers": setting.bootstrap,
                            "transactional.id": f"{setting.group}-1",
                            "log_level": 0,
                        }
                    )
                    other.init_transactions(WAIT_S)
            done = sum(max(at.offset, 0) for at in loop._committed(places))
    assert failures > 0
    setting.check()


@pytest.mark.parametrize("protocol", [QUICK, SERVER_SIDE], ids=["classic", "kip848"])
def test_loops_that_come_and_go_share_the_work(setting, protocol) -> None:
    setting.consumer = protocol
    counts = [0, 0]
    over = threading.Event()

    def work(place: int) -> None:
        while not over.is_set():
            with setting.loop(messages_max=5) as loop:
                for _ in range(30 + 20 * place):
                    if over.is_set():
                        break
                    loop.step()
                counts[place] += loop.committed

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    with consumer_of(setting.bootstrap, group=f"{setting.group}.watch") as consumer:
        consumer.subscribe([setting.sink])
        receive(consumer, INPUTS, wait_s=3 * WAIT_S)
    over.set()
    for thread in threads:
        thread.join()
    setting.check()


def test_one_input_may_give_none_or_several_outputs(setting) -> None:
    def odd(message: Message) -> list[Output]:
        number = int(message.value()[1:])
        return setting.copy(message) * (number % 3)

    with setting.loop(odd) as loop:
        step_until(loop, INPUTS)
    expected = Counter({value: int(value[1:]) % 3 for value in setting.values})
    with consumer_of(setting.bootstrap, group=f"{setting.group}.check") as consumer:
        consumer.subscribe([setting.sink])
        found = receive(consumer, expected.total())
    assert Counter(each.value().decode() for each in found) == +expected


def test_run_ends_after_the_transaction_that_is_under_way_when_it_is_told_to(setting) -> None:
    loop = setting.loop()
    thread = threading.Thread(target=loop.run)
    thread.start()
    until(lambda: loop.committed > 0 or time.sleep(0.01), what="it works")
    loop.stop()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_positions_are_asked_for_again_when_the_groups_coordinator_moves(
    setting, monkeypatch
) -> None:
    """librdkafka gives up a question that was answered NOT_COORDINATOR, and calls that no error to try again after."""
    asked: list[int] = []

    class Moves(Consumer):
        def committed(self, *args):
            asked.append(1)
            if len(asked) % 3:
                raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
            return super().committed(*args)

    failed: list[int] = []

    def fails_once(message: Message) -> list[Output]:
        if not failed:
            failed.append(1)
            raise ValueError("not this time")
        return setting.copy(message)

    monkeypatch.setattr(loop_module, "Consumer", Moves)
    with setting.loop(fails_once) as loop:
        with pytest.raises(ValueError, match="not this time"):
            step_until(loop, 1)
        step_until(loop, INPUTS)
    assert len(asked) >= 3
    setting.check()


def test_what_a_transformation_raises_ends_run_and_its_message_comes_again(setting) -> None:
    def fails(message: Message) -> list[Output]:
        raise ValueError("poison")

    with pytest.raises(ValueError, match="poison"):
        setting.loop(fails).run()
    with setting.loop() as loop:
        step_until(loop, INPUTS)
    setting.check()
