"""Commands and answers between nodes: what is sent arrives, and nothing else is taken."""

import dataclasses
import types
import typing
from typing import Any

import msgpack
import pytest
from fencepost.cluster.base.errors import FrameRefused
from fencepost.cluster.controller import command_codec
from fencepost.cluster.controller.command_codec import (
    read_answer,
    read_command,
    write_answer,
    write_command,
)
from fencepost.cluster.controller.commands import (
    AllocateProducerIds,
    ControllerCommand,
    CreateTopics,
    NewTopic,
    ProducerIdBlock,
)
from fencepost.cluster.controller.service import DECIDE
from hypothesis import given, settings
from hypothesis import strategies as st

ALLOCATE = AllocateProducerIds(broker_id=1, broker_epoch=7)


def _resolved(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, whose integers have 64 bits."""
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    if hint is int:
        return st.integers(-(2**63), 2**63 - 1)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(
            hint, **{each.name: _resolved(hints[each.name]) for each in dataclasses.fields(hint)}
        )
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and arguments[-1] is not ...:
        return st.tuples(*map(_resolved, arguments))
    if origin is tuple:
        return st.lists(_resolved(arguments[0]), max_size=3).map(tuple)
    if origin is list:
        return st.lists(_resolved(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(_resolved(arguments[0]), _resolved(arguments[1]), max_size=3)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(_resolved, arguments))
    return st.from_type(hint)


def answers_to(command: type[Any]) -> st.SearchStrategy[Any]:
    return _resolved(typing.get_args(command.__orig_bases__[0])[0])


@pytest.mark.parametrize("kind", DECIDE, ids=lambda kind: kind.__name__)
@settings(max_examples=40)
@given(data=st.data())
def test_every_command_and_its_answer_arrive_as_they_were_sent(kind: Any, data: Any) -> None:
    command = data.draw(_resolved(kind))
    read = read_command(write_command(command))
    assert (type(read), read) == (kind, command)
    answer = data.draw(answers_to(kind))
    assert read_answer(command, write_answer(command, answer)) == answer


@given(st.binary(max_size=200))
def test_any_bytes_are_a_command_or_refused(data: bytes) -> None:
    for read in (read_command, lambda data: read_answer(ALLOCATE, data)):
        try:
            read(data)
        except FrameRefused:
            continue


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
known_names = st.sampled_from(sorted(each.__name__ for each in DECIDE))
field_names = st.sampled_from(
    sorted({field.name for each in DECIDE for field in dataclasses.fields(each)})
)


@given(known_names, st.dictionaries(field_names, anything, max_size=4) | anything)
def test_fields_of_other_types_are_refused_and_nothing_else_happens(name: str, body: Any) -> None:
    try:
        command = read_command(msgpack.packb([name, body]))
    except FrameRefused:
        return
    assert read_command(write_command(command)) == command


@pytest.mark.parametrize(
    ("packed", "sentence"),
    [
        ([], "no [name, fields]"),
        (["DropEverything", {}], "'DropEverything', which this version"),
        (["ControllerCommand", {}], "does not know"),
        (["AllocateProducerIds", {"broker_id": 1}], "['broker_epoch'] missing"),
        (["AllocateProducerIds", {"broker_id": 1, "broker_epoch": "7"}], "integer of 64 bits"),
        (["AllocateProducerIds", {"broker_id": True, "broker_epoch": 7}], "integer of 64 bits"),
        (
            ["AllocateProducerIds", {"broker_id": 1, "broker_epoch": 7, "count": 9}],
            "['count'] unknown",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(packed: Any, sentence: str) -> None:
    with pytest.raises(FrameRefused) as refused:
        read_command(msgpack.packb(packed))
    assert sentence in str(refused.value)


def test_a_field_that_an_older_version_does_not_send_has_its_default() -> None:
    old = msgpack.packb(["CreateTopics", {"topics": [{"name": "t"}]}])
    assert read_command(old) == CreateTopics(topics=(NewTopic(name="t"),))


def test_an_answer_is_read_as_the_answer_to_what_was_asked() -> None:
    block = ProducerIdBlock(first_producer_id=1000, count=1000)
    with pytest.raises(FrameRefused, match="answer to CreateTopics"):
        read_answer(CreateTopics(topics=()), write_answer(ALLOCATE, block))


def test_all_that_can_be_asked_of_the_controller_can_be_sent_to_it() -> None:
    asked = {each for each in ControllerCommand.__subclasses__() if each in DECIDE}
    assert set(DECIDE) == asked
    assert command_codec._COMMANDS.keys() == {each.__name__ for each in DECIDE}
