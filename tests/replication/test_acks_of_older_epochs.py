"""A leader that is elected again does not go by what its followers had said before: another may have led, and cut them."""

import pytest
from test_partition_machine import ME, ack, leading, state


@pytest.mark.parametrize("epochs", [1, 2])
def test_what_was_acknowledged_in_an_older_epoch_commits_nothing(epochs: int) -> None:
    """1. node 2 has 15   2. it leads itself, unseen here, and is cut to 12 by whoever comes next   3. node 1 leads again."""
    two = leading(ME, 2)
    two.on_append(20, 0)
    two.on_durable(10, 0)
    assert ack(two, 2, 15)
    assert two.high_watermark == 10
    two.on_image(state(ME, 2, epoch=1 + epochs, version=2), 0)
    assert two.replicas[2].counted_end == -1
    assert not two.on_durable(20, 0)
    assert two.high_watermark == 10
    assert ack(two, 2, 12)
    assert two.high_watermark == 12


def test_what_was_acknowledged_in_this_epoch_counts_on_when_the_isr_is_another() -> None:
    two = leading(ME, 2)
    two.on_append(20, 0)
    two.on_durable(10, 0)
    ack(two, 2, 15)
    two.on_image(state(ME, 2, version=2, replicas=(ME, 2, 3)), 0)
    assert two.replicas[2].counted_end == 15
    assert two.on_durable(20, 0)
    assert two.high_watermark == 15
