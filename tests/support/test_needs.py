"""The marker that decides between skipped and failed."""

import pytest
from support import needs


def test_a_missing_tool_skips_by_name_and_fails_under_ci(monkeypatch) -> None:
    monkeypatch.setitem(needs.TOOLS, "abacus", ("abacus-of-marble",))
    reason = needs.missing("abacus")
    assert reason == "needs abacus: there is no `abacus-of-marble` on the PATH"
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="abacus-of-marble"):
        needs.give_up(reason)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="nothing may be missing"):
        needs.give_up(reason)


def test_a_python_module_can_be_needed() -> None:
    assert needs.missing("python:json") is None
    assert "not installed" in needs.missing("python:no_such_module_here")
