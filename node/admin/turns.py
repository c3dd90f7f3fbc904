"""Whoever shows no token takes turns: so many answers a second of one address.

INVARIANT  what strangers of one address are answered takes a bounded share of the loop, however many they are.
PREVENTS   2,500 connections that ask whether the node lives having every producer wait for 1.6 s.
PROVED BY  tests/node/test_admin_turns.py::test_a_crowd_of_one_address_is_answered_at_its_rate_and_no_other_waits_for_it

To refuse costs what to answer does, and who is refused at once asks again at once. So they wait: for their turn, or to be
told that it is too far off.
"""

from typing import Final

from fencepost.cluster.base.ports import Clock

# An answer costs 0.3 to 0.5 ms of the loop, whatever it is (aiohttp's reading, two tasks, its writing).
TURNS_PER_S: Final = 100
TURNS_AT_ONCE: Final = 50
TURN_WAIT_S: Final = 10.0
ADDRESSES_MAX: Final = 1_000  # then those are forgotten that have not asked for a while


class Turns:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_s: dict[str, float] = {}  # the first turn of an address that is not taken

    async def take(self, address: str) -> bool:
        """Returns when it is its turn; False when that would be too late."""
        now = self._clock.steady()
        # Who has not asked for so long may ask so often at once.
        saved_s = TURNS_AT_ONCE / TURNS_PER_S
        if len(self._next_s) >= ADDRESSES_MAX:
            self._next_s = {each: s for each, s in self._next_s.items() if s > now - saved_s}
        turn_s = max(self._next_s.get(address, now - saved_s), now - saved_s)
        if turn_s - now > TURN_WAIT_S:
            await self._clock.sleep(TURN_WAIT_S)
            return False
        self._next_s[address] = turn_s + 1 / TURNS_PER_S
        if turn_s > now:
            await self._clock.sleep(turn_s - now)
        return True
