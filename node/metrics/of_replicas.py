"""The partitions of this node, their logs, and the transactions that are open in them."""

from typing import TYPE_CHECKING

from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication import metrics as names
from fencepost.replication.metrics import Counters
from fencepost.replication.survey import REASONS, Known, Survey

from .gathering import Gathering
from .topics import wanted

if TYPE_CHECKING:
    from ..broker import Broker

E = ErrorCode
_COUNTED = {
    names.APPENDED_BATCHES: "appended_batches",
    names.APPENDED_RECORDS: "appended_records",
    names.APPENDED_BYTES: "appended_bytes",
    names.READS: "reads",
    names.READ_BYTES: "read_bytes",
    names.SYNC: "sync_s",
    names.SYNCED_PARTITIONS: "synced_partitions",
    names.SYNC_FAILURES: "sync_failures",
    names.TRUNCATIONS: "truncations",
    names.RETENTION_DELETES: "retention_deletes",
    names.COMPACTIONS: "compaction_rounds",
    names.SCRUBBED_BYTES: "scrubbed_bytes",
    names.DAMAGED_BATCHES: "damaged_batches",
    names.ISR_SHRINKS: "isr_shrinks",
    names.ISR_EXPANDS: "isr_expands",
    names.ELECTIONS: "elections",
    names.BYTES_IN: "replicated_bytes_in",
    names.BYTES_OUT: "replicated_bytes_out",
    names.DUPLICATES: "duplicates",
    names.RECOVERY: "recovery_s",
}
PARTITIONS_A_STEP = 20


class OfReplicas:
    def __init__(self, node: "Broker") -> None:
        self._node = node
        self._known = Known()
        self._is_wanted = wanted(node.config.string("metrics.topics"))

    async def __call__(self, gathering: Gathering) -> None:
        replicas = self._node.replicas
        _put_counters(gathering, replicas.counters)
        put = gathering.put
        size, free = await gathering.wait(self._node.env.disk.run(replicas.disk_bytes))
        put(names.DISK_SIZE, size)
        put(names.DISK_FREE, free)
        put(names.DISK_FULL, float(replicas.is_disk_full))
        put(names.FAILED, len(replicas.offline))
        put(names.SCRUB_AGE, replicas.rounds.scrubber.age_s)
        for kind, failures in replicas.counters.round_failures.items():
            put(names.ROUND_FAILURES, failures, kind)
        for kind, logs in replicas.rounds.given_up.items():
            put(names.GIVEN_UP, len(logs), kind)
        budget = replicas.store.shared.budget
        put(names.PRODUCERS, budget.count)
        put(names.PRODUCERS_MAX, budget.maximum)
        survey = replicas.survey(self._known)
        is_wanted = self._is_wanted
        damaged = 0
        for number, partition in enumerate(list(replicas.partitions.values())):
            damaged += bool(partition.log.damage)
            topic = partition.topic_partition.topic
            survey.take(partition, by_topic=is_wanted is not None and is_wanted(topic))
            if number % PARTITIONS_A_STEP == 0:
                await gathering.breathe()
        await survey.end(gathering.breathe)
        _put_survey(gathering, survey)
        put(names.DAMAGED, damaged)
        put(names.REPLICAS, survey.replicas + len(replicas.offline.keys() - replicas.partitions))
        await self._topics(gathering, survey)

    async def _topics(self, gathering: Gathering, survey: Survey) -> None:
        """Counters of topics that are gone are forgotten, or they would pile up."""
        counters, known = self._node.replicas.counters, self._node.image.topics
        for number, (topic, counted) in enumerate(list(counters.topics.items())):
            if number % PARTITIONS_A_STEP == 0:
                await gathering.breathe()
            if topic not in known:
                counters.topics.pop(topic, None)
            elif self._is_wanted is not None and self._is_wanted(topic):
                put = gathering.put
                put(names.TOPIC_APPENDED_BYTES, counted.appended_bytes, topic)
                put(names.TOPIC_APPENDED_RECORDS, counted.appended_records, topic)
                put(names.TOPIC_READ_BYTES, counted.read_bytes, topic)
                put(names.TOPIC_SIZE, survey.topic_size.get(topic, 0), topic)
                under = survey.topic_under_replicated.get(topic, 0)
                put(names.TOPIC_UNDER_REPLICATED, under, topic)


def _put_counters(gathering: Gathering, counters: Counters) -> None:
    for metric, field in _COUNTED.items():
        gathering.put(metric, getattr(counters, field))
    refused = counters.refused
    for error, count in refused.items():
        gathering.put(names.REFUSED, count, error.name.upper())
    gathering.put(names.OUT_OF_ORDER, refused.get(E.out_of_order_sequence_number, 0))
    fenced = refused.get(E.invalid_producer_epoch, 0) + refused.get(E.producer_fenced, 0)
    gathering.put(names.FENCED, fenced)


def _put_survey(gathering: Gathering, survey: Survey) -> None:
    put = gathering.put
    put(names.LOG_SIZE, survey.size_bytes)
    put(names.LEADER_PARTITIONS, survey.leaders)
    put(names.UNDER_REPLICATED, survey.under_replicated)
    put(names.UNDER_MIN_ISR, survey.under_min_isr)
    put(names.AT_MIN_ISR, survey.at_min_isr)
    put(names.NOT_IN_SYNC, survey.not_in_sync)
    for follower in sorted(survey.lag_records):
        put(names.LAG_RECORDS, survey.lag_records[follower], str(follower))
        put(names.LAG_SECONDS, survey.lag_ms[follower] / 1000, str(follower))
    put(names.OPEN_TRANSACTIONS, survey.open_transactions)
    put(names.OLDEST_OPEN, survey.oldest_open_ms / 1000)
    put(names.HANGING, survey.hanging)
    put(names.STABLE_LAG, survey.stable_lag)
    for reason, word in REASONS.items():
        put(names.STANDSTILLS, survey.standstills[reason], word)
        put(names.STANDSTILL, survey.standstill_ms[reason] / 1000, word)
