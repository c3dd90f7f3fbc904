"""Half messages that are sent, and checked when they are due."""

from fencepost.txn.transactions.check_back_commands import Attempt, Verdict
from fencepost.txn.transactions.group_commit_commands import Identity
from support.added_scene import AddedScene

ID = "pay::p1"
FIRST_MS = 10_000
DELIVERY_MS = 5_000


def half_sent(**settings: int) -> tuple[AddedScene, Identity]:
    scene = AddedScene(**settings)
    identity = scene.opened(ID)
    assert scene.prepares(ID, identity).is_new
    return scene, identity


def checked(scene: AddedScene, member: str = "c", verdict: Verdict | None = None) -> Attempt:
    """Wait until the next check is due, take it, and say so or answer."""
    ticket = scene.polls("pay", member, wait_ms=10**9)
    while ticket in scene.parked:
        scene.pass_ms(1_000)
    (attempt,) = scene.given(ticket)
    if verdict is not None:
        scene.answers_check(ID, verdict, attempt=attempt.number)
    return attempt


def parked_one() -> AddedScene:
    scene, _ = half_sent(transaction_check_max=2)
    for _ in range(2):
        checked(scene, verdict=Verdict.UNKNOWN)
    scene.pass_ms(60_000)
    return scene
