"""`fencepost config`: the settings of topics, brokers and groups: get, set, unset."""

import argparse
from collections.abc import Sequence
from typing import Any

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from .checked import Failed, named
from .cluster import (
    EXIT_OK,
    add_cluster_arguments,
    connect,
    did_you_mean,
    find_topic,
    outcome,
    pairs,
    run_safely,
)
from .output import show, show_json, show_line

_SET_BY = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG.value: "node file",
    ConfigSource.DEFAULT_CONFIG.value: "default",
}


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    get = actions.add_parser("get", help="show what is in force and who set it")
    get.add_argument("name", nargs="*", help="only these settings")
    get.add_argument("--all", action="store_true", help="show defaults as well")
    get.set_defaults(action=_get)
    set_ = actions.add_parser("set", help="change settings")
    set_.add_argument("setting", nargs="+", metavar="NAME=VALUE")
    set_.set_defaults(action=_set)
    unset = actions.add_parser("unset", help="go back to the default")
    unset.add_argument("name", nargs="+")
    unset.set_defaults(action=_unset)
    for action in (get, set_, unset):
        whose = action.add_mutually_exclusive_group(required=True)
        whose.add_argument("--topic", metavar="TOPIC")
        whose.add_argument("--broker", metavar="ID", help="a broker's id")
        whose.add_argument("--group", metavar="GROUP")
        add_cluster_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    return run_safely(arguments.action, arguments)


def _resource(
    arguments: argparse.Namespace, entries: list[ConfigEntry] | None = None
) -> ConfigResource:
    if arguments.topic is not None:
        kind, name = ResourceType.TOPIC, arguments.topic
    elif arguments.broker is not None:
        kind, name = ResourceType.BROKER, arguments.broker
    else:
        kind, name = ResourceType.GROUP, arguments.group
    named(f"the name of a {kind.name.lower()}", name)
    return ConfigResource(kind, name, incremental_configs=entries)


def _entries(
    admin: Any, arguments: argparse.Namespace, named_ones: Sequence[str]
) -> dict[str, Any]:
    """Every setting there is; Failed when the resource is not there, or has no setting of a name."""
    named("a setting's name", *named_ones)
    if arguments.topic is not None:
        find_topic(admin, arguments.topic)
    elif arguments.broker is not None:
        _check_broker(arguments)
    resource = _resource(arguments)
    futures = admin.describe_configs([resource])
    found: dict[str, Any] = outcome(
        f"can't read the settings of {resource.name}", futures[resource]
    )
    for name in named_ones:
        if name not in found:
            raise Failed(f"unknown setting {name}: {did_you_mean(name, found)}")
    return found


def _check_broker(arguments: argparse.Namespace) -> None:
    """Librdkafka asks the broker itself, and would wait for one that is not there, or has just died."""
    from .wire import Wire, read_image  # slow to import

    with Wire(arguments.bootstrap) as wire:
        brokers = read_image(wire, []).brokers
    broker = next((each for id_, each in brokers.items() if str(id_) == arguments.broker), None)
    if broker is None:
        there = ", ".join(map(str, sorted(brokers)))
        raise Failed(f"there is no broker {arguments.broker!r}; there are: {there}")
    if broker.fenced:
        raise Failed(
            f"broker {arguments.broker} is down, and it alone tells its settings. Start it, or ask another:"
            " `fencepost node list`."
        )


def _get(arguments: argparse.Namespace) -> int:
    _resource(arguments)
    entries = _entries(connect(arguments), arguments, arguments.name)
    rows = [
        (
            name,
            "(hidden)" if entry.is_sensitive else entry.value,
            _SET_BY.get(entry.source, "group"),
        )
        for name, entry in sorted(entries.items())
        if (name in arguments.name if arguments.name else arguments.all or not entry.is_default)
    ]
    show(
        ("setting", "value", "set by"),
        rows,
        as_json=arguments.json,
        empty=f"Nothing is set on {_resource(arguments).name}; `--all` shows the defaults in force.",
    )
    return EXIT_OK


def _set(arguments: argparse.Namespace) -> int:
    wanted = pairs(arguments.setting)
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    _alter(arguments, entries)
    if arguments.json:
        show_json([{"setting": name, "value": value} for name, value in wanted.items()])
    else:
        for name, value in wanted.items():
            show_line(f"{name}={value}")
    return EXIT_OK


def _unset(arguments: argparse.Namespace) -> int:
    entries = [
        ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
        for name in arguments.name
    ]
    _alter(arguments, entries)
    if arguments.json:
        show_json([{"setting": name, "value": None} for name in arguments.name])
    else:
        for name in arguments.name:
            show_line(f"{name} is back at its default")
    return EXIT_OK


def _alter(arguments: argparse.Namespace, entries: list[ConfigEntry]) -> None:
    _resource(arguments)
    admin = connect(arguments)
    _entries(admin, arguments, [each.name for each in entries])
    resource = _resource(arguments, entries)
    futures = admin.incremental_alter_configs([resource])
    outcome(f"can't change the settings of {resource.name}", futures[resource])
