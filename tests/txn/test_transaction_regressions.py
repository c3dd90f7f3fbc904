"""What hurt others, at the coordinator of transactions: one test for each, named after what went wrong."""

import asyncio
from dataclasses import replace

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC
from fencepost.txn.transactions.commands import NEEDS_PRODUCER_ID, Ended
from fencepost.txn.transactions.transaction import CLIENT_EPOCH_MAX, EPOCH_MAX, NO_TIMEOUT
from transaction_node import ID, TransactionNode, on_node, ready
from transaction_scene import P0, P1, Scene

E = ErrorCode


@pytest.mark.parametrize("commit", [False, True])
def test_kafka_17754_a_late_end_of_a_new_client_ends_no_later_transaction(commit: bool) -> None:
    """Write loss, aborted read and a torn transaction from one delayed EndTxn (Jepsen's Bufstream report)."""
    scene = Scene()
    first = scene.init()
    scene.add(first, P0, version=2)
    # 1. EndTxn is delayed on its way; the client sends it again, and that one arrives.
    second = scene.end(first, commit=commit, bumps=True)
    scene.written()
    # 2. The next transaction is open when the first one arrives after all.
    scene.add(second, P1, version=2)
    for late in (False, True):
        assert scene.end(first, commit=late, bumps=True) is E.producer_fenced
    assert (scene.phase, scene.now().partitions) == ("Ongoing", (P1,))
    # 3. Nor does it end the one after that, when nothing is open.
    third = scene.end(second, bumps=True)
    scene.written()
    assert scene.end(first, commit=commit, bumps=True) is E.producer_fenced
    assert scene.now().identity == third


def test_kafka_17754_a_late_end_of_an_old_client_comes_over_a_connection_that_was_given_up() -> (
    None
):
    """Its epoch is that of the next transaction, too: the connection is all that tells them apart."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)

        async def ask(api: str, connection: int, **fields: object) -> ErrorCode:
            who = {"transactional_id": ID, "producer_id": 101, "producer_epoch": 0}
            reply = await node.ask(api, 3, connection=connection, **who, **fields)
            code: ErrorCode = reply.error_code
            return code

        await node.init()
        assert await ask("add_offsets_to_txn", 5, group_id="g") is E.none
        assert await ask("end_txn", 6, committed=True) is E.none
        assert await ask("add_offsets_to_txn", 6, group_id="g") is E.none
        assert await ask("end_txn", 5, committed=True) is E.not_coordinator
        assert (await node.state()).transaction_state == "Ongoing"
        assert await ask("end_txn", 6, committed=False) is E.none

    on_node(scenario)


def test_kafka_17754_a_late_end_is_known_also_by_a_coordinator_that_went_away_and_came_back() -> (
    None
):
    """The connection on which it waits belongs to the node, which has lost and regained the id meanwhile."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        await node.init()

        async def ask(api: str, connection: int, **fields: object) -> ErrorCode:
            who = {"transactional_id": ID, "producer_id": 101, "producer_epoch": 0}
            reply = await node.ask(api, 3, connection=connection, **who, **fields)
            code: ErrorCode = reply.error_code
            return code

        assert await ask("add_offsets_to_txn", 5, group_id="g") is E.none
        # 1. EndTxn over connection 5 is delayed; the client gives it up and sends it again over 6.
        assert await ask("end_txn", 6, committed=True) is E.none
        await asyncio.sleep(1)
        # 2. In the next transaction another node takes over, and then this one again.
        assert await ask("add_offsets_to_txn", 6, group_id="g") is E.none
        for leader, epoch in ((2, 4), (1, 5)):
            for partition in range(3):
                node.lead(TRANSACTION_STATE_TOPIC, partition, leader, epoch=epoch)
            await asyncio.sleep(1)
        # 3. The delayed one arrives.
        assert await ask("end_txn", 5, committed=True) is E.not_coordinator
        assert (await node.state()).transaction_state == "Ongoing"
        assert await ask("end_txn", 6, committed=False) is E.none

    on_node(scenario)


def test_kafka_19367_fencing_in_the_last_epochs_counts_one_on_and_not_two() -> None:
    """InitProducerId on an open transaction counted twice under transaction.version 2: 32766 became -32768."""
    for epoch in (32_765, CLIENT_EPOCH_MAX):
        scene = Scene(server_version=2)
        scene.init()
        scene.skip_to_epoch(epoch)
        scene.add(scene.now().identity, P0, version=2)
        scene.init()
        assert scene.now().producer_epoch == epoch + 1
        assert scene.sent[0].producer_epoch == epoch + 1
        scene.written()
        assert scene.init()[:2] == (102, 0)


def test_the_epoch_that_is_kept_for_fencing_is_given_to_nobody() -> None:
    """A timeout in the last epoch; its producer's EndTxn was answered as one sent again, with 32767 for the next transaction.

    No marker could end that one: none is above its own epoch.
    """
    scene = Scene(server_version=2)
    scene.init()
    scene.skip_to_epoch(CLIENT_EPOCH_MAX)
    who = scene.now().identity
    scene.add(who, P0, version=2)
    scene.pass_time(60_000)
    waits = scene.end(who, commit=False, bumps=True)
    scene.written()
    assert scene.answers[waits] == NEEDS_PRODUCER_ID  # its shell asks again, with one
    given = scene.end(who, commit=False, bumps=True)
    assert (given.producer_id, given.producer_epoch) == (102, 0)
    assert scene.add((102, 0), P0, version=2) is E.none
    assert scene.end((102, 0), bumps=True).producer_epoch == 1


def test_librdkafka_3720_an_id_whose_epochs_are_used_up_is_replaced() -> None:
    scene = Scene()
    scene.init()
    scene.skip_to_epoch(32_764)
    given = [scene.init()[:2] for _ in range(4)]
    assert given == [(101, 32_765), (101, CLIENT_EPOCH_MAX), (102, 0), (102, 1)]
    assert EPOCH_MAX not in [epoch for _, epoch in given]


def test_redpanda_6018_an_open_transaction_is_not_forgotten_with_its_coordinator() -> None:
    """Begun only in memory; both leaders moved, and an acknowledged record was lost."""
    scene = Scene()
    who = scene.init()
    assert scene.add(who, P0) is E.none
    after = scene.moved().moved()
    assert (after.phase, after.now().partitions) == ("Ongoing", (P0,))
    assert after.end(who) == Ended(101, 0)
    assert after.sent[0].partitions == (P0,)


def test_flink_7784_a_long_commit_of_a_prepared_transaction_outlives_every_timeout() -> None:
    """The data of a checkpoint was aborted while its job was restarting; KIP-939 is the cure."""
    scene = Scene()
    who = scene.init(timeout_ms=NO_TIMEOUT)
    scene.add(who, P0)
    scene.pass_time(30 * 24 * 3_600_000)
    restarted = scene.moved()
    kept = restarted.init(timeout_ms=NO_TIMEOUT, keep_prepared=True)
    assert (kept.ongoing_producer_id, kept.ongoing_producer_epoch) == who[:2]
    restarted.pass_time(30 * 24 * 3_600_000)
    assert isinstance(restarted.end(kept), Ended)
    assert restarted.sent[0].commit


def test_a_topic_deleted_inside_an_open_transaction_keeps_it_from_nothing() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        node.make_topic("gone", [2])
        who = await node.init()
        await node.add(who, "gone")
        await node.add(who, "t")
        node.delete_topic("gone")
        assert (await node.end(who)).error_code is E.none
        await asyncio.sleep(0.01)
        assert (await node.state()).transaction_state == "CompleteCommit"

    on_node(scenario)


def test_a_decision_that_was_never_committed_is_nobodys() -> None:
    """A coordinator that is cut off decides a commit, the next one aborts: no marker may have left before."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        await node.add(who)
        for log in node.logs.values():
            log.commits_at_once = False
        ending = asyncio.get_running_loop().create_task(node.end(who))
        await asyncio.sleep(1)
        assert not ending.done()
        for partition, log in node.logs.items():
            log.resign()
            node.lead(TRANSACTION_STATE_TOPIC, partition, 2)
        assert (await ending).error_code is E.not_coordinator
        await asyncio.sleep(60)
        assert node.door.written == []

    on_node(scenario)


def test_a_zombie_of_a_producer_whose_id_was_replaced_is_told_so() -> None:
    scene = Scene()
    zombie = scene.init()
    scene.machine.transactions[ID] = replace(scene.now(), producer_epoch=CLIENT_EPOCH_MAX)
    scene.init()
    assert scene.end(zombie) is E.invalid_producer_id_mapping
    assert scene.add((101, CLIENT_EPOCH_MAX), P0) is E.invalid_producer_id_mapping
