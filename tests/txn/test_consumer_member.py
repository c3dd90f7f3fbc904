"""The states of a member: the table, its diagram, and what the records keep of a member."""

import re
from pathlib import Path
from uuid import UUID

from fencepost.txn.groups.consumer_member import MAY_BECOME, Member, MemberState
from fencepost.txn.groups.consumer_records import CurrentAssigned, OwnedTopic

README = Path(__file__).parents[2] / "txn" / "README.md"
T = UUID(int=1)


def diagram() -> str:
    lines = ["stateDiagram-v2", f"    [*] --> {MemberState.STABLE.name}: joins"]
    lines += [f"    {a.name} --> {b.name}: {why}" for (a, b), why in MAY_BECOME.items()]
    return "\n".join(lines) + "\n"


def test_the_diagram_in_the_readme_is_the_table() -> None:
    text = README.read_text()
    drawn = re.search(r"<!-- consumer member states -->\n```mermaid\n(.*?)```", text, re.DOTALL)
    assert drawn is not None
    assert drawn[1] == diagram()


def test_every_step_between_the_three_states_is_in_the_table() -> None:
    """Which of them are really taken is seen in test_consumer_simulation.py."""
    states = set(MemberState) - {MemberState.UNKNOWN}
    assert set(MAY_BECOME) == {(a, b) for a in states for b in states}


def test_partitions_of_an_older_record_were_got_in_the_member_s_epoch() -> None:
    """Before Kafka 4.3 the record had no epochs for partitions (KIP-1251)."""
    record = CurrentAssigned(
        group_id="g",
        member_id="m",
        member_epoch=7,
        previous_member_epoch=6,
        state=0,
        assigned=(OwnedTopic(topic_id=T, partitions=(1, 2)),),
    )
    assert Member(member_id="m").with_current(record).assigned == {T: {1: 7, 2: 7}}


def test_a_static_member_that_is_gone_for_now_keeps_its_partitions_and_no_epoch() -> None:
    member = Member(member_id="m", member_epoch=5, assigned={T: {0: 4}}, instance_id="i")
    gone = member.gone_for_now()
    assert (gone.member_epoch, gone.assigned, gone.pending_revocation) == (-2, {T: {0: 0}}, {})


def test_a_state_of_a_later_version_is_unknown() -> None:
    assert MemberState(77) is MemberState.UNKNOWN
    assert MemberState(2) is MemberState.UNRELEASED_PARTITIONS
