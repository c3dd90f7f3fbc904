"""How the programs in other languages are built: what a machine lacks is skipped by name, what is old is removed."""

import os
import sys
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


def test_only_a_scenario_whose_client_gave_up_is_asked_again(tmp_path, monkeypatch) -> None:
    """An error of the same name that says what a broker found wrong is a finding, and stays one."""
    monkeypatch.setattr("client_programs.IN_CHAOS", True)
    asked = tmp_path / "asked"
    program = tmp_path / "program"
    program.write_text(
        "import json, sys\n"
        f"open({str(asked)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "for name in sys.argv[1:]:\n"
        "    print(json.dumps({'name': name, 'ok': False, 'error': 'KafkaJSDeleteGroupsError: x',\n"
        "                      'gave_up': name == 'moved'}))\n"
    )
    outcomes = client_programs.run([sys.executable, str(program)], ["moved", "wrong"])
    assert not any(each.ok for each in outcomes.values())
    assert asked.read_text().splitlines() == ["moved wrong", "moved", "moved"]
