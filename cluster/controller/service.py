"""The active controller: decides commands on its image and has the quorum agree to the records.

INVARIANT  what is answered as done is in the metadata log, committed, and applied on this node.
PREVENTS   a client that is told of a topic which the next controller has never heard of.
PROVED BY  tests/cluster/controller/test_controller.py::test_an_answer_comes_after_the_record_is_applied

Decisions are made on what is applied. Those that name all that they rely on don't wait for each other, so that many
share one sync of the journal: should two of them be about the same thing, the second one's record is refused by
the log, and it is decided again on the new image. What changes brokers or settings is decided alone (`turns.py`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from ..base.errors import ErrorCode, Outcome, Trouble
from ..base.ids import BrokerId
from ..base.ports import Env
from ..metadata.codec import BATCH_BYTES_MAX, encode
from ..metadata.image import ClusterImage
from ..metadata.machine import Result
from ..metadata.refusal import Reason, Refused
from ..metadata.topic_config import TopicConfigs
from . import (
    brokers_policy,
    configs_policy,
    elect_policy,
    features_policy,
    isr_policy,
    partitions_policy,
    reassign_policy,
    topics_policy,
)
from .commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    AutoCreateTopics,
    BrokerHeartbeat,
    ControllerCommand,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    FormCluster,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeatures,
)
from .decision import TOO_LARGE, CommandRefused, Decision, Scene
from .turns import Turns, go_together

R = TypeVar("R")

# A batch without commands, which the machine refuses: when that is said, all before it is applied.
NOTHING: Final = encode(())
ATTEMPTS_MAX: Final = 20  # decisions of one command; more means that something else is wrong

DECIDE: Final[Mapping[type[ControllerCommand[Any]], Callable[[Scene, Any], Decision[Any]]]] = {
    AllocateProducerIds: brokers_policy.decide_allocate_producer_ids,
    AlterConfigs: configs_policy.decide_alter_configs,
    AlterPartition: isr_policy.decide_alter_partition,
    AlterReassignments: reassign_policy.decide_alter_reassignments,
    AutoCreateTopics: topics_policy.decide_auto_create_topics,
    BrokerHeartbeat: brokers_policy.decide_heartbeat,
    CreatePartitions: partitions_policy.decide_create_partitions,
    CreateTopics: topics_policy.decide_create_topics,
    DeleteTopics: topics_policy.decide_delete_topics,
    ElectLeaders: elect_policy.decide_elect_leaders,
    FormCluster: brokers_policy.decide_form_cluster,
    RegisterBroker: brokers_policy.decide_register_broker,
    UnregisterBroker: brokers_policy.decide_unregister_broker,
    UpdateFeatures: features_policy.decide_update_features,
}


class NotController(Trouble):
    """This node does not lead the quorum; `leader_id` does, if it is known."""

    def __init__(self, leader_id: BrokerId | None) -> None:
        super().__init__(f"The active controller is {leader_id}, not this node.", Outcome.REFUSED)
        self.leader_id = leader_id


class Agreement(Protocol):
    """What the controller needs of the quorum (`quorum/raft_shell.py`)."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def node_id(self) -> BrokerId: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_id(self) -> BrokerId | None: ...

    async def propose(self, record: bytes) -> Result: ...


class Executes(Protocol):
    """Whoever has commands done: the active controller itself, or the way to it from any node (`gate.py`)."""

    async def execute(self, command: ControllerCommand[R]) -> R: ...


class Controller:
    """`node_config` holds the node's own settings, broker-level names to text, as in its file."""

    def __init__(self, env: Env, quorum: Agreement, node_config: Mapping[str, str]) -> None:
        self._env = env
        self._quorum = quorum
        self._node_config = node_config
        self._topic_configs = TopicConfigs(node_config, quorum.node_id)
        self._turns = Turns()
        self._doubts = 0  # proposals whose end is not known, so far
        self._cleared = 0  # of them

    async def execute(self, command: ControllerCommand[R]) -> R:
        """Answers when it is done. NotController, or Trouble with outcome UNKNOWN when the lead was lost midway."""
        decide: Callable[[Scene, Any], Decision[R]] = DECIDE[type(command)]
        return await self.run(type(command).__name__, lambda scene: decide(scene, command))

    async def run(self, what: str, decide: Callable[[Scene], Decision[R]]) -> R:
        """The same for a decision that nobody asked for: a silent broker's fencing, a round of balancing."""
        refused: Refused | None = None
        for _ in range(ATTEMPTS_MAX):
            decision, result = await self._decided(decide)
            if not isinstance(result, Refused):
                return decision.reply(result)
            assert result.reason not in (Reason.IMPOSSIBLE, Reason.TWICE_IN_BATCH), result.message
            refused = result
            self._env.log.info("controller_decides_again", command=what, reason=refused.message)
        assert refused is not None
        raise Trouble(f"Others were always faster: {refused.message}", Outcome.REFUSED)

    async def _decided(
        self, decide: Callable[[Scene], Decision[R]]
    ) -> tuple[Decision[R], int | Refused]:
        """A decision, and the version at which it holds; or why the log did not take it."""
        await self._turns.free()
        while self._doubts != self._cleared:
            await self._clear_doubts()
            await self._turns.free()
        decision, entry = self._decide(decide)
        if go_together(decision.records):
            with self._turns.together():
                return decision, await self._agree(entry)
        waits = not self._turns.is_idle
        async with self._turns.alone():
            while self._doubts != self._cleared:
                await self._clear_doubts()
            if waits:
                decision, entry = self._decide(decide)
            return decision, await self._agree(entry)

    def _decide(self, decide: Callable[[Scene], Decision[R]]) -> tuple[Decision[R], bytes]:
        if not self._quorum.is_leader:
            raise NotController(self._quorum.leader_id)
        decision = decide(self._scene())
        entry = encode(decision.records) if decision.records else b""
        if len(entry) > BATCH_BYTES_MAX:
            assert decision.too_large is not None, f"{len(decision.records)} records, {len(entry)}"
            refused = decision.too_large(CommandRefused(ErrorCode.policy_violation, TOO_LARGE))
            return Decision(reply=lambda _version: refused), b""
        return decision, entry

    async def _agree(self, entry: bytes) -> int | Refused:
        if not entry:
            return self._quorum.image.version
        result = await self._ask(entry)
        return result if isinstance(result, Refused) else result.version

    async def _ask(self, entry: bytes) -> Result:
        """An answer that does not come, or is not waited for, leaves the entry where it is: maybe in the log."""
        answered = False
        try:
            result = await self._quorum.propose(entry)
            answered = True
            return result
        finally:
            if not answered:
                self._doubts += 1

    async def _clear_doubts(self) -> None:
        """Until all that this node had proposed so far is applied, or never will be."""
        doubts = self._doubts
        if not self._quorum.is_leader:
            raise NotController(self._quorum.leader_id)
        await self._ask(NOTHING)
        self._cleared = max(self._cleared, doubts)

    def _scene(self) -> Scene:
        return Scene(
            image=self._quorum.image,
            node_id=self._quorum.node_id,
            node_config=self._node_config,
            topic_configs=self._topic_configs,
            rng=self._env.rng,
            now_ms=self._env.clock.now_ms(),
        )
