"""Which brokers have been silent for too long.

Only a broker that has once sent a heartbeat is watched: a node that is alone has nobody to fence it for, and
its own pauses must not take it out of service.
"""

from ..base.ids import BrokerEpoch, BrokerId


class HeartbeatsMachine:
    """The sessions of brokers, as the active controller keeps them. A new controller starts with none."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._heard: dict[BrokerId, tuple[BrokerEpoch, int]] = {}

    def heard(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        self._heard[broker_id] = (broker_epoch, now_ms)

    def watch(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        """A registration that has a session keeps it; another begins one."""
        if self._heard.get(broker_id, (None, 0))[0] != broker_epoch:
            self.heard(broker_id, broker_epoch, now_ms)

    def forget(self, broker_id: BrokerId) -> None:
        self._heard.pop(broker_id, None)

    def excuse(self, by_ms: int) -> None:
        """Nobody could have been heard for so long."""
        self._heard = {each: (epoch, at + by_ms) for each, (epoch, at) in self._heard.items()}

    def has_session(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> bool:
        """Whether this registration was heard of within the timeout."""
        epoch, heard_ms = self._heard.get(broker_id, (None, 0))
        return epoch == broker_epoch and now_ms - heard_ms < self.session_timeout_ms

    def tick(self, now_ms: int) -> list[tuple[BrokerId, BrokerEpoch]]:
        """The registrations to fence, by broker id. They are not watched any longer."""
        silent = [
            (broker_id, self._heard[broker_id][0])
            for broker_id in sorted(self._heard)
            if now_ms - self._heard[broker_id][1] >= self.session_timeout_ms
        ]
        for broker_id, _ in silent:
            self.forget(broker_id)
        return silent

    def next_tick_ms(self) -> int | None:
        """When the next session may be over; None when nobody is watched."""
        heard = [heard_ms for _, heard_ms in self._heard.values()]
        return min(heard) + self.session_timeout_ms if heard else None
