"""The peer that everything else is compared with."""

import pytest
from confluent_kafka import Producer
from support.kafka_peer import KafkaPeer


@pytest.mark.slow
@pytest.mark.of_kafka
@pytest.mark.needs("kafka")
@pytest.mark.timeout(180)
def test_a_peer_serves_survives_a_kill_and_ends_with_its_block() -> None:
    with KafkaPeer() as peer:
        producer = Producer({"bootstrap.servers": peer.bootstrap, "log_level": 0})
        producer.produce("before", b"1")
        assert producer.flush(20) == 0
        peer.kill()
        peer.up()
        producer.produce("after", b"2")
        assert producer.flush(30) == 0
    assert not any(process.alive for process in peer.processes.values())
    assert not peer.folder.exists()
