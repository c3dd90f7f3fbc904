"""The README's examples, as somebody copies them."""

import re
from pathlib import Path

import pytest
from admin_door import served
from fencepost.clients import transactional
from librdkafka import consumer_of, create, receive

README = Path(transactional.__file__).with_name("README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("number", range(3))
def test_an_example_is_python(number: int) -> None:
    """`b"…"` is none."""
    assert len(EXAMPLES) == 3
    compile(EXAMPLES[number], "README.md", "exec")


@pytest.mark.slow
def test_the_example_of_a_group_runs_as_it_stands_there() -> None:
    with served({"group.initial.rebalance.delay.ms": "0"}) as node:
        create(node.bootstrap, "lake")
        host, port = node.admin._nodes[0]
        example = EXAMPLES[2].replace("http://127.0.0.1:10092", f"http://{host}:{port}")
        exec(example.replace("127.0.0.1:9092", node.bootstrap), {})
        with consumer_of(node.bootstrap, group="reads") as consumer:
            consumer.subscribe(["lake"])
            assert [each.value() for each in receive(consumer, 1)] == [b"a row"]
