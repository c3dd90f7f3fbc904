"""What the load says of a transaction whose commit was not answered. No engine is needed."""

import pytest
from confluent_kafka import KafkaError, KafkaException
from txn_load import Load


class Refusal:
    """KafkaError can't be made with these flags from Python."""

    def retriable(self) -> bool:
        return False

    def txn_requires_abort(self) -> bool:
        return True


class Refusing:
    """Its commit arrives, or not; the answer is lost, as when the coordinator's name is gone with its container."""

    def __init__(self, *, arrived: bool) -> None:
        self.arrived = arrived

    def begin_transaction(self) -> None: ...

    def produce(self, *record: object, **options: object) -> None: ...

    def poll(self, seconds: float) -> None: ...

    def flush(self, seconds: float) -> None: ...

    def commit_transaction(self, seconds: float) -> None:
        raise KafkaException(Refusal())

    def abort_transaction(self, seconds: float) -> None:
        if self.arrived:
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE))


@pytest.mark.parametrize(("arrived", "state"), [(True, "unknown"), (False, "aborted")])
def test_only_an_abort_that_worked_says_that_nothing_was_committed(
    monkeypatch: pytest.MonkeyPatch, arrived: bool, state: str
) -> None:
    monkeypatch.setattr(Load, "new_producer", lambda _: Refusing(arrived=arrived))
    assert Load("nowhere:9092", "topic", "load").transact() == state
