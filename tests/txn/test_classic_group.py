"""The phases of a classic group, and what is read out of a member's metadata."""

import re
import struct
from pathlib import Path

import pytest
from fencepost.txn.groups.classic_group import MAY_BECOME, ClassicGroup, Member, Phase
from fencepost.txn.groups.subscription import subscribed_topics
from hypothesis import given
from hypothesis import strategies as st

P = Phase
README = Path(__file__).parents[2] / "txn" / "README.md"


def member(member_id: str, *protocols: str, **more) -> Member:
    return Member(
        member_id=member_id,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=tuple((name, b"") for name in protocols or ("range",)),
        **more,
    )


def test_the_table_of_phases_is_total() -> None:
    assert set(MAY_BECOME) == set(Phase)
    reachable = {P.EMPTY}
    for _ in Phase:
        reachable |= {after for phase in reachable for after in MAY_BECOME[phase]}
    assert reachable == set(Phase)


@pytest.mark.parametrize("before", Phase)
@pytest.mark.parametrize("after", Phase)
def test_only_what_the_table_allows_can_happen_to_a_phase(before: Phase, after: Phase) -> None:
    group = ClassicGroup("g")
    group.phase = before
    if after in MAY_BECOME[before]:
        group.become(after, 7)
        assert (group.phase, group.previous_phase, group.since_ms) == (after, before, 7)
    else:
        with pytest.raises(AssertionError):
            group.become(after, 7)


def test_the_diagram_in_the_readme_is_the_table() -> None:
    text = README.read_text()
    drawn = re.search(r"<!-- classic phases -->\n```mermaid\n(.*?)```", text, re.DOTALL)
    assert drawn is not None
    assert drawn[1] == diagram()


def diagram() -> str:
    lines = ["stateDiagram-v2", f"    [*] --> {P.EMPTY.value}"]
    for phase in Phase:
        after = [other for other in Phase if other in MAY_BECOME[phase]]
        lines += [f"    {phase.value} --> {other.value}" for other in after]
    return "\n".join(lines) + "\n"


def test_when_the_leader_goes_the_next_in_line_leads() -> None:
    group = ClassicGroup("g")
    for name in "abc":
        group.put(member(name))
    group.remove("b")
    group.remove("a")
    assert group.leader_id == "c"
    group.remove("c")
    assert group.leader_id is None


def test_what_counts_for_the_members_follows_every_change() -> None:
    group = ClassicGroup("g")
    group.put(member("a", "x", "y", join_ticket=1))
    group.put(member("b", "y"))
    assert (group.supported_protocols, group.awaiting_joins) == ({"x": 1, "y": 2}, 1)
    group.put(member("a", "y"))
    assert (group.supported_protocols, group.awaiting_joins) == ({"y": 2}, 0)


def test_a_copy_shares_nothing_that_can_change() -> None:
    group = ClassicGroup("g")
    group.put(member("a"))
    other = group.copy()
    other.remove("a")
    other.pending_joins["x"] = None
    assert list(group.members) == ["a"]
    assert not group.pending_joins


def test_a_group_from_the_log_writes_the_same_record() -> None:
    group = ClassicGroup("g", 5)
    group.protocol_type, group.protocol_name = "consumer", "range"
    group.put(member("a", group_instance_id="i", assignment=b"x"))
    group.phase = P.STABLE
    record = group.record()
    assert ClassicGroup.from_record(record).record() == record


def subscription(*topics: str, version: int = 3) -> bytes:
    rows = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + rows + b"\xff\xff\xff\xff later fields"


def test_the_topics_of_a_subscription_are_read_in_every_version() -> None:
    assert subscribed_topics(subscription("a", "b", version=0)) == ["a", "b"]
    assert subscribed_topics(subscription("a", version=99)) == ["a"]
    assert subscribed_topics(subscription(version=1)) == []


@given(st.binary(max_size=60) | st.binary(max_size=30).map(lambda b: subscription("t")[:9] + b))
def test_any_subscription_bytes_give_topics_or_nothing(data: bytes) -> None:
    topics = subscribed_topics(data)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


@pytest.mark.parametrize(
    ("metadata", "topic", "subscribed"),
    [
        (subscription("orders"), "orders", True),
        (subscription("orders"), "ledger", False),
        (b"\x00", "ledger", True),  # nobody can tell: better to keep its offsets
    ],
)
def test_offsets_of_topics_in_use_are_kept(metadata, topic, subscribed) -> None:
    group = ClassicGroup("g")
    group.protocol_type, group.protocol_name = "consumer", "range"
    group.put(
        Member(
            member_id="a",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
            protocols=(("range", metadata),),
        )
    )
    assert group.is_subscribed_to(topic) is subscribed
