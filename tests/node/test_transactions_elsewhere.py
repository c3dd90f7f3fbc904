"""A node that coordinates neither the transaction nor the group sends its client on, whatever it is asked."""

from typing import Any

from every_api_check import E
from fencepost.cluster.wire.api import ApiKey
from sim_cluster import Cluster
from txn_talk import Producer, position

SETTINGS = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
WHO = Producer("pay").fields


def codes(value: Any) -> list[E]:
    """Every error of an answer but the success that stands over several."""
    if hasattr(value, "__dataclass_fields__"):
        found = []
        for name in value.__dataclass_fields__:
            each = getattr(value, name)
            found += [each] if name.endswith("error_code") else codes(each)
        return [each for each in found if each is not E.none]
    if isinstance(value, tuple):
        return [code for each in value for code in codes(each)]
    return []


async def asked_of_another(cluster: Cluster, kind: int, key: ApiKey, **fields: Any) -> list[E]:
    while True:
        asked = {"key_type": kind, "coordinator_keys": ["pay"]}
        (row,) = (await cluster.ask(1, ApiKey.find_coordinator, **asked)).coordinators
        if row.error_code is E.none:
            break
    other = next(each for each in (1, 2, 3) if each != row.node_id)
    return codes(await cluster.ask(other, key, **fields))


def test_only_the_coordinator_of_a_transactional_id_answers_for_it() -> None:
    cluster = Cluster(3, seed="elsewhere", config=SETTINGS)
    rows = [{"name": "t", "partitions": [0]}]

    async def scenario() -> None:
        await cluster.create("t")
        for key, fields in (
            (
                ApiKey.init_producer_id,
                {"transactional_id": "pay", "transaction_timeout": 1_000},
            ),
            (
                ApiKey.add_partitions_to_txn,
                {"transactions": [{**WHO, "verify_only": False, "topics": rows}]},
            ),
            (
                ApiKey.add_partitions_to_txn,
                {"transactions": [{**WHO, "verify_only": True, "topics": rows}]},
            ),
            (ApiKey.add_offsets_to_txn, {**WHO, "group_id": "g"}),
            (ApiKey.end_txn, {**WHO, "committed": True}),
            (ApiKey.describe_transactions, {"transactional_ids": ["pay"]}),
        ):
            found = await asked_of_another(cluster, 1, key, **fields)
            assert found == [E.not_coordinator], key
        listed = await asked_of_another(
            cluster, 1, ApiKey.list_transactions, state_filters=[], producer_id_filters=[]
        )
        assert listed == []

    cluster.play(scenario)


def test_only_the_coordinator_of_a_group_stores_its_offsets() -> None:
    cluster = Cluster(3, seed="elsewhere", config=SETTINGS)

    async def scenario() -> None:
        await cluster.create("t")
        topics = [{"name": "t", "partitions": [position(0)]}]
        fields = {**WHO, "group_id": "pay", "topics": topics}
        found = await asked_of_another(cluster, 0, ApiKey.txn_offset_commit, **fields)
        assert found == [E.not_coordinator]

    cluster.play(scenario)
