"""What stands on standard error."""

import io
import json
import logging
import re
import threading
from collections.abc import Callable

import pytest
from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.base.foreign_log import SAID_CHARS_MAX, take_over
from fencepost.cluster.base.log import BURST, LINES_PER_S, StreamLog, text_of
from fencepost.cluster.base.log_events import sentence_of
from fencepost.cluster.base.request_scope import enter_scope, leave_scope, scope_of

AT = 1_795_254_587.25


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Scene:
    def __init__(self, stream: io.StringIO | None = None, **options: object) -> None:
        self.stream = io.StringIO() if stream is None else stream
        self.steady = 0.0
        self.log = StreamLog(
            self.stream,
            node_id=2,
            now_s=lambda: AT,
            steady_s=lambda: self.steady,
            **options,  # type: ignore[arg-type]
        )

    def text(self) -> str:
        return self.stream.getvalue()

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.text().splitlines()]


def test_a_line_for_machines_has_its_fields_in_their_order_and_types() -> None:
    scene = Scene()
    scene.log.warn("isr_shrinks", partition="my-orders-3", leaving=[3], isr=[1, 2], cause="it lags")
    (line,) = scene.lines()
    assert list(line.items()) == [
        ("time", "2026-11-21T09:49:47.250Z"),
        ("level", "warn"),
        ("area", "replication"),
        ("event", "isr_shrinks"),
        ("message", "my-orders-3 drops [3] from those in sync, [1, 2] stay: it lags."),
        ("node_id", 2),
        ("topic", "my-orders"),
        ("partition", 3),
        ("leaving", [3]),
        ("isr", [1, 2]),
        ("cause", "it lags"),
    ]


def test_what_a_clients_request_causes_carries_its_id() -> None:
    scene = Scene()
    token = enter_scope(scope_of("1-7-42"))
    scene.log.info("peer_up", node=3)
    leave_scope(token)
    scene.log.info("peer_up", node=3)
    assert [line.get("request_id") for line in scene.lines()] == ["1-7-42", None]


def test_a_person_at_a_terminal_reads_a_sentence_in_colour() -> None:
    scene = Scene(Terminal())
    scene.log.error("disk_full", folder="/data", cause="No space left on device")
    assert "\x1b[1;31merror\x1b[0m" in scene.text()
    assert "The disk of /data is full: No space left on device." in scene.text()


def test_text_without_a_terminal_has_no_colours_and_one_line_an_event() -> None:
    scene = Scene(form="text")
    scene.log.info("peer_lost", node=3, cause="it hung\nup")
    assert scene.text() == (
        "2026-11-21 09:49:47.250Z info  cluster peer_lost: The connection with node 3 ended: it hung\\nup."
        " It is tried again.\n"
    )


def test_what_the_sentence_does_not_say_stands_behind_it() -> None:
    scene = Scene(form="text")
    scene.log.info("follower_came", node=3, broker_epoch=17, host="a b")
    assert scene.text().endswith(
        'Node 3 follows partitions of this node. | broker_epoch=17 host="a b"\n'
    )


def test_json_is_had_at_a_terminal_too() -> None:
    scene = Scene(Terminal(), form="json")
    scene.log.info("peer_up", node=3)
    assert scene.lines()[0]["event"] == "peer_up"


def test_levels_are_set_for_each_area_and_changed_while_it_runs() -> None:
    scene = Scene(levels="warn,quorum=debug")
    scene.log.info("peer_up", node=3)
    scene.log.debug("quorum_leader_seen", leader=1, term=2)
    scene.log.set_levels("info,quorum=error")
    scene.log.info("peer_up", node=3)
    scene.log.warn("quorum_lead_lost", term=2, leader=1, cause="x")
    assert [line["event"] for line in scene.lines()] == ["quorum_leader_seen", "peer_up"]


@pytest.mark.parametrize("text", ["loud", "quorum=loud", "kitchen=info", "quorum"])
def test_a_level_that_is_none_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(ConfigRefused, match=r"log\.level: .* is none of debug, info, warn, error"):
        StreamLog(io.StringIO(), levels=text)


def test_a_flood_of_one_event_is_bounded_and_says_how_many_lines_it_left_out() -> None:
    scene = Scene()
    for node in range(10_000):
        scene.log.info("peer_up", node=node)
    scene.log.info("node_stopping", cause="SIGTERM")  # another event is not held up
    assert len(scene.lines()) == BURST + 1
    scene.steady = 2.0
    scene.log.info("peer_up", node=1)
    assert scene.lines()[-1]["left_out"] == 10_000 - BURST
    scene.steady = 4.0
    for node in range(100):
        scene.log.info("peer_up", node=node)
    said = scene.lines()
    assert len(said) == BURST + 2 + 4 * LINES_PER_S - 1
    scene.log.flush()
    (last,) = scene.lines()[len(said) :]
    assert (last["event"], last["of"]) == ("lines_left_out", "peer_up")
    assert last["left_out"] == 100 - (4 * LINES_PER_S - 1)
    scene.log.flush()
    assert len(scene.lines()) == len(said) + 1, "said once"


def test_a_stream_that_is_closed_or_full_hurts_nobody() -> None:
    scene = Scene()
    scene.stream.close()
    scene.log.error("disk_full", folder="/data", cause="x")


def test_a_line_that_was_read_back_is_one_for_people_with_its_node() -> None:
    scene = Scene()
    scene.log.info("peer_up", node=3)
    assert text_of(scene.lines()[0]) == (
        "2026-11-21 09:49:47.250Z info  cluster peer_up: node 2: Connected with node 3."
    )


def test_what_a_library_says_is_an_event_like_any_other() -> None:
    scene = Scene()
    take_over("fencepost_tests_library", scene.log)
    logging.getLogger("fencepost_tests_library.part").warning("%d spans were lost", 3)
    (line,) = scene.lines()
    assert (line["event"], line["cause"]) == ("library_warns", "3 spans were lost")


class Busy(io.StringIO):
    """A stream in whose first write from now on another thread gets its turn, and says something."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None

    def write(self, text: str) -> int:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            thread = threading.Thread(target=meanwhile)
            thread.start()
            thread.join()
        return super().write(text)


def test_a_library_that_speaks_on_its_own_thread_fails_no_line_of_the_node() -> None:
    """OpenTelemetry's exporter says that its collector is away, just when what was left out is told."""
    stream = Busy()
    scene = Scene(stream)
    take_over("fencepost_tests_exporter", scene.log)
    for node in range(BURST + 1):
        scene.log.info("peer_up", node=node)
    scene.steady = 100.0
    exporter = logging.getLogger("fencepost_tests_exporter")
    stream.meanwhile = lambda: exporter.warning("the collector is away")
    scene.log.flush()
    said = [line["event"] for line in scene.lines()[BURST:]]
    assert sorted(map(str, said)) == ["library_warns", "lines_left_out"]


STEERS = "\x1b[2J\x07\x9b31m\u202e\x7f"


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_name_that_a_client_chose_steers_no_terminal_that_shows_a_line(
    form: str, kind: type[io.StringIO]
) -> None:
    """In the sentence, in a field, in a cause of many lines: only our own colours are sent."""
    scene = Scene(kind(), form=form)
    named = {"client": f"evil{STEERS}", "remote": STEERS, "cause": f"a\nb{STEERS}"}
    scene.log.warn("request_slow", api="produce", total_ms=1, limit_ms=1, longest="x", **named)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", scene.text()) if kind is Terminal else scene.text()
    assert plain.removesuffix("\n").isprintable()
    assert "evil" in plain
    if form == "json":
        (line,) = scene.lines()
        assert (line["client"], line["remote"], line["cause"]) == tuple(named.values())
        assert text_of({**line, "event": f"e{STEERS}"}).isprintable()


def test_a_library_says_a_thousand_characters_at_most() -> None:
    """What a collector answers stands in what OpenTelemetry says of it, however long."""
    scene = Scene()
    take_over("fencepost_tests_library", scene.log)
    logging.getLogger("fencepost_tests_library").warning("reason: %s", "x" * 60_000)
    (line,) = scene.lines()
    assert len(str(line["cause"])) == SAID_CHARS_MAX


@pytest.mark.parametrize(
    ("event", "fields", "sentence"),
    [
        ("admin_open", {"address": ("127.0.0.1", 9644)}, "is open at 127.0.0.1:9644."),
        ("admin_open", {"address": ("::1", 9644)}, "is open at [::1]:9644."),
        ("node_ready", {"node_id": 1, "listeners": ["a:1", "b:2"]}, "clients come to a:1, b:2."),
        ("voters_changed", {"voters": [1, 2], "asked": {"remove": 3}}, "are now [1, 2]: remove 3."),
        ("node_ready", {"node_id": 1}, "clients come to ?."),
    ],
)
def test_a_sentence_has_words_where_programs_have_lists(
    event: str, fields: dict[str, object], sentence: str
) -> None:
    assert sentence_of(event, fields).endswith(sentence)
