"""`fencepost config … --all-brokers` against one real node."""

import json
from collections.abc import Callable, Iterator

import pytest
from fencepost.chaos.harness.processes import Node
from fencepost.node.main import main
from support.fencepost_process import fencepost

pytestmark = pytest.mark.slow
Run = Callable[..., tuple[int, str, str]]
ROLL, IN_SYNC = "log.roll.ms", "min.insync.replicas"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with fencepost() as running:
        yield running


@pytest.fixture
def run(node: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", node.bootstrap)

    def run(
        action: str, *words: str, whose: tuple[str, ...] = ("--all-brokers",)
    ) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["config", action, *whose, *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_what_is_set_for_all_is_in_force_on_each_until_it_is_unset(run: Run) -> None:
    assert run("set", f"{ROLL}=5000")[:2] == (
        0,
        f"{ROLL}=5000, for all brokers that have no value of their own\n",
    )
    _, told, _ = run("get", "--json")
    assert {"setting": ROLL, "value": "5000", "set by": "all brokers"} in json.loads(told)
    _, told, _ = run("get", ROLL, "--json", whose=("--broker", "1"))
    assert json.loads(told) == [{"setting": ROLL, "value": "5000", "set by": "all brokers"}]
    code, told, _ = run("unset", ROLL)
    assert (code, "is set no more for all brokers" in told) == (0, True)
    _, told, _ = run("get", ROLL, "--json")
    assert json.loads(told) == [{"setting": ROLL, "value": None, "set by": None}]


def test_what_may_not_differ_between_brokers_is_told_where_it_is_set(run: Run) -> None:
    code, _, said = run("set", f"{IN_SYNC}=1", whose=("--broker", "1"))
    assert (code, "`fencepost config set --all-brokers` does that" in said) == (1, True)
    assert run("set", f"{IN_SYNC}=1")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "log.rol.ms=5"), "unknown setting log.rol.ms: did you mean log.roll.ms?"),
        (("set", f"{ROLL}=soon"), "soon for configuration log.roll.ms: Not a number"),
        (("set", "listeners=PLAINTEXT://h:1"), "broker id must be specified: [listeners]"),
        (("unset", IN_SYNC), "cannot be removed while ELR is enabled"),
        (("set", "num.partitions=4"), "INVALID_REQUEST: Cannot update these configs dynamically"),
        (("set", "num.partitions=4"), "file (or $FENCEPOST_NUM_PARTITIONS), and restart them"),
        (("get", "--all"), "name one with --broker ID"),
    ],
)
def test_what_can_not_be_is_refused(run: Run, words: tuple[str, ...], said: str) -> None:
    code, _, told = run(*words)
    assert (code, said in told) == (1, True), told


def test_what_a_node_reads_when_it_starts_is_told_so_of_one_broker_too(run: Run) -> None:
    code, _, said = run("set", "num.partitions=4", whose=("--broker", "1"))
    assert (code, "file (or $FENCEPOST_NUM_PARTITIONS), and restart them" in said) == (1, True)
