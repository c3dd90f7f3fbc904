"""Somebody changes settings of topics and of all brokers while they are in use, and remembers what was acknowledged. All that he asks for
is allowed: a refusal that no later try mends ends the run.

The judge is `checkers/settings.py`. Nothing that he sets takes anything away that others are owed: retention stays above what a clock
that was set wrong can make of a record's age, and unclean elections stay off.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.wire.api import ApiKey

from ..checkers.settings import Asked, Name
from .cluster_client import LOOK_AGAIN, Address, ClusterClient
from .txn_answers import asks_again
from .txn_client import TransactionalProducer

TOPIC, BROKER = 2, 4  # ConfigResource.Type
SET, DELETE = 0, 1  # AlterConfigOp.OpType
DELETE_ODDS: Final = 0.2
PAUSE_S: Final = 0.4
RETRY_PAUSE_S: Final = 0.1
# ConfigEntry.ConfigSource: what somebody has set while it ran, of the topic or of all brokers.
DYNAMIC: Final = {TOPIC: 1, BROKER: 3}
ALL_BROKERS: Final = ""
# A node asks the controller, and that may be another one by now, or none.
AGAIN: Final = LOOK_AGAIN | {ErrorCode.not_controller, ErrorCode.throttling_quota_exceeded}
LONG_MS: Final = "30000000000000"
OF_TOPICS: Final[dict[str, tuple[str, ...]]] = {
    "internal.segment.bytes": ("2048", "4096", "16384"),
    "max.message.bytes": ("30000", "100000", "1000000"),
    "index.interval.bytes": ("64", "256", "4096"),
    "retention.ms": ("-1", LONG_MS),
    "segment.ms": ("500", "60000", LONG_MS),
    "compression.type": ("producer", "gzip"),
    "delete.retention.ms": ("0", "1000", "86400000"),
}
# Of a topic that nobody writes to.
OF_IDLE: Final[dict[str, tuple[str, ...]]] = {
    **OF_TOPICS,
    "min.insync.replicas": ("1", "2", "3"),
    "retention.bytes": ("1000", "-1"),
    "cleanup.policy": ("delete", "compact", "compact,delete"),
}
OF_BROKERS: Final[dict[str, tuple[str, ...]]] = {
    "message.max.bytes": ("1048588", "2000000"),
    "log.cleaner.backoff.ms": ("100", "1000", "15000"),
    "log.index.size.max.bytes": ("10485760", "5000000"),
    "request.log.slow.ms": ("1000", "700"),
}


class Knobs(NamedTuple):
    """What he changes."""

    of_topics: Mapping[str, tuple[str, ...]]
    of_idle: Mapping[str, tuple[str, ...]]
    of_brokers: Mapping[str, tuple[str, ...]]


HERE: Final = Knobs(OF_TOPICS, OF_IDLE, OF_BROKERS)


class Shown(NamedTuple):
    """A setting as a node shows it. `own` is None where nobody has set it of just this: then `value` comes from elsewhere."""

    value: str | None
    own: str | None


NOWHERE: Final = Shown(None, None)


class Tuner:
    """`find` asks every node what it has, when all is over."""

    def __init__(
        self, client: ClusterClient, topics: Sequence[str], idle: str, knobs: Knobs = HERE
    ) -> None:
        self.client = client
        self.stopping = False
        self.acknowledged = 0
        self.producers: list[TransactionalProducer] = []
        self.asked: list[Asked] = []
        self.resources: dict[tuple[int, str], Mapping[str, tuple[str, ...]]] = {
            (BROKER, ALL_BROKERS): knobs.of_brokers,
            (TOPIC, idle): knobs.of_idle,
            **{(TOPIC, topic): knobs.of_topics for topic in topics},
        }

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            kind, name = rng.choice(list(self.resources))
            await self._change(kind, name)
            await clock.sleep(PAUSE_S * rng.random())

    async def _change(self, kind: int, name: str) -> None:
        """One or two settings of a resource: both are taken, or none."""
        rng, settings = self.client.env.rng, self.resources[kind, name]
        changes = []
        for setting in rng.sample(sorted(settings), rng.randint(1, 2)):
            value = None if rng.random() < DELETE_ODDS else rng.choice(settings[setting])
            changes.append(Asked(resource_name(kind, name), setting, value, "info"))
        self.begun(changes)
        try:
            await self._ask(kind, name, changes)
        finally:
            self.ended(changes)

    def begun(self, changes: Sequence[Asked]) -> None:
        """Nobody has heard of them yet: who may be killed writes them down here."""
        self.asked += changes

    def ended(self, changes: Sequence[Asked]) -> None:
        """All is known of them that ever will be."""

    async def _ask(self, kind: int, name: str, changes: Sequence[Asked]) -> None:
        configs = [
            {
                "name": each.setting,
                "config_operation": DELETE if each.value is None else SET,
                "value": each.value,
            }
            for each in changes
        ]
        try:
            reply = await self.client.any().request(
                ApiKey.incremental_alter_configs,
                resources=[{"resource_type": kind, "resource_name": name, "configs": configs}],
                validate_only=False,
            )
        except Trouble as trouble:
            if trouble.outcome is Outcome.REFUSED:
                for each in changes:
                    each.type = "fail"
            return
        error = reply.responses[0].error_code
        if error is ErrorCode.none:
            self.acknowledged += 1
            for each in changes:
                each.type = "ok"
            return
        asked = {each.setting: each.value for each in changes}
        asks_again(self.client.name, f"{asked} of {resource_name(kind, name)}", error, AGAIN)

    async def find(self, address: Address) -> dict[Name, Shown]:
        """What this node says that it has."""
        while True:
            try:
                return await self._described(address)
            except Trouble:
                await self.client.env.clock.sleep(RETRY_PAUSE_S)

    async def _described(self, address: Address) -> dict[Name, Shown]:
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": sorted(settings)}
            for (kind, name), settings in self.resources.items()
        ]
        reply = await self.client.wire_to(address).request(
            ApiKey.describe_configs,
            resources=resources,
            include_synonyms=False,
            include_documentation=False,
        )
        found: dict[Name, Shown] = {}
        for (kind, name), settings in self.resources.items():
            found |= {(resource_name(kind, name), setting): NOWHERE for setting in settings}
        for each in reply.results:
            if each.error_code is not ErrorCode.none:
                raise Trouble(f"{each.resource_name}: {each.error_code.name}", Outcome.REFUSED)
            for config in each.configs:
                name = resource_name(each.resource_type, each.resource_name)
                is_own = config.config_source == DYNAMIC[each.resource_type]
                found[name, config.name] = Shown(config.value, config.value if is_own else None)
        return found


def resource_name(kind: int, name: str) -> str:
    return f"topic {name}" if kind == TOPIC else f"brokers {name or 'all'}"
