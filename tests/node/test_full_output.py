"""Commands whose output finds no room, or no reader, or that can not leave their group: a sentence, an exit code, nothing committed unseen."""

import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from cli_said import Run
from fencepost.chaos.harness.processes import Node
from support.full_disk import NEEDS_ONE, into_full

FENCEPOST = Path(sys.executable).with_name("fencepost")
_number = count(1)
NUMBERS = "".join(f"{number}\n" for number in range(20_000))

pytestmark = [
    pytest.mark.slow,
    NEEDS_ONE,
]


@pytest.fixture
def numbers(run: Run, tmp_path: Path) -> str:
    """A topic of the test's own, with more in its partition 0 than a pipe holds."""
    topic = f"numbers-{next(_number)}"
    file = tmp_path / "numbers"
    file.write_text(NUMBERS)
    assert run("topic", "create", topic, "--partitions", "2").code == 0
    assert run("produce", topic, "--file", str(file), "--partition", "0").code == 0
    return topic


def is_told_of(told: str) -> bool:
    return (
        told.count("\n") == 1
        and ": standard output takes no more (No space left on device): what" in told
        and "Make room, or send it elsewhere" in told
    )


@pytest.mark.parametrize("json_too", [(), ("--json",)])
@pytest.mark.parametrize("command", ["consume", "topic describe"])
def test_an_output_that_takes_no_more_is_one_sentence(
    node: Node, numbers: str, command: str, json_too: tuple[str, ...]
) -> None:
    where = ("--bootstrap", node.bootstrap)
    code, told = into_full([FENCEPOST, *command.split(), numbers, *json_too, *where])
    assert code == 1 and is_told_of(told), told


@pytest.mark.parametrize(
    ("words", "code"),
    [("completion bash", 1), ("health", 1), ("sim campaigns", 2), ("sim planted --list", 2)],
)
def test_so_it_is_of_commands_that_ask_no_broker(node: Node, words: str, code: int) -> None:
    """The simulator's own 1 is a promise that was broken."""
    door = ["--bootstrap", node.bootstrap] if words == "health" else []
    ended, told = into_full([FENCEPOST, *words.split(), *door])
    assert ended == code and is_told_of(told), told


def test_a_reader_that_goes_away_is_no_failure(node: Node, numbers: str) -> None:
    pipe = (
        f"set -o pipefail; '{FENCEPOST}' consume {numbers} --bootstrap {node.bootstrap} | head -1"
    )
    said = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "0\n", "")


def test_a_groups_position_is_not_beyond_what_was_written(
    node: Node, run: Run, numbers: str
) -> None:
    """It had read to the end of a topic of which a full disk had taken nothing."""
    group = f"cut-short-{numbers}"
    into_full([FENCEPOST, "consume", numbers, "--group", group, "--bootstrap", node.bootstrap])
    assert run("consume", numbers, "--group", group).out == NUMBERS


CONSUMER_THAT_STAYS = """
import sys, threading
from fencepost.node import main
from fencepost.node.cli import consume

class Stays(consume.confluent_kafka.Consumer):
    def close(self):
        threading.Event().wait()

consume.confluent_kafka.Consumer = Stays
consume.LEAVES_S = 0.5
sys.exit(main.main(sys.argv[1:]))
"""


def test_a_group_that_can_not_be_left_keeps_no_command_from_its_end(
    node: Node, numbers: str
) -> None:
    """librdkafka's close may wait for ever (its issue 4884), and hears no signal in there."""
    words = ["consume", numbers, "--group", "clingy", "--count", "2", "--bootstrap", node.bootstrap]
    said = subprocess.run(
        [sys.executable, "-c", CONSUMER_THAT_STAYS, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (said.returncode, said.stdout) == (0, "0\n1\n")
    assert "the client did not leave clingy in 0.5 s" in said.stderr
    assert "`fencepost group describe clingy`" in said.stderr
