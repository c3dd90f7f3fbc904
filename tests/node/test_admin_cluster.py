"""Transaction groups and check-back over the admin doors of a simulated cluster, while its nodes die."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sim_transactions import TransactionCluster

JOB = "/v1/transaction-groups/job"


def ending(number: int, outcome: str = "commit", **members: Any) -> dict[str, Any]:
    return {"number": number, "outcome": outcome, "members": members}


async def two_open(cluster: TransactionCluster) -> dict[str, dict[str, int]]:
    members = {}
    for name in ("a", "b"):
        members[name] = await cluster.starts("job", name)
        await cluster.writes("job", name, members[name], "t")
    return members


def test_any_node_may_be_asked_to_end_a_group_and_what_was_decided() -> None:
    cluster = TransactionCluster()

    async def scenario() -> None:
        members = await two_open(cluster)
        for number, node_id in enumerate(cluster.nodes.ids):
            status, fields = await cluster.admin(
                node_id, "POST", f"{JOB}/end", ending(7, **members)
            )
            assert (status, fields["outcome"], fields["is_new"]) == (200, "commit", number == 0)
            status, fields = await cluster.admin(node_id, "GET", f"{JOB}/decisions/7")
            assert (status, fields["outcome"], fields["members"]) == (200, "commit", members)
            status, fields = await cluster.admin(
                node_id, "POST", f"{JOB}/end", ending(7, "abort", **members)
            )
            assert (fields["outcome"], fields["as_wanted"]) == ("commit", False)
            assert "It wanted abort." in fields["message"]
        await cluster.until_phases("job", "CompleteCommit", "a", "b")

    cluster.play_up(scenario)


def test_a_member_that_was_started_anew_is_not_taken_for_the_one_that_was_committed() -> None:
    """Its name is the same, but what it has open now is in no decision: whoever believed so would have it commit its rows twice."""
    cluster = TransactionCluster()

    async def scenario() -> None:
        members = await two_open(cluster)
        await cluster.admin_until("POST", f"{JOB}/end", ending(7, **members))
        await cluster.until_phases("job", "CompleteCommit", "a", "b")
        again = {**members, "b": await cluster.starts("job", "b")}
        assert again != members
        await cluster.writes("job", "b", again["b"], "t")
        status, fields = await cluster.admin_until("POST", f"{JOB}/end", ending(7, **again))
        assert (status, fields["outcome"], fields["as_wanted"]) == (200, "commit", False)
        assert "started anew: b." in fields["message"]
        status, fields = await cluster.admin_until("POST", f"{JOB}/end", ending(7, **members))
        assert (status, fields["as_wanted"]) == (200, True)

    cluster.play_up(scenario)


def test_a_question_is_sent_on_to_where_the_coordinator_has_moved() -> None:
    cluster = TransactionCluster()

    async def scenario() -> None:
        members = await two_open(cluster)
        await cluster.admin_until("POST", f"{JOB}/end", ending(1, **members))
        cluster.kill(cluster.coordinator("job"))
        status, fields = await cluster.admin_until("GET", f"{JOB}/decisions/1")
        assert (status, fields["outcome"]) == (200, "commit")
        status, fields = await cluster.admin_until("GET", f"{JOB}/decisions/2")
        assert (status, fields["outcome"]) == (200, "undecided")

    cluster.play_up(scenario)


Strike = Callable[[TransactionCluster, int], None]


def end_while_the_coordinator_dies(strike: Strike, *, seed: str = "group") -> bool:
    """Whether it died. Its members must be ended once whatever happens, and everybody be told the same."""
    cluster = TransactionCluster(seed=seed)

    async def scenario() -> bool:
        members = await two_open(cluster)
        victim = cluster.coordinator("job")
        strike(cluster, victim)
        status, fields = await cluster.admin_until("POST", f"{JOB}/end", ending(7, **members))
        assert (status, fields["outcome"]) == (200, "commit"), fields
        await asyncio.sleep(
            0.02
        )  # virtual: what is still to strike strikes while markers are written
        cluster.world.disk(f"node-{victim}").on_operation = None
        died = not cluster.world.is_up(f"node-{victim}")
        for wanted in ("commit", "abort"):
            status, fields = await cluster.admin_until(
                "POST", f"{JOB}/end", ending(7, wanted, **members)
            )
            assert (status, fields["outcome"], fields["is_new"]) == (200, "commit", False)
        await cluster.until_phases("job", "CompleteCommit", "a", "b")
        return died

    died: bool = cluster.play_up(scenario)
    return died


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_wherever_the_coordinator_dies_all_members_are_ended_once(power) -> None:
    """Every write, sync and rename that an end leads to on the coordinator's disk is its last one, once."""

    def at(operation: int) -> Strike:
        return lambda cluster, victim: cluster.world.crash_at_disk_op(
            f"node-{victim}", operation, kill=not power
        )

    deaths = [end_while_the_coordinator_dies(at(operation)) for operation in range(1, 13)]
    assert sum(deaths) >= 6


@pytest.mark.slow
def test_whenever_the_coordinator_dies_all_members_are_ended_once() -> None:
    """At each third of a millisecond: between a request and its answer, and between any two frames to its peers."""

    def after(seconds: float) -> Strike:
        return lambda cluster, victim: (
            cluster.world.net.later(seconds, lambda: cluster.kill(victim)) and None
        )

    deaths = [
        end_while_the_coordinator_dies(after(step / 3_000), seed=f"group/{step}")
        for step in range(30)
    ]
    assert all(deaths)


def test_a_half_message_is_checked_by_a_live_member_whoever_coordinates() -> None:
    settings = {"transaction.check.interval.ms": "2000"}
    cluster = TransactionCluster(seed=3, **settings)

    async def scenario() -> None:
        identity = await cluster.starts("pay", "p1")
        await cluster.writes("pay", "p1", identity, "t")
        half = {"transactional_id": "pay::p1", "half_id": "order-1"}
        status, fields = await cluster.admin_until("POST", "/v1/checks/prepare", half | identity)
        assert (status, fields["state"]) == (200, "waiting")
        cluster.kill(cluster.coordinator("pay"))
        poll = {"group": "pay", "member": "c", "wait_ms_max": 5_000}
        checks: list[Any] = []
        while not checks:
            status, fields = await cluster.admin_until("POST", "/v1/checks/poll", poll)
            assert status == 200
            checks = fields["checks"]
        assert checks == [{**half, "attempt": 1}]
        answer = checks[0] | {"verdict": "rollback", "member": "c"}
        status, fields = await cluster.admin_until("POST", "/v1/checks/answer", answer)
        assert (status, fields["state"], fields["decided_by"]) == (200, "rolled_back", "checker c")
        late = {**half, "verdict": "commit", "member": "p1"}
        status, fields = await cluster.admin_until("POST", "/v1/checks/answer", late)
        assert (fields["state"], fields["as_wanted"]) == ("rolled_back", False)
        await cluster.until_phases("pay", "CompleteAbort", "p1")

    cluster.play_up(scenario)


def test_a_list_is_of_all_coordinators_and_names_who_could_not_be_asked() -> None:
    settings = {"transaction.check.interval.ms": "500", "transaction.check.max": "1"}
    cluster = TransactionCluster(seed=4, **settings)

    async def scenario() -> None:
        for group in ("g1", "g2", "g3", "g4"):
            identity = await cluster.starts(group, "m")
            await cluster.writes(group, "m", identity, "t")
            half = {"transactional_id": f"{group}::m", "half_id": "h", **identity}
            await cluster.admin_until("POST", "/v1/checks/prepare", half)
        _, fields = await cluster.admin(1, "GET", "/v1/checks")
        listed = sorted(each["transactional_id"] for each in fields["half_messages"])
        assert listed == ["g1::m", "g2::m", "g3::m", "g4::m"]
        assert fields["nodes_not_reached"] == []
        assert fields["partitions_without_a_coordinator"] == []
        cluster.world.net.isolate("node-3")
        cluster.world.net.heal("client", "node-3")
        _, fields = await cluster.admin(1, "GET", "/v1/checks")
        assert fields["nodes_not_reached"] in ([3], [])
        _, fields = await cluster.admin(3, "GET", "/v1/checks")
        assert set(fields["nodes_not_reached"]) >= {1}

    cluster.play_up(scenario)


def test_a_checker_that_hangs_up_is_not_offered_what_comes() -> None:
    cluster = TransactionCluster(nodes=1, seed=5, **{"transaction.check.interval.ms": "1000"})

    async def scenario() -> None:
        identity = await cluster.starts("pay", "p1")
        await cluster.writes("pay", "p1", identity, "t")
        half = {"transactional_id": "pay::p1", "half_id": "h"}
        await cluster.admin_until("POST", "/v1/checks/prepare", half | identity)
        poll = {"group": "pay", "member": "gone", "wait_ms_max": 60_000}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await cluster.admin(1, "POST", "/v1/checks/poll", poll)
        began = cluster.now
        status, fields = await cluster.admin(
            1, "POST", "/v1/checks/poll", poll | {"member": "there"}
        )
        assert (status, fields["checks"]) == (200, [{**half, "attempt": 1}])
        assert cluster.now - began < 1, "it is offered to nobody else before"

    cluster.play_up(scenario)
