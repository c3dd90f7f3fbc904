"""KIP-227: Kafka's answers scene by scene, and a client that never loses track."""

import itertools
from collections.abc import Iterable, Mapping

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication import fetch_sessions
from fencepost.replication.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_MS,
    FetchContext,
    FetchSessions,
    Outcome,
    Reply,
    Wanted,
    next_epoch,
)
from hypothesis import given, settings
from hypothesis import strategies as st

NONE = ErrorCode.none
A, B, C = ("a", 0), ("a", 1), ("b", 0)


def sessions(slots: int = 1000) -> FetchSessions:
    return FetchSessions(draw_id=itertools.count(101).__next__, slots_max=slots)


def want(*keys: object) -> dict[object, Wanted]:
    return {key: Wanted(0, 1024) for key in keys}


def quiet(hw: int = 5, **kind: object) -> Outcome:
    return Outcome(**{"error": NONE, "high_watermark": hw, "log_start_offset": 0, **kind})


def begin(
    cache: FetchSessions,
    session_id: int = 0,
    epoch: int = 0,
    wanted: Mapping[object, Wanted] | None = None,
    forgotten: Iterable[object] = (),
    *,
    by_id: bool = False,
    at: int = 0,
) -> FetchContext | ErrorCode:
    return cache.begin(
        session_id=session_id, session_epoch=epoch, wanted=wanted or {}, forgotten=forgotten,
        uses_topic_ids=by_id, now_ms=at,
    )  # fmt: skip


def full(cache: FetchSessions, *keys: object, at: int = 0) -> int:
    """A session of these partitions; its id."""
    context = begin(cache, wanted=want(*keys), at=at)
    reply = context.finish([(key, quiet()) for key in keys], at)
    assert reply.error is NONE and list(reply.told) == list(range(len(keys)))
    return reply.session_id


def read(context: FetchContext, outcomes: Mapping[object, Outcome]) -> tuple[Reply, list[object]]:
    answers = [(key, outcomes.get(key, quiet())) for key, _ in context.partitions()]
    reply = context.finish(answers, 0)
    return reply, [answers[place][0] for place in reply.told]


def test_what_did_not_change_is_left_out() -> None:
    cache = sessions()
    session = full(cache, A, B, C)
    reply, told = read(begin(cache, session, 1), {B: quiet(hw=6)})
    assert (reply.error, reply.session_id, told) == (NONE, session, [B])
    reply, told = read(begin(cache, session, 2), {B: quiet(hw=6)})
    assert told == []


CHANGES = {
    "data": quiet(size=10),
    "the high watermark": quiet(hw=6),
    "the log start": quiet(log_start_offset=1),
    "an error": quiet(error=ErrorCode.not_leader_or_follower, high_watermark=-1),
    "a diverging epoch": quiet(must_tell=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_told(change: str) -> None:
    cache = sessions()
    session = full(cache, A, B)
    assert read(begin(cache, session, 1), {A: CHANGES[change]})[1] == [A]


def test_an_error_that_went_away_is_told() -> None:
    cache = sessions()
    session = full(cache, A)
    error = Outcome(ErrorCode.kafka_storage_error, 5, 0)
    assert read(begin(cache, session, 1), {A: error})[1] == [A]
    assert read(begin(cache, session, 2), {A: error})[1] == [A]
    assert read(begin(cache, session, 3), {})[1] == [A]
    assert read(begin(cache, session, 4), {})[1] == []


def test_a_request_adds_changes_and_forgets_partitions() -> None:
    cache = sessions()
    session = full(cache, A, B)
    asked = {C: Wanted(7, 10), A: Wanted(9, 20)}
    context = begin(cache, session, 1, wanted=asked, forgotten=[B])
    assert dict(context.partitions()) == {A: Wanted(9, 20), C: Wanted(7, 10)}
    assert read(context, {})[1] == [C]  # never told before
    assert cache.partition_count == 2


def test_who_got_data_goes_to_the_end_of_the_queue() -> None:
    cache = sessions()
    session = full(cache, A, B, C)
    read(begin(cache, session, 1), {A: quiet(size=10)})
    assert [key for key, _ in begin(cache, session, 2).partitions()] == [B, C, A]


def test_a_session_whose_last_partition_was_forgotten_ends() -> None:
    cache = sessions()
    session = full(cache, A)
    reply, _ = read(begin(cache, session, 1, forgotten=[A]), {})
    assert reply == Reply(NONE, 0, range(0))
    assert begin(cache, session, 2) is ErrorCode.fetch_session_id_not_found


def test_a_full_request_ends_the_session_that_it_names() -> None:
    cache = sessions()
    session = full(cache, A)
    reply, told = read(begin(cache, session, -1, wanted=want(A)), {})
    assert (reply.session_id, told, len(cache)) == (0, [A], 0)
    session = full(cache, A)
    reply, _ = read(begin(cache, session, 0, wanted=want(A, B)), {})
    assert reply.session_id not in (0, session)
    assert len(cache) == 1


@pytest.mark.parametrize("epoch", [2, 3, 7])
def test_an_epoch_out_of_turn_is_refused(epoch: int) -> None:
    cache = sessions()
    session = full(cache, A)
    assert begin(cache, session, epoch) is ErrorCode.invalid_fetch_session_epoch


def test_an_unknown_session_is_refused() -> None:
    assert begin(sessions(), 5, 1) is ErrorCode.fetch_session_id_not_found


def test_a_session_does_not_change_from_names_to_ids() -> None:
    cache = sessions()
    session = full(cache, A)
    assert begin(cache, session, 1, by_id=True) is ErrorCode.fetch_session_topic_id_error


def test_a_retry_that_overtakes_a_parked_request_wins() -> None:
    cache = sessions()
    session = full(cache, A)
    parked = begin(cache, session, 1)
    begin(cache, session, 2)
    reply, _ = read(parked, {A: quiet(size=5)})
    assert (reply.error, list(reply.told)) == (ErrorCode.invalid_fetch_session_epoch, [])


def test_epochs_skip_the_one_that_begins_a_session() -> None:
    assert [next_epoch(e) for e in (0, 1, EPOCH_MAX, -1)] == [1, 2, 1, -1]


# -- slots -------------------------------------------------------------------------------------------


def test_a_newcomer_without_a_slot_is_served_without_a_session() -> None:
    cache = sessions(slots=1)
    full(cache, A)
    assert full(cache, A, B, C) == 0  # the other one is too young to go


def test_a_session_nobody_uses_makes_room() -> None:
    cache = sessions(slots=2)
    first = full(cache, A, B, C)
    second = full(cache, A, at=1)
    begin(cache, first, 1, at=EVICTION_MS)
    third = full(cache, A, at=EVICTION_MS + 2)
    assert third != 0
    assert begin(cache, second, 1) is ErrorCode.fetch_session_id_not_found
    assert cache.evictions == 1


def test_an_old_small_session_makes_room_for_a_bigger_one() -> None:
    cache = sessions(slots=2)
    small, big = full(cache, A, B), full(cache, A, B, C)
    late = EVICTION_MS + 1
    for session in (small, big):
        begin(cache, session, 1, at=late)
    assert full(cache, A, B, at=late) == 0  # no bigger than the smallest
    assert full(cache, A, B, C, at=late) != 0
    assert begin(cache, small, 2) is ErrorCode.fetch_session_id_not_found


def test_without_slots_there_are_no_sessions() -> None:
    assert full(sessions(slots=0), A) == 0


# -- a client ----------------------------------------------------------------------------------------

steps = st.tuples(
    st.sampled_from(["fetch", "fetch", "move", "fail", "add", "forget", "lose", "evict"]),
    st.sampled_from([A, B, C]),
    st.integers(1, 3),
)


class Client:
    """Keeps for each partition what the replies said last, as FetchSessionHandler does."""

    def __init__(self) -> None:
        self.cache = sessions(slots=2)
        self.real = {key: quiet() for key in (A, B, C)}
        self.asks = {A}
        self.known: dict[object, Outcome] = {}
        self.session, self.epoch = 0, 0
        self.added: set[object] = {A}
        self.gone: set[object] = set()

    def fetch(self, *, lost: bool = False) -> None:
        is_full = self.epoch == 0
        asked = self.asks if is_full else self.added
        context = begin(
            self.cache, self.session, self.epoch, wanted=want(*sorted(asked)),
            forgotten=() if is_full else sorted(self.gone),
        )  # fmt: skip
        if isinstance(context, ErrorCode):
            self.epoch, self.known = 0, {}
            return
        answers = [(key, self.real[key]) for key, _ in context.partitions()]
        reply = context.finish(answers, 0)
        if lost:
            self.known = {}
            self.epoch = 0 if is_full else self.epoch  # it can't tell: the same epoch again
            return
        if reply.error is not NONE:
            self.epoch, self.known = 0, {}
            return
        for key in self.gone:  # only now: one that comes back before it was sent was never gone
            self.known.pop(key, None)
        self.added, self.gone = set(), set()
        for place in reply.told:
            key, outcome = answers[place]
            self.known[key] = outcome
        self.session = reply.session_id
        self.epoch = next_epoch(self.epoch) if reply.session_id else 0
        assert {key: self.known.get(key) for key in self.asks} == {
            key: self.real[key] for key in self.asks
        }

    def step(self, kind: str, key: object, number: int) -> None:
        match kind:
            case "fetch":
                self.fetch()
            case "lose":
                self.fetch(lost=True)
            case "move":
                self.real[key] = quiet(hw=self.real[key].high_watermark % 7 + number)
            case "fail":
                self.real[key] = Outcome(ErrorCode.kafka_storage_error, -1, -1)
            case "add" if key not in self.asks:
                self.asks.add(key)
                self.added.add(key)
                self.gone.discard(key)
            case "forget" if key in self.asks and len(self.asks) > 1:
                self.asks.discard(key)
                self.added.discard(key)
                self.gone.add(key)
            case "evict":
                for _ in range(number):
                    full(self.cache, A)


@given(st.lists(steps, min_size=10, max_size=40))
@settings(max_examples=150)
@pytest.mark.slow
def test_a_client_that_applies_every_reply_knows_what_was_read(
    script: list[tuple[str, tuple[str, int], int]],
) -> None:
    client = Client()
    for step in script:
        client.step(*step)
    client.fetch()


def test_one_that_waits_while_its_session_is_emptied_is_told_so() -> None:
    """By another connection: the one that waits must not find its partitions gone."""
    cache = sessions()
    id_ = full(cache, A)
    waiting = begin(cache, id_, 1)
    assert not isinstance(waiting, ErrorCode)
    emptied = begin(cache, id_, 2, forgotten=[A])
    assert not isinstance(emptied, ErrorCode)
    assert waiting.finish([(A, quiet(6))], 0).error is ErrorCode.invalid_fetch_session_epoch


# -- what they may take of the memory ------------------------------------------------------------


def many(name: str, count: int) -> list[tuple[str, int]]:
    return [(name, index) for index in range(count)]


def test_a_session_that_grows_beyond_what_all_may_have_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request of 2 MB may add 50,000 partitions that nobody has."""
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 100)
    cache = sessions()
    id_ = full(cache, *many("a", 60))
    assert isinstance(begin(cache, id_, 1, want(*many("b", 40))), FetchContext)
    assert isinstance(begin(cache, id_, 2, want(*many("b", 40))), FetchContext), "none is new"
    assert begin(cache, id_, 3, want(("c", 0))) is ErrorCode.fetch_session_id_not_found
    assert cache.partition_count == 0
    assert full(cache, *many("a", 100)) != 0


def test_who_comes_when_all_have_what_they_may_goes_without_until_one_is_unused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 100)
    cache = sessions()
    full(cache, *many("a", 30), at=0)
    full(cache, *many("b", 60), at=1)
    assert full(cache, *many("c", 11), at=EVICTION_MS) == 0
    assert full(cache, *many("d", 101), at=EVICTION_MS + 1) == 0
    assert cache.partition_count == 90, "nobody is sent away for what has no room anyway"
    assert full(cache, *many("c", 11), at=EVICTION_MS + 1) != 0
    assert (cache.partition_count, cache.evictions) == (71, 1)
