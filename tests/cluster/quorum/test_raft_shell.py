import asyncio
import errno

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import ConfigRefused, LogDamaged, Outcome, Trouble
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import Applied, MetadataMachine
from fencepost.cluster.metadata.records import ConfigsChanged, FeatureChanged
from fencepost.cluster.metadata.refusal import Refused
from fencepost.cluster.quorum import raft_shell, store
from fencepost.cluster.quorum.raft_shell import Quorum
from support.metadata_commands import created

FOLDER = "/data/quorum"
JOURNAL = f"{FOLDER}/{1:020d}.journal"


def setting(name: str, value: str = "1") -> bytes:
    return encode([ConfigsChanged(resource_type=ConfigType.BROKER, name="", changes={name: value})])


class Node:
    """One voter, started anew as often as one likes."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def start(self) -> None:
        self.machine = MetadataMachine()
        self.quorum = Quorum(self.env, FOLDER, self.machine, 1, {1: ("a", 9192)})
        await self.quorum.start()
        await self.quorum.wait_ready()

    @property
    def env(self) -> SimEnv:
        return self.world.node("a")

    def run(self, work) -> object:
        return self.world.run(self.world.on(self.env, work))

    def settings(self) -> dict[str, str]:
        return dict(self.machine.image.config(ConfigType.BROKER, ""))


@pytest.fixture
def world():
    with World(seed=1) as world:
        yield world


def syncs(world: World) -> int:
    return sum(line.count("disk.sync ") for line in world.trace.tail(10_000).splitlines())


# --- life -----------------------------------------------------------------------------------------


def test_a_voter_alone_elects_itself_at_once(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    assert (node.quorum.is_leader, node.quorum.term, node.quorum.leader_id) == (True, 1, 1)
    assert node.machine.image.controller_id == 1
    assert world.loop.time() < 0.02


def test_what_was_agreed_is_there_after_a_stop_a_kill_and_an_end_of_power(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    ends = [lambda: node.run(node.quorum.stop()), lambda: world.kill("a"), lambda: world.crash("a")]
    for number, end in enumerate(ends):
        node.run(node.quorum.propose(setting(f"s{number}")))
        end()
        world.restart("a")
        node.run(node.start())
        assert node.settings() == {f"s{each}": "1" for each in range(number + 1)}
        assert node.quorum.term == number + 2


def test_one_proposal_costs_one_sync(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(setting("first")))
    before = syncs(world)
    assert isinstance(node.run(node.quorum.propose(setting("second"))), Applied)
    assert syncs(world) == before + 1


def test_many_proposals_at_once_share_a_sync(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(setting("first")))
    before = syncs(world)

    async def many() -> None:
        results = await asyncio.gather(
            *(node.quorum.propose(setting(f"s{number}")) for number in range(500))
        )
        assert len({result.version for result in results}) == 500

    node.run(many())
    assert syncs(world) <= before + 2


def test_an_answer_never_comes_before_its_sync(world: World) -> None:
    """With a slow disk: at the time of the answer the entry survives an end of power."""
    world.node("a").machine.disk.faults.sync_s = (0.5, 0.5)
    node = Node(world)
    node.run(node.start())
    started = world.loop.time()
    node.run(node.quorum.propose(setting("slow")))
    assert world.loop.time() - started >= 0.5
    world.crash("a")
    world.restart("a")
    node.run(node.start())
    assert node.settings() == {"slow": "1"}


def test_a_refusal_is_an_answer_like_any_other(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    stale = encode([FeatureChanged(name="f", level=2, expects_level=1)])
    assert isinstance(node.run(node.quorum.propose(stale)), Refused)
    assert isinstance(node.run(node.quorum.propose(setting("after"))), Applied)


def test_an_idle_voter_alone_does_nothing_at_all(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(setting("last")))
    ticks = []
    node.quorum._raft.doTick = ticks.append

    async def hours() -> None:
        await node.env.clock.sleep(36_000)

    before = world.trace.tail(10_000)
    node.run(hours())
    assert ticks == []
    assert world.trace.tail(10_000) == before


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_a_kill_at_any_disk_operation_loses_nothing_acknowledged(
    kill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots, rolls and dropped segments among them, the kill between rename and trim too."""
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 12)
    monkeypatch.setattr("fencepost.cluster.quorum.journal.SEGMENT_BYTES_MAX", 600)
    done = False
    for operation in range(1, 400):
        with World(seed=f"{kill}/{operation}") as world:
            node, acknowledged = Node(world), []

            async def life(node: Node = node, acknowledged: list = acknowledged) -> None:
                await node.start()
                for number in range(40):
                    await node.quorum.propose(setting(f"s{number}"))
                    acknowledged.append(f"s{number}")
                await node.quorum.stop()

            world.node("a")
            world.crash_at_disk_op("a", operation, kill=kill)
            try:
                node.run(life())
                done = True
            except NodeLost:
                pass
            world.disk("a").on_operation = None
            if world.is_up("a"):
                world.crash("a")
            world.restart("a")
            node.run(node.start())
            found = set(node.settings())
            under_way = {f"s{len(acknowledged)}"}
            assert set(acknowledged) <= found <= {*acknowledged, *under_way}, operation
            # And it goes on from there.
            assert isinstance(node.run(node.quorum.propose(setting("next"))), Applied)
        if done:
            break
    assert done and operation > 60


def test_a_kill_between_the_snapshots_rename_and_the_journals_trim_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pysyncobj clears the whole journal then: 20 acknowledged entries came back as 15 (field.md §5.2.1)."""
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 20)
    node = Node(world)
    node.run(node.start())

    async def until_renamed() -> None:
        number = 0
        while not node.env.disk.exists(f"{FOLDER}/snapshot"):
            await node.quorum.propose(setting(f"s{number}"))
            number += 1

    node.run(until_renamed())
    acknowledged = node.settings()
    assert len(acknowledged) > 15
    world.kill("a")
    world.restart("a")
    node.run(node.start())
    assert node.settings() == acknowledged


# --- snapshots ------------------------------------------------------------------------------------


def test_a_long_log_becomes_a_snapshot_and_the_journal_stays_small(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 50)
    monkeypatch.setattr("fencepost.cluster.quorum.journal.SEGMENT_BYTES_MAX", 2000)
    node = Node(world)
    node.run(node.start())

    async def many() -> None:
        for number in range(400):
            await node.quorum.propose(setting("same", str(number)))

    node.run(many())
    assert len(node.quorum._journal) < 60
    assert len(node.env.disk.list(FOLDER)) <= 6
    version = node.machine.image.version
    node.run(node.quorum.stop())
    world.restart("a")
    node.run(node.start())
    assert (node.settings(), node.machine.image.version) == ({"same": "399"}, version)


def test_a_snapshot_that_can_not_be_written_is_tried_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 20)
    node = Node(world)
    node.run(node.start())
    world.disk("a").faults.fail("*", path="*/snapshot*", number=errno.ENOSPC)

    async def many() -> None:
        for number in range(40):
            await node.quorum.propose(setting(f"s{number}"))
        assert not node.env.disk.exists(f"{FOLDER}/snapshot")
        await node.env.clock.sleep(30)
        for number in range(3):
            await node.quorum.propose(setting(f"t{number}"))

    node.run(many())
    assert node.env.disk.exists(f"{FOLDER}/snapshot")
    assert len(node.quorum._journal) < 30
    said = [fields["message"] for _, event, fields in world.machine("a").events if event == "raft"]
    assert said == ["Failed to store full dump"]


def test_ten_thousand_partitions_are_back_in_well_under_a_second(world: World) -> None:
    """From the journal alone, and from a snapshot."""
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(encode([created(count=10_000)])))
    world.kill("a")
    world.restart("a")
    node.run(node.start())
    assert node.machine.image.partition_count() == 10_000


# --- troubles -------------------------------------------------------------------------------------


def test_a_full_disk_refuses_changes_clearly_and_goes_on_when_there_is_room(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    files = world.disk("a").files
    files.capacity = files.used + 10

    async def full() -> None:
        stuck = asyncio.ensure_future(node.quorum.propose(setting("stuck")))
        await node.env.clock.sleep(1)
        assert not stuck.done()  # it may happen yet
        with pytest.raises(Trouble, match=r"can't be written: .*No space left") as refused:
            await node.quorum.propose(setting("refused"))
        assert refused.value.outcome is Outcome.REFUSED
        files.capacity = None
        assert isinstance(await stuck, Applied)
        assert isinstance(await node.quorum.propose(setting("after")), Applied)

    node.run(full())
    assert node.settings() == {"stuck": "1", "after": "1"}


def test_a_voter_alone_goes_on_leading_however_slow_its_disk_is(world: World) -> None:
    """There is nobody who could take its place: what it was asked waits."""
    node = Node(world)
    node.run(node.start())
    world.node("a").machine.disk.faults.sync_s = (3.0, 3.0)

    async def slow() -> None:
        first = asyncio.ensure_future(node.quorum.propose(setting("first")))
        await node.env.clock.sleep(2)
        second = asyncio.ensure_future(node.quorum.propose(setting("second")))
        assert isinstance(await first, Applied)
        assert isinstance(await second, Applied)

    node.run(slow())
    assert node.quorum.term == 1


def test_a_node_that_starts_on_a_full_disk_waits_for_room(world: World) -> None:
    """It can't store its vote, so it can't lead; what it knows is not touched."""
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(setting("before")))
    files = world.disk("a").files
    files.capacity = files.used
    world.kill("a")
    world.restart("a")

    async def start_later() -> None:
        starting = asyncio.ensure_future(node.start())
        await node.env.clock.sleep(5)
        assert not starting.done()
        files.capacity = None
        await starting

    node.run(start_later())
    assert node.quorum.is_leader
    assert node.settings() == {"before": "1"}
    assert isinstance(node.run(node.quorum.propose(setting("after"))), Applied)


def test_a_sync_that_fails_ends_the_node() -> None:
    with World(seed=1, deaths_allowed=True) as world:
        node = Node(world)
        node.run(node.start())
        world.disk("a").faults.fail("sync", path="*.journal")
        with pytest.raises(NodeLost):
            node.run(node.quorum.propose(setting("lost")))
        ((_, reason),) = world.deaths
        assert "could not be synced" in str(reason)


def test_a_command_that_this_version_can_not_read_ends_the_node_and_says_why() -> None:
    """pysyncobj would apply it again for ever, and nothing behind it (field.md §5.2.4)."""
    import msgpack

    with World(seed=1, deaths_allowed=True) as world:
        node = Node(world)
        node.run(node.start())
        with pytest.raises(NodeLost):
            node.run(node.quorum.propose(msgpack.packb([[999, 1, []]])))
        ((_, reason),) = world.deaths
        assert "command 999 is not known to this version" in str(reason)
        world.restart("a")
        with pytest.raises(NodeLost):
            node.run(node.start())
        assert len(world.deaths) == 2


def test_a_proposal_under_way_at_a_stop_may_have_happened(world: World) -> None:
    node = Node(world)
    node.run(node.start())

    async def stops() -> None:
        asked = asyncio.ensure_future(node.quorum.propose(setting("asked")))
        await node.env.clock.sleep(0)
        await node.quorum.stop()
        with pytest.raises(Trouble) as trouble:
            await asked
        assert trouble.value.outcome is Outcome.UNKNOWN
        with pytest.raises(Trouble) as refused:
            await node.quorum.propose(setting("late"))
        assert refused.value.outcome is Outcome.REFUSED

    node.run(stops())


def test_whoever_gives_up_waiting_does_not_stop_the_others(world: World) -> None:
    node = Node(world)
    node.run(node.start())

    async def gives_up() -> None:
        given_up = asyncio.ensure_future(node.quorum.propose(setting("given up")))
        other = asyncio.ensure_future(node.quorum.propose(setting("other")))
        await node.env.clock.sleep(0)
        given_up.cancel()
        assert isinstance(await other, Applied)

    node.run(gives_up())
    assert node.settings() == {"given up": "1", "other": "1"}


def test_no_more_proposals_wait_than_have_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_shell, "PROPOSALS_MAX", 3)
    node = Node(world)
    node.run(node.start())

    async def flood() -> None:
        results = await asyncio.gather(
            *(node.quorum.propose(setting(f"s{number}")) for number in range(5)),
            return_exceptions=True,
        )
        refused = [result for result in results if isinstance(result, Trouble)]
        assert [each.outcome for each in refused] == [Outcome.REFUSED] * 2

    node.run(flood())


def test_a_lost_vote_a_lost_journal_and_a_lost_snapshot_each_stop_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 10)
    monkeypatch.setattr("fencepost.cluster.quorum.journal.SEGMENT_BYTES_MAX", 300)
    for lost in ("vote", "snapshot", "journal"):
        with World(seed=1) as world:
            node = Node(world)

            async def life(node: Node = node) -> None:
                await node.start()
                for number in range(30):
                    await node.quorum.propose(setting(f"s{number}"))
                await node.quorum.stop()

            node.run(life())
            env = world.restart("a")
            for name in env.disk.list(FOLDER):
                if name.endswith(lost):
                    env.disk.remove(f"{FOLDER}/{name}")
            with pytest.raises(LogDamaged):
                node.run(node.start())


def test_more_than_one_voter_is_refused_by_name(world: World) -> None:
    with pytest.raises(ConfigRefused, match=r"controller\.quorum\.voters"):
        Quorum(world.node("a"), FOLDER, MetadataMachine(), 1, {1: ("a", 1), 2: ("b", 2)})
