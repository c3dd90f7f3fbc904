"""A half message and its transaction stand in one batch of the log, however many partitions that transaction has."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.runtime.encoding import encode
from fencepost.txn.transactions.check_back_commands import AnswerCheck, PrepareHalf, Verdict
from fencepost.txn.transactions.group_commit_commands import Identity, Refusal
from support.added_scene import AddedScene

E = ErrorCode
ID = f"pay::{'p' * 900}"
HALF = "h" * 1_000
BY = "b" * 1_008  # `checker ` and a name


def topics(count: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(f"{number:0249}", 0) for number in range(count))


def with_topics(count: int) -> tuple[AddedScene, Identity] | None:
    """None: so many partitions are in no transaction."""
    scene = AddedScene()
    identity = scene.starts(ID)
    said = scene.writes(ID, identity, partitions=topics(count))
    return (scene, identity) if said is E.none else None


def most_topics() -> int:
    fit, too_many = 3_500, 5_000
    while too_many - fit > 1:
        middle = (fit + too_many) // 2
        fit, too_many = (middle, too_many) if with_topics(middle) else (fit, middle)
    return fit


def is_one_batch(scene: AddedScene, command: object) -> bool:
    batches = encode(scene.machine.decide(command, scene.now_ms).records, scene.now_ms, None)
    assert not isinstance(batches, ErrorCode)
    return len(batches) <= 1


@pytest.mark.slow
def test_what_is_prepared_and_what_decides_it_is_in_one_batch_or_refused() -> None:
    """Of two batches the first may be all that is left. A transaction that is prepared without a half message is ended by
    no timeout and no check; a half message that waits beside a decided one ends whoever is told its verdict."""
    most, prepared = most_topics(), []
    for count in range(most - 20, most + 1, 2):
        made = with_topics(count)
        assert made is not None
        scene, identity = made
        prepare = PrepareHalf(
            transactional_id=ID,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            half_id=HALF,
            half_number=2**62,
        )
        assert is_one_batch(scene, prepare)
        said = scene.do(prepare)
        if isinstance(said, Refusal):
            assert said.code is E.message_too_large
            assert scene.ends(ID, identity, commit=True) == identity, "its producer may end it"
            continue
        prepared.append(count)
        verdict = AnswerCheck(transactional_id=ID, half_id=HALF, verdict=Verdict.COMMIT, by=BY)
        assert is_one_batch(scene, verdict)
    assert prepared and most not in prepared
