"""How the programs in other languages are built: what a machine lacks is skipped by name, what is old is removed."""

import os
import time

import client_programs
import pytest


def test_a_download_that_fails_skips_by_name_and_fails_under_ci(tmp_path, monkeypatch) -> None:
    command = ["/bin/sh", "-c", "echo getaddrinfo ENOTFOUND registry >&2; exit 1"]
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"could not fetch: getaddrinfo ENOTFOUND"):
        client_programs._fetch(command, tmp_path)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="ENOTFOUND"):
        client_programs._fetch(command, tmp_path)


def test_a_program_that_does_not_compile_always_fails(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(AssertionError, match="missing semicolon"):
        client_programs._compile(["/bin/sh", "-c", "echo missing semicolon; exit 1"], tmp_path)


def test_builds_that_nobody_runs_any_more_are_removed(tmp_path, monkeypatch) -> None:
    """Each edit of a source makes a new build of tens of megabytes."""
    monkeypatch.setattr("client_programs.CACHE", tmp_path)
    monkeypatch.setattr("support.kafka_peer.CACHE", tmp_path)
    source = tmp_path / "source"
    built = []
    for text in ("first", "second", "third"):
        source.write_text(text)
        built.append(client_programs._build("clients-x", [source], "", lambda _: None))
        if text == "first":
            long_ago = time.time() - 2 * client_programs.UNUSED_S
            os.utime(built[0], (long_ago, long_ago))
    assert [path.exists() for path in built] == [False, True, True]
    assert client_programs._build("clients-x", [source], "", lambda _: 1 / 0) == built[-1]
