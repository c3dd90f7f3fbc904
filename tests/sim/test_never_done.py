"""What nodes refuse for good, or never do, ends a run: of what is never done nothing is wrong."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.chaos.campaigns.campaign import Outcome, run_plan
from fencepost.chaos.planted.bugs import Patch
from fencepost.chaos.sim import cluster, scenes, transactions_run
from fencepost.chaos.sim.cluster_progress import as_long_as_it_goes_on
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.node.handlers import delete_records, incremental_alter_configs, list_offsets
from fencepost.replication.log import compaction
from fencepost.replication.partition_reads import ReadablePartition, Refusal
from fencepost.txn.groups import offset_requests
from fencepost.txn.groups.service import GroupService
from fencepost.txn.transactions.added_service import AddedService

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cluster, transactions_run):
        monkeypatch.setattr(module, "CONVERGE_S", 15.0)
    monkeypatch.setattr(scenes, "SETTLE_S", 10.0)


def no_group_may_commit(error: ErrorCode) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        async def refuses(self: GroupService, ctx: Any, body: Any, *, is_late: bool = False) -> Any:
            plan = offset_requests.plan_commit(self._image, body.topics)
            return {"topics": plan.answer(error)}

        patch.put(GroupService, "offset_commit", refuses)

    return plant


def times_are_never_told(error: ErrorCode) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        right = list_offsets._find

        async def find(
            ctx: Any, topic: str, wanted: Any, isolation: int, *, is_of_now: bool
        ) -> Any:
            if wanted.timestamp >= 0 or wanted.timestamp == list_offsets.MAX_TIMESTAMP:
                return {"error_code": error, **list_offsets._UNKNOWN}
            return await right(ctx, topic, wanted, isolation, is_of_now=is_of_now)

        patch.put(list_offsets, "_find", find)

    return plant


def followers_serve_nobody(patch: Patch) -> None:
    right = ReadablePartition.read

    def read(self: ReadablePartition, *asked: Any, **how: Any) -> Any:
        if not self.is_leader and how.get("leader_only") is False:
            return Refusal(ErrorCode.not_leader_or_follower)
        return right(self, *asked, **how)

    patch.put(ReadablePartition, "read", read)


def nothing_is_deleted(error: ErrorCode) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        patch.put(delete_records, "_delete", lambda _services, _topic, _index, _before: error)

    return plant


def no_setting_is_changed(error: ErrorCode) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        async def refuses(_services: Any, request: Any, *, replace_all: bool) -> Any:
            refused = {"error_code": error, "error_message": None}
            named = [
                {"resource_type": each.resource_type, "resource_name": each.resource_name}
                for each in request.resources
            ]
            return {"responses": [refused | each for each in named]}

        patch.put(incremental_alter_configs, "alter", refuses)

    return plant


def nothing_is_compacted(patch: Patch) -> None:
    patch.put(compaction, "dirt", lambda _log, _now_ms, _last_stable_offset: None)


def the_cleaner_dies(patch: Patch) -> None:
    """On one node, once it has done something."""
    right = compaction.dirt

    def dirt(log: Any, now_ms: int, last_stable_offset: int) -> Any:
        dies = log.env.name == "node-2" and log.cleaned_to > 0
        return None if dies else right(log, now_ms, last_stable_offset)

    patch.put(compaction, "dirt", dirt)


def refused_by(method: str, error: ErrorCode) -> Callable[[Patch], None]:
    """Of the transaction groups and half messages: always."""

    def plant(patch: Patch) -> None:
        async def refuses(*_: Any, **__: Any) -> ErrorCode:
            return error

        patch.put(AddedService, method, refuses)

    return plant


NO_PROGRESS, TOLD = "no-progress", "dead-client"
E = ErrorCode
CLUSTER, TRANSACTIONS = "cluster", "transactions"
NEVER: list[tuple[Callable[[Patch], None], str, str, str, str]] = [
    (no_group_may_commit(E.invalid_commit_offset_size), TOLD, CLUSTER, "stream", "a commit of 0"),
    (no_group_may_commit(E.not_coordinator), NO_PROGRESS, CLUSTER, "stream", "g0 commits"),
    (times_are_never_told(E.unknown_server_error), TOLD, CLUSTER, "times", "the offset of"),
    (times_are_never_told(E.offset_not_available), NO_PROGRESS, CLUSTER, "times", "t0 is told"),
    (nothing_is_deleted(E.policy_violation), TOLD, CLUSTER, "deletions", "a deletion of stream-"),
    (nothing_is_deleted(E.request_timed_out), NO_PROGRESS, CLUSTER, "deletions", "one more"),
    (nothing_is_deleted(E.policy_violation), TOLD, TRANSACTIONS, "cut", "a deletion of cut-"),
    (nothing_is_deleted(E.request_timed_out), NO_PROGRESS, TRANSACTIONS, "cut", "client cutter"),
    (no_setting_is_changed(E.invalid_config), TOLD, TRANSACTIONS, "tuned bank", "invalid_config"),
    (
        no_setting_is_changed(E.not_controller),
        NO_PROGRESS,
        TRANSACTIONS,
        "tuned bank",
        "client tuner",
    ),
    (nothing_is_compacted, NO_PROGRESS, TRANSACTIONS, "compacted", "of compaction"),
    (the_cleaner_dies, NO_PROGRESS, TRANSACTIONS, "compacted", "on 2 is cleaned to"),
    (
        refused_by("end_group", E.unknown_server_error),
        TOLD,
        TRANSACTIONS,
        "added",
        "number 0 of job",
    ),
    (refused_by("end_group", E.unknown_server_error), TOLD, "added", "", "number 0 of job"),
    (
        refused_by("end_group", E.invalid_txn_state),
        NO_PROGRESS,
        TRANSACTIONS,
        "added",
        "client job",
    ),
    (refused_by("prepare", E.unknown_server_error), TOLD, TRANSACTIONS, "added", "preparing shop"),
    (refused_by("prepare", E.invalid_txn_state), NO_PROGRESS, TRANSACTIONS, "added", "client shop"),
    (followers_serve_nobody, NO_PROGRESS, CLUSTER, "followers", "followers are read"),
    (followers_serve_nobody, NO_PROGRESS, TRANSACTIONS, "bank followers", "followers are read"),
]


def run_with(plant: Callable[[Patch], None], campaign: str, workloads: str) -> Outcome:
    patch = Patch()
    plant(patch)
    try:
        return run_plan(
            Plan(
                campaign=campaign,
                seed=1,
                seconds=2.0,
                nodes=3,
                faults=("reset",),
                workloads=tuple(workloads.split()),
            )
        )
    finally:
        patch.take_out()


@pytest.mark.parametrize(("plant", "rule", "campaign", "workloads", "words"), NEVER)
def test_what_is_never_done_ends_the_run(
    plant: Callable[[Patch], None], rule: str, campaign: str, workloads: str, words: str
) -> None:
    outcome = run_with(plant, campaign, workloads)
    assert (outcome.kind, words in outcome.failure) == (rule, True), outcome.failure


def test_a_long_log_is_read_to_its_end_however_long_that_takes() -> None:
    reader = SimpleNamespace(key="stream-0", offset=0)

    async def slowly() -> None:
        while reader.offset < 9:
            await asyncio.sleep(20.0)
            reader.offset += 1

    async def scenario() -> None:
        await as_long_as_it_goes_on(slowly(), reader, 30.0)
        assert asyncio.get_running_loop().time() == pytest.approx(180.0)
        with pytest.raises(TimeoutError, match="stream-0: nothing behind 9 for 30 s"):
            await as_long_as_it_goes_on(asyncio.sleep(3600.0), reader, 30.0)

    with World(1) as world:
        world.run(scenario())
