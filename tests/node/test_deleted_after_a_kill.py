"""DeleteRecords at the door, then a kill -9 (no power cut): what was answered as deleted is not read again."""

import pytest
from fencepost.cluster.wire.api import ApiKey
from sim_node import NODE, SimNode, batch


@pytest.mark.parametrize("policy", ["ack", "interval", "os"])
def test_deleted_records_stay_deleted_after_a_kill(policy: str) -> None:
    node = SimNode()
    node.start()
    node.create_topic("t", **{"flush.policy": policy})
    for _ in range(10):
        assert node.produce("t", batch(b"x")).error_code == 0
    reply = (
        node.ask(
            ApiKey.delete_records,
            timeout=5_000,
            topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 10}]}],
        )
        .topics[0]
        .partitions[0]
    )
    assert (reply.error_code, reply.low_watermark) == (0, 10)
    node.world.kill(NODE)
    node.start()
    again = node.fetch("t")
    node.close()
    assert (again.error_code, again.log_start_offset) == (1, -1), "offset 0 is served again"
