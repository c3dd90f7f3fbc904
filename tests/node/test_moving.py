"""A plan that is interrupted at an awkward moment."""

from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli.move_plan import Move
from fencepost.node.cli.moving import ALL, Carrier, Throttle, carry_out


class InterruptedWire:
    """Ctrl-C comes when the order has been heard, and its answer has not."""

    def __init__(self) -> None:
        self.settings: dict[tuple[str, str], str | None] = {}

    def ask(self, key: ApiKey, **fields: Any) -> Any:
        match key:
            case ApiKey.alter_partition_reassignments:
                raise KeyboardInterrupt
            case ApiKey.incremental_alter_configs:
                for resource in fields["resources"]:
                    for each in resource["configs"]:
                        self.settings[resource["resource_name"], each["name"]] = each["value"]
                return SimpleNamespace(responses=[])
            case ApiKey.describe_configs:
                return SimpleNamespace(results=list(map(self._described, fields["resources"])))
        raise AssertionError(key)

    def _described(self, resource: dict[str, Any]) -> Any:
        topic = resource["resource_name"]
        configs = [
            SimpleNamespace(name=name, value=value, config_source=1, error_code=ErrorCode.none)
            for (of, name), value in self.settings.items()
            if of == topic
        ]
        return SimpleNamespace(resource_name=topic, configs=configs)

    def sleep(self, seconds: float) -> None: ...


def test_a_move_whose_order_was_not_answered_stays_throttled() -> None:
    wire: Any = InterruptedWire()
    move = Move(topic="t", partition=0, before=(1, 2), after=(1, 3), size=10)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        carry_out(Carrier(wire, [move], 1, Throttle(wire, ["t"], 1000)), say=said.append)
    assert wire.settings["t", "leader.replication.throttled.replicas"] == ALL
    assert wire.settings["", "leader.replication.throttled.rate"] == "1000"
    assert "1 go on moving" in said[0]
