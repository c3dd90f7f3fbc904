"""The checks of every API are in modules of their own: their assertions say what they compared, too.

Commands are run against a node of the test file's own; a file whose node is another kind has a fixture of its own.
"""

from collections.abc import Iterator

import pytest
from cli_said import Run, runs
from fencepost.chaos.harness.processes import Node
from support.fencepost_process import fencepost

pytest.register_assert_rewrite(
    "every_admin_api",
    "every_consumer_group_api",
    "every_data_api",
    "every_group_api",
    "every_move_api",
    "every_txn_api",
)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with fencepost(environment={"FENCEPOST_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}) as running:
        yield running


@pytest.fixture
def run(node: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", node.bootstrap)
    return runs(capsys)
