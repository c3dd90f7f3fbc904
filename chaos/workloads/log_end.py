"""Where a partition ends, asked until its leader says so: for passes that read to the end, when all faults are over."""

import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

ASK_AGAIN_S: Final = 0.1
MOVED: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


def log_end(consumer: Consumer, place: TopicPartition, within_s: float) -> int:
    """After a change of the lead librdkafka (2.16) raises what the old one said, and asks the new one only when asked again."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, within_s)[1])
        except KafkaException as trouble:
            if time.monotonic() > deadline or trouble.args[0].code() not in MOVED:
                raise
            time.sleep(ASK_AGAIN_S)
