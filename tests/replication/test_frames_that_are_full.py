"""A frame between nodes holds 64 MiB, of however many partitions."""

from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.peer_frames import PAYLOAD_MAX
from replica_cluster import Cluster, log_bytes, play
from replica_helpers import ORDERS, batch

BESIDE = TopicPartition("orders", 1)


def test_a_batch_that_almost_fills_a_frame_does_not_travel_with_others() -> None:
    """Else the leader, which can't send such a frame, ends; and again, as soon as it leads."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(partitions=2, leaders=[1, 1], max_message_bytes=str(2 * PAYLOAD_MAX))
        cluster[1].append(batch(b"a" * 700_000))
        cluster[1].append(batch(b"x" * (PAYLOAD_MAX - 300_000)), BESIDE)
        both = (ORDERS, BESIDE)
        await cluster.until(
            lambda: all(cluster[2].partition(each).high_watermark == 1 for each in both)
        )
        for node in (2, 3):
            for each in both:
                mine = log_bytes(cluster[node].partition(each))
                assert mine == log_bytes(cluster[1].partition(each))

    play(scene)
