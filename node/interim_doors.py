"""Interim."""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC
from fencepost.cluster.wire.records import control_batch
from fencepost.txn.runtime.decision import Producer


class MarkerWriter:
    def __init__(self, env: Any, replicas: Any, groups: Any) -> None:
        self.env, self.replicas, self.groups = env, replicas, groups

    async def write(self, broker_id: Any, markers: Any) -> Any:
        return await self.write_here(markers)

    async def write_here(self, markers: Any) -> Any:
        return [await self._one(each) for each in markers]

    async def _one(self, marker: Any) -> Any:
        found = {}
        for place in marker.partitions:
            if place.topic == GROUP_OFFSETS_TOPIC:
                found[place] = await self.groups.end_transaction(
                    place.partition,
                    Producer(marker.producer_id, marker.producer_epoch),
                    coordinator_epoch=marker.coordinator_epoch,
                    commit=marker.commit,
                )
                continue
            partition = self.replicas.partition(place)
            if isinstance(partition, ErrorCode):
                found[place] = partition
                continue
            now_ms = self.env.clock.now_ms()
            done = partition.append_as_leader(
                control_batch(
                    commit=marker.commit, producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch, coordinator_epoch=marker.coordinator_epoch,
                    timestamp=now_ms,
                ),
                required_acks=-1, now_ms=now_ms, origin_client=False,
                transaction_version=marker.transaction_version,
            )
            if hasattr(done, "error"):
                found[place] = done.error
            else:
                found[place] = await partition.committed(done.last_offset)
        return found


class Verifier:
    def __init__(self, image: Any, transactions: Any) -> None:
        self.image, self.transactions = image, transactions

    async def verify_producer(self, place: Any, *, transactional_id: Any, producer_id: Any, producer_epoch: Any, add: bool) -> ErrorCode:
        add = add and self.image.features.get("transaction.version", 0) >= 2
        found = await self.transactions.verify(transactional_id, producer_id, producer_epoch, [place], add=add)
        return found[place]
