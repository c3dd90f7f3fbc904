"""The Kafka client of these commands, which not every installation has: what they take of it, by its own names.

A node needs none, so it is an extra; without it a command ends here, in a sentence, whichever of its modules comes first.
"""

import sys

try:
    import confluent_kafka
    from confluent_kafka import (
        ConsumerGroupState,
        ConsumerGroupTopicPartitions,
        KafkaError,
        KafkaException,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        ResourceType,
    )
except ModuleNotFoundError:
    sys.exit(
        "fencepost: this command needs the Kafka client: `make install` in the checkout, or "
        "pip install -e '.[clients]' there"
    )

__all__ = [
    "AdminClient",
    "AlterConfigOpType",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "KafkaError",
    "KafkaException",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "ResourceType",
    "TopicCollection",
    "TopicPartition",
    "confluent_kafka",
]
