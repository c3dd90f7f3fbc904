"""A member whose transaction has failed before it has written everything: it is told why by whatever it does next."""

import time
from random import Random

import pytest
from brokers import calm
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.transactional import GroupMember, OutputRefused
from librdkafka import create

pytestmark = pytest.mark.slow


@calm
def test_a_member_that_writes_on_behind_a_refused_record_is_told_which(
    bootstrap: str, fresh
) -> None:
    """Its broker has answered by then; librdkafka's `produce` says "Erroneous state"."""
    topic = fresh("small")
    create(bootstrap, topic, max_message_bytes=1_000)
    member = GroupMember(bootstrap, fresh("group"), "m", {"log_level": 0})
    member.begin()
    member.produce(topic, key=b"large", value=Random(1).randbytes(4_000))
    time.sleep(0.5)
    with pytest.raises(
        OutputRefused, match=rf"^a record for {topic} with the key b'large' .*4,000"
    ):
        for _ in range(10):
            member.produce(topic, value=b"v")
    member.finish("abort")


@calm
def test_a_member_that_was_fenced_while_it_wrote_is_told_so(bootstrap: str, fresh) -> None:
    topic, group = fresh("out"), fresh("group")
    create(bootstrap, topic)
    member = GroupMember(bootstrap, group, "m", {"log_level": 0})
    member.begin()
    member.produce(topic, value=b"v")
    GroupMember(bootstrap, group, "m", {"log_level": 0}).start()
    deadline = time.monotonic() + 30
    with pytest.raises(KafkaException) as raised:
        while time.monotonic() < deadline:
            member.produce(topic, value=b"v")
            time.sleep(0.05)
    assert raised.value.args[0].code() == KafkaError._FENCED
