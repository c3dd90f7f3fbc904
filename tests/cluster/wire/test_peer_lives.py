"""Lives of folders, told in the greetings: who is let in, who is not, and what of a process of before still counts."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import FrameRefused
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Connection
from fencepost.cluster.wire import peer_frames
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.cluster.wire.peer_frames import pack_frame
from fencepost.cluster.wire.peer_handshake import (
    CONTROL,
    STREAM,
    FolderOfBefore,
    Identity,
    PeerRefused,
    challenge_guest,
    greet,
)
from fencepost.cluster.wire.peer_lives import (
    DISK_SIZE,
    SEEN_MAX,
    TOLD_MAX,
    Life,
    PeerLives,
    pack_life,
    read_life,
)
from peer_place import ONE, PEER_PORT, SECRET, THREE, TWO, Place, in_simulation, until

DISK, OTHER = b"d" * DISK_SIZE, b"o" * DISK_SIZE


def life(number: int, names: str, disk: bytes = DISK) -> Life:
    return Life(disk, number, tuple(map(ord, names)))


def who(
    place: Place, node_id: BrokerId, now: Life | None, incarnation: int = 1, **more: Any
) -> Identity:
    lives = PeerLives(lambda: now)  # type: ignore[arg-type,return-value]
    env = place.env(node_id)
    return Identity(
        env=env, node_id=node_id, incarnation=incarnation, secret=SECRET, lives=lives, **more
    )


async def dials(place: Place, me: Identity, channel: str = CONTROL) -> Connection:
    connection = await place.env(me.node_id).net.connect(*place.addresses[ONE])
    await greet(connection, me, "c", ONE, channel)
    return connection


def seen_at(door: PeerDoor) -> dict[Any, Any]:
    return {disk: tuple(seen) for (_, disk), seen in door.me.lives.seen.items()}


SAW: list[tuple[str, Life, Life | None, int]] = [
    ("the next one", life(7, "g"), life(8, "gh"), 0),
    ("the same one, again", life(7, "g"), life(7, "g"), 0),
    ("much later", life(7, "g"), life(9, "ghi"), 0),
    ("longer ago than it tells", life(7, "x"), life(9, "hi"), 0),
    ("another folder", life(7, "g"), life(1, "z", OTHER), 0),
    ("of an older build", life(7, "g"), None, 0),
    ("it does not know", life(7, "g"), life(0, ""), 0),
    ("put back, and so one behind", life(7, "g"), life(6, "f"), 7),
    ("put back, and as far again", life(7, "g"), life(7, "y"), 7),
    ("put back, and further by now", life(7, "g"), life(9, "yzz"), 7),
]


@pytest.mark.parametrize("channel", [CONTROL, STREAM])
@pytest.mark.parametrize(("case", "before", "now", "seen"), SAW, ids=[each[0] for each in SAW])
def test_who_dials_is_let_in_unless_what_was_seen_is_not_in_its_past(
    channel: str, case: str, before: Life, now: Life | None, seen: int
) -> None:
    async def scenario(place: Place) -> None:
        one = await place.door(ONE)
        one.me.lives.saw(TWO, before)
        me = who(place, TWO, now)
        if not seen:
            await dials(place, me, channel)
            return
        with pytest.raises(FolderOfBefore, match=f"life {seen} of that folder") as refused:
            await dials(place, me, channel)
        assert refused.value.seen == seen
        assert seen_at(one) == {DISK: (7, ord("g"))}
        assert one.connected() == []
        (said,) = place.logged(ONE, "peer_refused")
        assert "its folder is one of before" in said["cause"]

    in_simulation(scenario)


@pytest.mark.parametrize(("case", "before", "now", "seen"), SAW, ids=[each[0] for each in SAW])
def test_who_is_dialed_is_wanted_unless_what_was_seen_is_not_in_its_past(
    case: str, before: Life, now: Life | None, seen: int
) -> None:
    async def scenario(place: Place) -> None:
        env = place.env(TWO)
        told: list[object] = []

        async def serve(connection: Connection) -> None:
            try:
                (await challenge_guest(connection, who(place, TWO, now), "c")).let_in(connection)
            except PeerRefused as refused:
                told.append(refused)
            await connection.wait_closed()

        listener = await env.net.listen("node-2", PEER_PORT, serve)
        place.addresses[TWO] = listener.address
        one = await place.door(ONE, listen=False)
        one.me.lives.saw(TWO, before)
        one.watch([TWO])
        if not seen:
            await until(lambda: one.connected() == [TWO])
            return
        await until(lambda: told)
        assert f"life {seen} of that folder" in str(told[0])
        assert one.connected() == []
        assert "life" in str(one.refusal_of(TWO))

    in_simulation(scenario)


def test_a_door_tells_its_node_that_its_folder_is_of_before_and_only_when_that_is_proved() -> None:
    async def scenario(place: Place) -> None:
        one = await place.door(ONE)
        one.me.lives.saw(TWO, life(7, "g"))
        heard: list[tuple[int, int]] = []
        two = await place.door(TWO, secret=b"guessed")
        two.me.lives.mine = lambda: life(6, "f")
        two.on_folder_of_before(lambda node_id, seen: heard.append((node_id, seen)))
        two.watch([ONE])
        await asyncio.sleep(3)
        assert not heard, "whoever answers there has not proved that it is of this cluster"
        two.me.secret = SECRET
        await until(lambda: heard)
        assert heard[0] == (ONE, 7)

    in_simulation(scenario)


def test_builds_that_tell_no_life_and_those_that_do_meet_both_ways() -> None:
    async def scenario(place: Place) -> None:
        for number, lives in enumerate([(None, None), (None, life(1, "a")), (life(1, "a"), None)]):
            place.addresses.clear()
            env = place.env(ONE)

            async def serve(connection: Connection, now: Life | None = lives[1]) -> None:
                (await challenge_guest(connection, who(place, ONE, now), "c")).let_in(connection)

            listener = await env.net.listen("node-1", PEER_PORT + number, serve)
            place.addresses[ONE] = listener.address
            await dials(place, who(place, TWO, lives[0]))

    in_simulation(scenario)


def test_another_life_of_a_peer_that_is_connected_is_heard() -> None:
    async def scenario(place: Place) -> None:
        one, two = await place.door(ONE), await place.door(TWO)
        now = life(7, "g")
        two.me.lives.mine = lambda: now
        older = await dials(place, who(place, THREE, None))
        two.watch([ONE])
        await until(lambda: one.connected() == [TWO, THREE] and two.connected() == [ONE])
        assert seen_at(one) == {DISK: (7, ord("g"))}
        now = life(8, "gh")
        two.tell_life()
        await until(lambda: seen_at(one) == {DISK: (8, ord("h"))})
        one.me.lives.mine = lambda: life(3, "c", OTHER)
        received = older.received_bytes
        one.tell_life()
        await until(lambda: seen_at(two) == {OTHER: (3, ord("c"))})
        await asyncio.sleep(0.01)
        assert older.received_bytes == received, "an older build knows no such message"

    in_simulation(scenario)


def test_what_is_remembered_of_folders_has_a_bound() -> None:
    lives = PeerLives()
    for number in range(SEEN_MAX + 1):
        lives.saw(TWO, Life(DISK, number + 1, (number, number + 1)))
        lives.saw(TWO, life(1, "a", b"%016d" % number))
    assert len(lives.seen) == SEEN_MAX
    assert (TWO, DISK) in lives.seen, "it was seen a moment ago"


@pytest.mark.parametrize(
    "said",
    [
        *(1, "x", [], [DISK, 1], [b"short", 1, [1]], [DISK, -1, [1]], [DISK, True, [1]]),
        *([DISK, 1 << 62, [1]], [DISK, 1, [None]], [DISK, 1, [1 << 62]], [DISK, 1, [1], 1]),
        [DISK, 1, [1] * (TOLD_MAX + 1)],
    ],
)
def test_a_life_that_is_none_is_refused(said: object) -> None:
    with pytest.raises(FrameRefused):
        read_life(said)
    assert read_life(pack_life(life(8, "gh"))) == life(8, "gh")


@pytest.mark.parametrize(
    "said", [{}, [1], [[2, DISK, 1]], [[-1, DISK, 1, 1]], [[2, b"x", 1, 1]], [[2, DISK, 1, -1]]]
)
def test_a_peer_that_tells_what_can_not_have_been_seen_loses_its_connection(said: object) -> None:
    async def scenario(place: Place) -> None:
        one = await place.door(ONE)
        connection = await dials(place, who(place, TWO, None))
        await until(lambda: one.connected() == [TWO])
        connection.write(pack_frame(peer_frames.message("life", {"seen": said})))
        await until(lambda: one.connected() == [])
        assert seen_at(one) == {}

    in_simulation(scenario)


def test_peers_tell_each_other_what_they_have_seen_and_the_later_life_counts() -> None:
    async def scenario(place: Place) -> None:
        one, two = await place.door(ONE), await place.door(TWO)
        one.me.lives.saw(THREE, life(7, "g"))
        one.me.lives.saw(THREE, life(3, "c", OTHER))
        two.me.lives.saw(THREE, life(6, "f"))
        two.me.lives.saw(THREE, life(4, "cd", OTHER))
        one.watch([TWO])
        await until(lambda: seen_at(two) == {DISK: (7, ord("g")), OTHER: (4, ord("d"))})
        two.watch([ONE])
        await until(lambda: seen_at(one) == seen_at(two))

    in_simulation(scenario)


# --- late frames of a process of before -----------------------------------------------------------


def note(number: int) -> Any:
    return pack_frame(peer_frames.message("note", {"n": number}))


def test_what_an_earlier_process_had_said_does_not_count_when_the_next_one_has_come() -> None:
    """Its last words come late, on the connection that this node had opened to it."""

    async def scenario(place: Place) -> None:
        heard: list[int] = []
        env = place.env(TWO)
        dialed: list[Connection] = []
        processes = iter((11, 22, 22))

        async def serve(connection: Connection) -> None:
            me = who(place, TWO, None, incarnation=next(processes))
            (await challenge_guest(connection, me, "c")).let_in(connection)
            dialed.append(connection)
            await connection.wait_closed()

        listener = await env.net.listen("node-2", PEER_PORT, serve)
        place.addresses[TWO] = listener.address
        one = await place.door(ONE)
        one.on_message("note", lambda _node, header, _payload: heard.append(header["n"]))
        one.watch([TWO])
        await until(lambda: one.connected() == [TWO])
        dialed[0].write(note(1))
        await until(lambda: heard == [1])
        newer = await dials(place, who(place, TWO, None, incarnation=22))
        dialed[0].write(note(2))
        newer.write(note(3))
        await until(lambda: 3 in heard)
        await asyncio.sleep(0.1)
        assert heard == [1, 3]
        newer.abort()
        await asyncio.sleep(0.1)
        dialed[0].write(
            note(4)
        )  # still of the earlier one: the connection is worth nothing any more
        await until(lambda: len(dialed) == 2)
        dialed[1].write(note(5))
        await until(lambda: 5 in heard)
        assert heard == [1, 3, 5]

    in_simulation(scenario)


def test_a_process_that_is_dialed_later_than_another_that_left_is_heard() -> None:
    async def scenario(place: Place) -> None:
        heard: list[int] = []
        one = await place.door(ONE)
        one.on_message("note", lambda _node, header, _payload: heard.append(header["n"]))
        for number in (1, 2, 3):
            connection = await dials(place, who(place, TWO, None, incarnation=number))
            connection.write(note(number))
            await until(lambda number=number: number in heard)
            connection.abort()
            await until(lambda: one.connected() == [])
        assert heard == [1, 2, 3]

    in_simulation(scenario)
