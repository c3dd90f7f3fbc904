"""What every test shares.

Hypothesis is derandomised, so that a red run is red for everyone. `@pytest.mark.needs(tool)` skips by name where a
machine with Python alone lacks the tool, and fails under CI=true. `--rewrite` writes the transcripts anew.
"""

import pytest
from hypothesis import settings
from support.needs import pytest_runtest_setup  # noqa: F401 - the hook behind the marker

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the transcripts anew")
