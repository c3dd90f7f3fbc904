"""How the programs in other languages are built: what a machine lacks is skipped by name, what is old is removed."""

import os
import sys
import time

import client_programs
import pytest
from brokers import Death


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


def test_only_a_scenario_whose_broker_was_dead_is_asked_again(tmp_path, monkeypatch) -> None:
    """A connection that a living node ended, or an answer that found something wrong, is a finding and stays one."""
    monkeypatch.setattr("client_programs.IN_CHAOS", True)
    monkeypatch.setattr("brokers.DEATHS", [Death("127.0.0.1:9093", 100.0, 102.0)])
    gave_up = {
        "moved": {"broker": None, "at": 50.0},
        "dead": {"broker": "127.0.0.1:9093", "at": 101.0},
        "noticed": {"broker": "127.0.0.1:9093", "at": 103.0},
        "alive": {"broker": "127.0.0.1:9093", "at": 105.0},
        "another": {"broker": "127.0.0.1:9094", "at": 101.0},
        "wrong": None,
    }
    asked = tmp_path / "asked"
    program = tmp_path / "program"
    program.write_text(
        "import json, sys\n"
        f"gave_up = {gave_up!r}\n"
        f"open({str(asked)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "for name in sys.argv[1:]:\n"
        "    said = {'name': name, 'ok': False, 'error': 'x', 'gave_up': gave_up[name]}\n"
        "    print(json.dumps(said))\n"
    )
    outcomes = client_programs.run([sys.executable, str(program)], list(gave_up))
    assert not any(each.ok for each in outcomes.values())
    assert asked.read_text().splitlines() == [" ".join(gave_up), *["moved dead noticed"] * 2]
