"""What every test shares.

Hypothesis is derandomised, so that a red run is red for everyone. With `--hypothesis-profile random` it is not, and
what names no number of examples has a thousand: the night (`chaos/nightly.sh`) runs all property tests so, again and
again, each time with another `--hypothesis-seed`. `@pytest.mark.needs(tool)` skips by name where a machine with Python
alone lacks the tool, and fails under CI=true. `--rewrite` writes the transcripts anew.
"""

import gc

import pytest
from hypothesis import HealthCheck, settings
from support.needs import pytest_runtest_setup  # noqa: F401 - the hook behind the marker

# How fast examples are made is the machine's business: a busy one makes no test red.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# What fails is told with its example and the line that plays it again; nothing is remembered, so a seed says it all.
settings.register_profile(
    "random",
    settings.get_profile("ci"),
    derandomize=False,
    database=None,
    max_examples=1_000,
)
settings.load_profile("ci")


def pytest_collection_finish() -> None:
    """All modules and tests are there until the end: what looks for garbage need not look through them again and again."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the transcripts anew")
