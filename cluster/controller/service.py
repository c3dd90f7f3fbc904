"""The active controller: decides commands on its image and has the quorum agree to the records.

INVARIANT  what is answered as done is in the metadata log, committed, and applied on this node.
PREVENTS   a client that is told of a topic which the next controller has never heard of.
PROVED BY  tests/cluster/controller/test_controller.py::test_an_answer_comes_after_the_record_is_applied

A decision is made on the image that all decisions before it make (`ahead.py`), and none waits for another: many share
one sync of the journal. Should one of them not happen after all, the log refuses those behind it, and they are decided
again on what is there.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from ..base.errors import ErrorCode, Outcome, Trouble
from ..base.ids import BrokerId
from ..base.ports import Env
from ..metadata.codec import BATCH_BYTES_MAX, Command, encode
from ..metadata.image import ClusterImage
from ..metadata.levels import level_with
from ..metadata.machine import Applied, Result
from ..metadata.records import ImageExpected
from ..metadata.refusal import Reason, Refused
from ..metadata.topic_config import TopicConfigs
from . import (
    brokers_policy,
    configs_policy,
    elect_policy,
    features_policy,
    full_disks,
    isr_policy,
    metrics,
    partitions_policy,
    reassign_policy,
    told,
    topics_policy,
)
from .ahead import Ahead
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
    ReportDisk,
    UnregisterBroker,
    UpdateFeatures,
)
from .decision import TOO_LARGE, CommandRefused, Decision, Disks, Scene
from .election_policy import first_of

R = TypeVar("R")

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
    ReportDisk: full_disks.decide_report_disk,
    UnregisterBroker: brokers_policy.decide_unregister_broker,
    UpdateFeatures: features_policy.decide_update_features,
}


class NotController(Trouble):
    """This node does not lead the quorum; `leader_id` does, if it is known. `why` nobody does, if that is."""

    def __init__(self, leader_id: BrokerId | None, why: str | None = None) -> None:
        said = f"The active controller is {leader_id}, not this node."
        if leader_id is None:
            because = (
                "a majority of its voters must run and reach each other" if why is None else why
            )
            said = f"Nobody leads the metadata quorum: {because}."
        super().__init__(said, Outcome.REFUSED)
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

    @property
    def term(self) -> int: ...

    @property
    def voters_to_be(self) -> Collection[BrokerId]: ...

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
        self._ahead = Ahead(quorum.image)
        self.counters = metrics.ControllerCounters()
        self.disks: Callable[[], Disks] = Disks

    async def execute(self, command: ControllerCommand[R]) -> R:
        """Answers when it is done. NotController, or Trouble with outcome UNKNOWN when the lead was lost midway."""
        decide: Callable[[Scene, Any], Decision[R]] = DECIDE[type(command)]
        return await self.run(
            type(command).__name__,
            lambda scene: decide(scene, command),
            cause=told.cause_of(command),
            leader_tells=isinstance(command, AlterPartition),
            at_once=isinstance(command, BrokerHeartbeat),
        )

    async def run(
        self,
        what: str,
        decide: Callable[[Scene], Decision[R]],
        *,
        cause: str = "",
        leader_tells: bool = False,
        at_once: bool = False,
    ) -> R:
        """The same for a decision that nobody asked for: a silent broker's fencing, a round of balancing.

        `at_once`: what needs no record, and would be answered the same without all that is under way, waits for none of
        it. A broker whose heartbeat waited behind others' changes, on slow disks, took itself for cut off.
        """
        refused: Refused | None = None
        cause = cause or told.OF_DUTIES.get(what, what)
        for _ in range(ATTEMPTS_MAX):
            decision, result = await self._decided(
                decide,
                lambda image, records: told.lines_of(
                    image, records, cause, leader_tells=leader_tells
                ),
                at_once=at_once,
            )
            if not isinstance(result, Refused):
                if decision.is_part:
                    continue
                return decision.reply(result)
            assert result.reason not in (Reason.IMPOSSIBLE, Reason.TWICE_IN_BATCH), result.message
            refused = result
            self._env.log.info("controller_decides_again", command=what, cause=refused.message)
        if refused is None:
            raise Trouble("It has more parts than are done at a time.", Outcome.REFUSED)
        raise Trouble(f"Others were always faster: {refused.message}", Outcome.REFUSED)

    async def _decided(
        self,
        decide: Callable[[Scene], Decision[R]],
        lines_of: Callable[[ClusterImage, Sequence[Command]], Sequence[told.Line]],
        *,
        at_once: bool,
    ) -> tuple[Decision[R], int | Refused]:
        """A decision, and the version at which it holds; or why the log did not take it."""
        while (first := self._ahead.alone) is not None:
            if at_once:
                decision, entry = self._decide(decide)
                if not entry and self._is_so_already(decide, decision):
                    return decision, self._quorum.image.version
            await asyncio.shield(first.ended)
        # from here ...
        decision, entry = self._decide(decide)
        if not entry:
            if at_once and self._is_so_already(decide, decision):
                return decision, self._quorum.image.version
            return decision, await self._read()
        lines = lines_of(self._ahead.image, decision.records)  # of what was before
        counted = metrics.count(self._ahead.image, decision.records)
        proposal = self._ahead.propose(decision.records)
        is_known = well = False
        try:
            result = await self._quorum.propose(entry)
            # ... to here no await: entries reach the log in the order in which they were decided
            is_known = True
            well = isinstance(result, Applied) and result.version == proposal.version
            if isinstance(result, Applied):
                told.say(self._env.log, lines)
            return decision, result if isinstance(result, Refused) else result.version
        finally:
            self._ahead.end(proposal, well=well, is_known=is_known)
            if well:
                self.counters.add(counted)

    def _is_so_already(self, decide: Callable[[Scene], Decision[R]], decision: Decision[R]) -> bool:
        image = self._quorum.image
        now = decide(self._scene(image))
        return not now.records and now.reply(image.version) == decision.reply(image.version)

    async def _read(self) -> int | Refused:
        """What is answered without a record was read of an image that may not be yet: it waits until it is."""
        last = self._ahead.last
        if last is not None and not await asyncio.shield(last.ended):
            return Refused(Reason.STALE_IMAGE, "What it was decided on did not happen.")
        return self._quorum.image.version

    def _decide(self, decide: Callable[[Scene], Decision[R]]) -> tuple[Decision[R], bytes]:
        if not self._quorum.is_leader:
            raise NotController(self._quorum.leader_id)
        scene = self._scene()
        decision = decide(scene)
        if not decision.records:
            return decision, b""
        expected = ImageExpected(version=scene.image.version)
        level = level_with(scene.image, decision.records)
        entry = encode([expected, *decision.records], level)
        if len(entry) > BATCH_BYTES_MAX:
            part = first_of(decision.apart()) if decision.apart is not None else []
            if part:
                parted = replace(decision, records=list(part), is_part=True)
                return parted, encode([expected, *part], level)
            assert decision.too_large is not None, f"{len(decision.records)} records, {len(entry)}"
            refused = decision.too_large(CommandRefused(ErrorCode.policy_violation, TOO_LARGE))
            return Decision(reply=lambda _version: refused), b""
        return decision, entry

    def is_registered(self, broker_id: BrokerId) -> bool:
        """By all that is decided here, though it may not be committed yet: what is logged now comes behind that."""
        return broker_id in self._ahead.image.brokers

    def _scene(self, image: ClusterImage | None = None) -> Scene:
        return Scene(
            image=self._ahead.image if image is None else image,
            node_id=self._quorum.node_id,
            node_config=self._node_config,
            topic_configs=self._topic_configs,
            rng=self._env.rng,
            now_ms=self._env.clock.now_ms(),
            voters=self._quorum.voters_to_be,
            disks=self.disks(),
        )
