"""The transactional client tells honestly what it knows, whatever brokers answer. Brokers here answer from a script."""

import asyncio
from types import SimpleNamespace

import pytest
from fencepost.chaos.checkers.txn_history import Txn
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.txn_answers import BrokenPromise
from fencepost.chaos.workloads.txn_client import TransactionalProducer
from fencepost.chaos.workloads.txn_dressed import PLAIN
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.wire.api import ApiKey

E = ErrorCode
SILENCE = Trouble("no answer", Outcome.UNKNOWN)
UNSENT = Trouble("no connection", Outcome.REFUSED)


class Broker:
    """Every node at once. `script[api]` is what it answers, one after the other; then success for ever."""

    def __init__(self, world: World, **script) -> None:
        self.env = world.node("client")
        self.name = "client"
        self.script = {ApiKey[name]: list(answers) for name, answers in script.items()}
        self.asked: list[tuple[ApiKey, dict]] = []
        self.epoch = -1
        self.address = ("node", 9092)

    async def request(self, api_key, version=None, **fields):
        self.asked.append((api_key, fields))
        await asyncio.sleep(0.001)
        answers = self.script.get(api_key, [])
        answer = answers.pop(0) if answers else E.none
        if isinstance(answer, Trouble):
            raise answer
        one = SimpleNamespace(error_code=answer, base_offset=7, host="node", port=9092)
        if api_key is ApiKey.init_producer_id or (api_key is ApiKey.end_txn and version >= 5):
            if answer is E.none:
                self.epoch += 1
            one.producer_id, one.producer_epoch = 9, self.epoch
        if api_key is ApiKey.produce:
            return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[one])])
        if api_key is ApiKey.txn_offset_commit:
            return SimpleNamespace(topics=[SimpleNamespace(partitions=[one])])
        if api_key is ApiKey.add_partitions_to_txn:
            result = SimpleNamespace(partition_error_code=answer)
            topic = SimpleNamespace(results_by_partition=[result])
            return SimpleNamespace(results_by_topic_v3_and_below=[topic])
        return one

    # As a ClusterClient.

    def any(self):
        return self

    def wire_to(self, _address):
        return self

    async def drop(self, _wire):
        pass

    async def leader_now(self, _topic, _partition):
        return SimpleNamespace(wire=self, node_id=1)

    def leader(self, _topic, _partition):
        return SimpleNamespace(wire=self, node_id=1)

    def forget(self, *_):
        pass

    def dress(self, place, payloads):
        return PLAIN.records(place, 0, payloads)


def transact(*, commit=True, new=True, init=True, sends=1, producer_of=None, **script):
    """One transaction of one batch; what the client says of it, the client, and what it asked."""
    with World(1) as world:
        broker = Broker(world, **script)
        producer = TransactionalProducer(broker, "pay", new_protocol=new)
        op = Txn("txn", "fail", "a")

        async def work() -> None:
            for _ in range(sends):
                await producer.send("t", 0, [b"x"])

        async def all_of_it() -> None:
            await producer.init()
            await producer.transact(op, work, commit=commit)

        world.run(all_of_it())
    return op, producer, broker


def kinds(broker):
    return [key.name for key, _ in broker.asked if key is not ApiKey.find_coordinator]


def test_the_new_protocol_just_writes_and_takes_the_epoch_of_the_end() -> None:
    op, producer, broker = transact()
    assert (op.type, kinds(broker)) == ("ok", ["init_producer_id", "produce", "end_txn"])
    assert producer.producer_epoch == 1


def test_the_old_protocol_registers_each_partition_once_and_keeps_its_epoch() -> None:
    op, producer, broker = transact(new=False, sends=2)
    wanted = ["init_producer_id", "add_partitions_to_txn", "produce", "produce", "end_txn"]
    assert (op.type, kinds(broker), producer.producer_epoch) == ("ok", wanted, 0)


def test_a_commit_that_is_refused_is_a_failure() -> None:
    op, producer, _ = transact(end_txn=[E.producer_fenced])
    assert (op.type, producer.alive) == ("fail", False)


@pytest.mark.parametrize("first", [SILENCE, E.not_coordinator, E.request_timed_out])
def test_a_commit_that_is_refused_after_one_without_an_answer_is_unknown(first) -> None:
    op, producer, _ = transact(end_txn=[first, E.invalid_producer_epoch])
    assert (op.type, producer.alive) == ("info", False)


@pytest.mark.parametrize("first", [UNSENT, E.concurrent_transactions])
def test_a_commit_that_nobody_heard_is_no_reason_to_doubt_a_refusal(first) -> None:
    op, _, _ = transact(end_txn=[first, E.producer_fenced])
    assert op.type == "fail"


def test_a_commit_is_asked_for_until_somebody_says_yes() -> None:
    op, _, broker = transact(end_txn=[SILENCE, E.not_coordinator, E.concurrent_transactions])
    assert (op.type, kinds(broker).count("end_txn")) == ("ok", 4)


def test_a_commit_that_nobody_answers_is_unknown_and_ends_the_producer() -> None:
    op, producer, _ = transact(end_txn=[SILENCE] * 10_000)
    assert (op.type, producer.alive) == ("info", False)


def test_what_was_aborted_on_purpose_failed_whatever_becomes_of_the_abort() -> None:
    op, _, broker = transact(commit=False)
    assert op.type == "fail" and dict(broker.asked)[ApiKey.end_txn]["committed"] is False
    op, producer, _ = transact(commit=False, end_txn=[E.producer_fenced])
    assert (op.type, producer.alive) == ("fail", False)


def test_a_batch_that_nobody_takes_aborts_and_the_old_protocol_asks_for_the_next_epoch() -> None:
    """KIP-360: the batch may still arrive, and must not be taken for one of the next transaction."""
    op, producer, broker = transact(new=False, produce=[SILENCE] * 500)
    assert (op.type, producer.alive, producer.producer_epoch) == ("fail", True, 1)
    assert kinds(broker)[-2:] == ["end_txn", "init_producer_id"]
    assert dict(broker.asked)[ApiKey.init_producer_id]["producer_epoch"] == 0


def test_an_answer_that_no_client_can_bear_is_a_broken_promise() -> None:
    with pytest.raises(BrokenPromise):
        transact(produce=[E.out_of_order_sequence_number])


def test_a_transaction_that_is_cut_off_before_its_commit_has_failed() -> None:
    with World(1) as world:
        producer = TransactionalProducer(Broker(world), "pay", new_protocol=True)
        op = Txn("txn", "fail", "a")

        async def for_ever() -> None:
            await producer.send("t", 0, [b"x"])
            await asyncio.sleep(1000)

        async def all_of_it() -> None:
            await producer.init()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await producer.transact(op, for_ever)

        world.run(all_of_it())
    assert op.type == "fail"
