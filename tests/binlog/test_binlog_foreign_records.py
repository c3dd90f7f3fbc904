"""What somebody else wrote into a source's topics ends it in a sentence, and not in a traceback."""

from typing import Any

import pytest
from fencepost.clients.binlog.gtids import WrongPosition
from fencepost.clients.binlog.reading import NotReadable
from made_up import MadeUp

TABLE = b'{"schema":"shop","table":"orders"}'


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"hello", b"x"), (None, b"x"), (b"7", b"x"), (b"\xff", b"x"), (TABLE, b"x"), (TABLE, b"[]")],
)
def test_a_record_in_the_schema_topic_that_is_no_sources_is_named(
    made_up: MadeUp, key: Any, value: bytes
) -> None:
    made_up.source().run()
    made_up.brokers.keep({"topic": "s.schema", "key": key, "value": value})
    said = r"^the topic s\.schema has a record .*its key is .*--schema-topic"
    with pytest.raises(NotReadable, match=said) as raised:
        made_up.source(give_up_s=1).run()
    assert repr(key) in str(raised.value)


def test_a_position_that_is_no_text_is_named(made_up: MadeUp) -> None:
    made_up.source().run()
    kept = {"topic": "fencepost-binlog-positions", "key": b"s", "value": b"\xff"}
    made_up.brokers.keep(kept)
    with pytest.raises(WrongPosition, match=r"positions has for s can't be read .*--resnapshot"):
        made_up.source(give_up_s=1).run()
