"""What is said of a batch that a broker finds too large."""

import pytest
from fencepost.clients.transactional.topic_limits import bytes_max, what_to_do

WRITE_SMALLER = "raise max.message.bytes of the topic, or write smaller records"


@pytest.mark.parametrize(
    ("limit", "batch_size", "value", "said"),
    [
        (50_000, 1_000_000, 100, "Say batch.size=50000, which is its max.message.bytes, or less; it is 1000000 now"),
        (500, 1_000_000, 3_000, f"a value of 3,000, and t takes 500 (max.message.bytes): {WRITE_SMALLER}"),
        (500, 500, 490, f"t takes 500 (max.message.bytes): {WRITE_SMALLER}"),
        (None, 1_000_000, 100, "say batch.size, which is 1000000, no larger than max.message.bytes"),
        (None, 1_000_000, 100, f"If t does not take that (max.message.bytes), {WRITE_SMALLER}; else"),
    ],
)  # fmt: skip
def test_whose_fault_a_batch_is_that_was_too_large(
    limit: int | None, batch_size: int, value: int, said: str
) -> None:
    told = what_to_do("t", limit, batch_size, 3, value, "batch.size")
    assert said in told
    assert told.startswith("the largest record that was refused has a key of 3 bytes and a value ")
    assert (WRITE_SMALLER in told) == (limit is None or value > limit - 256)


def test_a_limit_that_nobody_tells_is_not_known() -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "socket.connection.setup.timeout.ms": "1000"}
    assert bytes_max({**given, "linger.ms": "5"}, "t", ask_s=0.5) is None
