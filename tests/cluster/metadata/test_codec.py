from uuid import UUID

import msgpack
import pytest
from fencepost.cluster.metadata.codec import COMMANDS, CommandUnreadable, decode, encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import RULES
from fencepost.cluster.metadata.records import (
    BrokerChanged,
    BrokerUnregistered,
    ClusterFormed,
    ConfigsChanged,
    FeatureChanged,
    ImageExpected,
    PartitionsChanged,
    PartitionsCreated,
    ProducerIdsAllocated,
    TopicDeleted,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from support.metadata_commands import ALONE, LEDGER, ORDERS, change, commands, created, registered


@given(st.lists(commands, min_size=1, max_size=4))
def test_what_was_written_is_read_back(batch: list) -> None:
    assert decode(encode(batch)) == batch


@given(st.binary(max_size=64))
def test_garbage_is_refused_and_never_anything_else(garbage: bytes) -> None:
    try:
        decode(garbage)
    except CommandUnreadable:
        pass


shapes = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=4) | st.binary(max_size=16),
    lambda inner: (
        st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from(sorted(COMMANDS)), st.just(1), st.lists(shapes))))
def test_fields_of_the_wrong_shape_are_refused_and_never_anything_else(items: list) -> None:
    try:
        decode(msgpack.packb(items))
    except CommandUnreadable:
        pass


def test_an_unknown_command_is_refused_by_name() -> None:
    with pytest.raises(CommandUnreadable, match="command 999 is not known to this version"):
        decode(msgpack.packb([[999, 1, []]]))


def test_a_later_version_of_a_command_is_refused_by_name() -> None:
    with pytest.raises(CommandUnreadable, match=r"\(TopicDeleted\) has version 7.*reads 1 to 1"):
        decode(msgpack.packb([[TopicDeleted.TYPE, 7, []]]))


def test_every_command_that_can_be_read_has_a_rule_to_apply_it() -> None:
    assert set(COMMANDS.values()) == set(RULES)


GOLDEN = [
    (
        ClusterFormed(cluster_id="c1", features={"f": 2}),
        "9193010192a2633181a16602",
    ),
    (
        registered(rack="r", features={"f": (0, 2)}, disk=UUID(int=7), waits_for_disk=UUID(int=8)),
        "9193020299 01".replace(" ", "")
        + "c41000000000000000000000000000000063"
        + "9194a9504c41494e54455854a93132372e302e302e31cd2384a9504c41494e54455854"
        + "a172c281a166920002ff"
        + "c410"
        + "00" * 15
        + "07"
        + "c410"
        + "00" * 15
        + "08",
    ),
    (
        BrokerChanged(broker_id=1, expects_broker_epoch=3, fenced=True),
        "9193030194 0103c3c2".replace(" ", ""),
    ),
    (BrokerUnregistered(broker_id=1, expects_broker_epoch=3), "91930401920103"),
    (
        created(),
        "9193050194a66f7264657273c410" + "00" * 15 + "01" + "91940291019101" + "01" + "80",
    ),
    (TopicDeleted(topic_id=ORDERS), "9193060191c410" + "00" * 15 + "01"),
    (
        PartitionsCreated(topic_id=LEDGER, expects_count=2, partitions=(ALONE,)),
        "9193070193c410" + "00" * 15 + "02" + "02" + "919401910191" + "01" + "01",
    ),
    (
        PartitionsChanged(topic_id=ORDERS, changes=(change(elr=(2,)),)),
        "9193080292c410" + "00" * 15 + "01" + "919a00000101910191019102909090",
    ),
    (
        PartitionsChanged(topic_id=ORDERS, changes=(change(offline=(2,)),)),
        "9193080292c410" + "00" * 15 + "01" + "919a00000101910191019090909102",
    ),
    (
        ConfigsChanged(
            resource_type=ConfigType.BROKER, name="", changes={"a": None}, expects={"a": "1"}
        ),
        "919309019504a081a161c081a161a131c0",
    ),
    (FeatureChanged(name="f", level=1, expects_level=0), "91930a0193a1660100"),
    (
        ProducerIdsAllocated(broker_id=1, expects_broker_epoch=3, first_producer_id=0, count=1000),
        "91930b01940103" + "00" + "cd03e8",
    ),
    (ImageExpected(version=300), "91930c0191cd012c"),
]


# As earlier versions of a command wrote it.
EARLIER = [
    (
        registered(rack="r", features={"f": (0, 2)}),
        "91930201970 1".replace(" ", "")
        + "c41000000000000000000000000000000063"
        + "9194a9504c41494e54455854a93132372e302e302e31cd2384a9504c41494e54455854"
        + "a172c281a166920002ff",
    ),
    (
        PartitionsChanged(topic_id=ORDERS, changes=(change(elr=(2,)),)),
        "9193080192c410" + "00" * 15 + "01" + "9199000001019101910191029090",
    ),
]


@pytest.mark.parametrize(("command", "written"), EARLIER, ids=lambda v: type(v).__name__)
def test_what_an_earlier_version_of_a_command_wrote_is_still_read(
    command: object, written: str
) -> None:
    assert decode(bytes.fromhex(written)) == [command]


@pytest.mark.parametrize(("command", "written"), GOLDEN, ids=lambda v: type(v).__name__)
def test_a_log_that_an_earlier_version_wrote_is_still_read(command: object, written: str) -> None:
    """Bytes of logs that are out there: never edit one, add the next version's."""
    assert decode(bytes.fromhex(written)) == [command]
    assert encode([command]).hex() == written


def test_a_topic_of_ten_thousand_partitions_takes_a_few_bytes() -> None:
    assert len(encode([created(count=10_000)])) < 100
