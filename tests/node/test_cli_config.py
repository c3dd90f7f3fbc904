"""`fencepost config` of settings that are shown only where they are set, and of what is left when one is unset."""

import json

import pytest
from cluster_by_librdkafka import ToldAdmin
from cluster_on_the_wire import ToldCluster
from confluent_kafka.admin import ConfigSource
from fencepost.node.cli import config
from fencepost.node.main import main

RATE = "leader.replication.throttled.rate"
OF_ONE = ConfigSource.DYNAMIC_BROKER_CONFIG
OF_ALL = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
HERE = ("--broker", "1", "--bootstrap", "127.0.0.1:9001")


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ToldAdmin:
    ToldCluster(monkeypatch)
    monkeypatch.setattr(config, "HEARD_S", 0.0)
    told = ToldAdmin()
    monkeypatch.setattr(config, "connect", lambda _: told)
    return told


def test_a_value_that_all_brokers_have_is_not_told_as_the_default(admin: ToldAdmin, capsys) -> None:
    admin.settings = {RATE: ("2000", OF_ONE)}
    admin.after_alter = {RATE: ("1000", OF_ALL)}
    assert main(["config", "unset", *HERE, RATE]) == 0
    assert capsys.readouterr().out == (
        f"{RATE} is set no more on broker 1; 1000 is in force, set by all brokers\n"
    )
    assert main(["config", "unset", *HERE, RATE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"setting": RATE, "value": "1000", "set by": "all brokers"}
    ]


def test_what_is_back_at_its_default_is_told_with_it(admin: ToldAdmin, capsys) -> None:
    admin.settings = {RATE: ("2000", OF_ONE), "flush.ms": ("5", OF_ONE)}
    admin.after_alter = {"flush.ms": ("1", ConfigSource.DEFAULT_CONFIG)}
    assert main(["config", "unset", *HERE, RATE, "flush.ms"]) == 0
    assert capsys.readouterr().out == (
        f"{RATE} is back at its default\nflush.ms is back at its default, 1\n"
    )


def test_a_node_that_has_not_heard_yet_is_not_taken_at_its_word(admin: ToldAdmin, capsys) -> None:
    admin.settings = {RATE: ("2000", OF_ONE)}
    assert main(["config", "unset", *HERE, RATE]) == 0
    said = capsys.readouterr().out
    assert "was unset" in said and "shows 2000 still" in said


def test_a_setting_that_is_hidden_until_it_is_set_can_be_set_and_asked_for(
    admin: ToldAdmin, capsys
) -> None:
    assert main(["config", "set", *HERE, f"{RATE}=5000"]) == 0
    assert [(each.name, each.value) for each in admin.altered] == [(RATE, "5000")]
    capsys.readouterr()
    assert main(["config", "get", *HERE, RATE]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [RATE, "-", "default"]


def test_a_hidden_setting_that_is_written_wrongly_is_guessed_too(admin: ToldAdmin, capsys) -> None:
    assert main(["config", "set", *HERE, "leader.replication.throttled.rat=5000"]) == 1
    assert f"did you mean {RATE}?" in capsys.readouterr().err
    assert admin.altered == []
