"""How long the positions of a group of the new protocol (KIP-848) are kept, and from when on that counts (KIP-211)."""

import pytest
from consumer_world import GROUP, MixedCoordinator, command, request
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.commands import Commit, OffsetCommit, OffsetFetch
from fencepost.txn.groups.groups_machine import EXPIRE

DAY_MS = 24 * 3_600_000
SWEEP_MS = 600_000
GONE = -1


@pytest.fixture
def world() -> MixedCoordinator:
    """A member stored a position eight days ago, and has lived on without another."""
    world = MixedCoordinator()
    world.run(world.machine.loaded(world.now_ms))
    world.topics_are(quiet=1)
    epoch = join(world)
    commit = Commit("quiet", world.topics.by_name("quiet").topic_id, 0, 5, -1, "")
    command = OffsetCommit(
        group_id=GROUP,
        member_id="m",
        generation_id_or_member_epoch=epoch,
        api_version=9,
        commits=(commit,),
    )
    decision = world.machine.decide(command, world.now_ms)
    assert decision.reply == [ErrorCode.none]
    world.run(decision)
    world.now_ms += 8 * DAY_MS
    world.hear(request(member_epoch=epoch))
    assert stored(world) == [5]
    return world


def join(world: MixedCoordinator) -> int:
    epoch: int = world.hear(request(names=["quiet"]))["member_epoch"]
    return epoch


def stored(world: MixedCoordinator) -> list[int]:
    reply = world.machine.decide(OffsetFetch(group_id=GROUP, topics=None), world.now_ms).reply
    return [row["committed_offset"] for topic in reply["topics"] for row in topic["partitions"]]


def test_a_group_that_is_started_anew_keeps_the_positions_of_quiet_partitions(world) -> None:
    """Kafka 4.3 goes by the age of the position: this one would be gone at the first look at the empty group."""
    world.hear(request(member_epoch=GONE))
    world.sleep(2 * SWEEP_MS)
    assert stored(world) == [5]
    world.sleep(7 * DAY_MS)
    assert (stored(world), world.groups) == ([], {})


def test_members_that_came_and_went_between_two_rounds_begin_it_anew(world) -> None:
    world.hear(request(member_epoch=GONE))
    world.sleep(7 * DAY_MS - SWEEP_MS)
    join(world)
    world.hear(request(member_epoch=GONE))
    world.sleep(3 * SWEEP_MS)
    assert stored(world) == [5]


def test_a_new_coordinator_lets_a_whole_retention_go_by(world) -> None:
    """Nothing in the log says when a group of this kind lost its last member."""
    world.hear(request(member_epoch=GONE))
    world.sleep(6 * DAY_MS)
    world.fail_over()
    world.sleep(6 * DAY_MS)
    assert stored(world) == [5]
    world.sleep(DAY_MS + 2 * SWEEP_MS)
    assert (stored(world), world.groups) == ([], {})


def expire(world: MixedCoordinator) -> None:
    world.run(world.machine.tick(EXPIRE, world.now_ms))


def test_a_position_is_kept_while_an_expression_is_yet_to_be_looked_up(world) -> None:
    """It may mean the position's topic: a round that came between cost a live member its place in a quiet partition."""
    world.hear(request(member_epoch=GONE))
    world.sleep(SWEEP_MS)
    heard = request("n", names=[], subscribed_topic_regex="qui.*")
    world.run(world.machine.decide(command(heard), world.now_ms))
    expire(world)
    assert stored(world) == [5]


def test_a_position_is_kept_while_a_second_expression_waits_for_its_turn(world) -> None:
    """A rolling restart of two members, each with an expression of its own: the second one is looked up ten seconds later."""
    world.hear(request(member_epoch=GONE))
    world.hear(request("a", names=[], subscribed_topic_regex="other.*"))
    world.sleep(1_000)
    world.hear(request("b", names=[], subscribed_topic_regex="qui.*"))
    world.sleep(3_000)
    expire(world)
    assert stored(world) == [5]


def test_a_group_that_becomes_classic_keeps_the_positions_of_quiet_partitions(world) -> None:
    """Its first classic member is told its id, and joins a moment later, or never."""
    world.hear(request(member_epoch=GONE))
    world.sleep(SWEEP_MS)
    world.join("", ["quiet"])
    expire(world)
    assert stored(world) == [5]
