"""`fencepost config`: the settings of topics, brokers and groups: get, set, unset."""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .checked import Failed, named
from .cluster import (
    EXIT_OK,
    add_cluster_arguments,
    code_of_what_is_shown,
    connect,
    did_you_mean,
    find_topic,
    outcome,
    pairs,
    run_safely,
    seen,
    wait_to_read_s,
)
from .kafka_client import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from .output import show, show_json, show_line
from .refusals import of_the_start

if TYPE_CHECKING:
    from .wire import Wire

DEFAULT: Final = "default"
_SET_BY = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG.value: "node file",
    ConfigSource.DEFAULT_CONFIG.value: DEFAULT,
}
# What a node says, as Kafka does, of a setting that may not differ between brokers.
ONLY_OF_ALL: Final = "cannot be altered while ELR is enabled"
# How long the node that is asked may take to hear of what was changed.
HEARD_S, LOOK_S = 3.0, 0.1


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
        whose.add_argument(
            "--all-brokers", action="store_true", help="those that have no value of their own"
        )
        whose.add_argument("--group", metavar="GROUP")
        add_cluster_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    if arguments.all_brokers:
        from . import config_of_all  # slow to import

        of_all = {_get: config_of_all.get, _set: config_of_all.change, _unset: config_of_all.unset}
        return run_safely(of_all[arguments.action], arguments)
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
    admin: Any, arguments: argparse.Namespace, named_ones: Sequence[str], code: int = EXIT_OK
) -> dict[str, Any]:
    """Every setting that is shown; Failed when the resource is not there, or has no setting of a name."""
    named("a setting's name", *named_ones)
    if arguments.topic is not None:
        find_topic(admin, arguments.topic)
    resource = _resource(arguments)
    futures = admin.describe_configs([resource], request_timeout=wait_to_read_s(code))
    found: dict[str, Any] = seen(f"can't read the settings of {resource.name}", futures[resource])
    unseen = [name for name in named_ones if name not in found]
    known = _known(arguments) if unseen else {}
    for name in unseen:
        if name not in known:
            raise Failed(f"unknown setting {name}: {did_you_mean(name, {**known, **found})}")
    return found


def _known(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Also those that a node shows only where somebody has set them."""
    from fencepost.cluster.metadata.broker_config import BROKER_CONFIGS  # slow to import
    from fencepost.cluster.metadata.group_config import GROUP_CONFIGS
    from fencepost.cluster.metadata.topic_config import TOPIC_CONFIGS

    if arguments.topic is not None:
        return TOPIC_CONFIGS
    return GROUP_CONFIGS if arguments.broker is None else BROKER_CONFIGS


def _look(arguments: argparse.Namespace) -> int:
    """How a command ends that shows settings, by whether anybody leads; Failed when a broker can't be asked for its own."""
    if arguments.broker is None:
        return code_of_what_is_shown(arguments)
    from .wire import Wire  # slow to import

    with Wire(arguments.bootstrap) as wire:
        _check_broker(wire, arguments)
        return wire.code


def _check_broker(wire: "Wire", arguments: argparse.Namespace) -> None:
    """Librdkafka asks the broker itself, and would wait for one that is not there, or has just died."""
    from .wire import read_image

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
    admin = connect(arguments)
    code = _look(arguments)
    entries = _entries(admin, arguments, arguments.name, code)
    rows = [
        (
            name,
            _value(entry),
            _set_by(entry),
        )
        for name, entry in sorted(entries.items())
        if (name in arguments.name if arguments.name else arguments.all or not entry.is_default)
    ]
    rows += [(name, None, DEFAULT) for name in arguments.name if name not in entries]
    show(
        ("setting", "value", "set by"),
        rows,
        as_json=arguments.json,
        empty=f"Nothing is set on {_resource(arguments).name}; `--all` shows the defaults in force.",
    )
    return code


def _set(arguments: argparse.Namespace) -> int:
    _resource(arguments)
    wanted = pairs(arguments.setting)
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    _alter(connect(arguments), arguments, entries)
    if arguments.json:
        show_json([{"setting": name, "value": value} for name, value in wanted.items()])
    else:
        for name, value in wanted.items():
            show_line(f"{name}={value}")
    return EXIT_OK


def _unset(arguments: argparse.Namespace) -> int:
    _resource(arguments)
    entries = [
        ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
        for name in arguments.name
    ]
    admin = connect(arguments)
    _alter(admin, arguments, entries)
    held = _held(admin, arguments)
    if arguments.json:
        show_json(
            [
                {"setting": name, "value": value, "set by": set_by}
                for name, (value, set_by) in held.items()
            ]
        )
    else:
        for name, (value, set_by) in held.items():
            show_line(_now(arguments, name, value, set_by))
    return EXIT_OK


def _held(admin: Any, arguments: argparse.Namespace) -> dict[str, tuple[str | None, str]]:
    """What is in force of those that were unset, and who set it: the cluster's, or a node's file, may be left."""
    deadline = time.monotonic() + HEARD_S
    while True:
        entries = _entries(admin, arguments, arguments.name)
        held = {}
        for name in arguments.name:
            entry = entries.get(name)
            held[name] = (None, DEFAULT) if entry is None else (_value(entry), _set_by(entry))
        is_old = any(set_by == _whose(arguments) for _, set_by in held.values())
        if not is_old or time.monotonic() >= deadline:
            return held
        time.sleep(LOOK_S)


def _now(arguments: argparse.Namespace, name: str, value: str | None, set_by: str) -> str:
    whose = _whose(arguments)
    if set_by == whose:
        return f"{name} was unset; the node that was asked has not heard of it yet, and shows {value} still"
    if set_by == DEFAULT:
        return f"{name} is back at its default{'' if value is None else f', {value}'}"
    return f"{name} is set no more on {whose} {_resource(arguments).name}; {value} is in force, set by {set_by}"


def _whose(arguments: argparse.Namespace) -> str:
    if arguments.topic is not None:
        return "topic"
    return "group" if arguments.broker is None else "broker"


def _value(entry: Any) -> str | None:
    return "(hidden)" if entry.is_sensitive else entry.value


def _set_by(entry: Any) -> str:
    return _SET_BY.get(entry.source, "group")


def _alter(admin: Any, arguments: argparse.Namespace, entries: list[ConfigEntry]) -> None:
    from .leading import need_leader  # slow to import
    from .wire import Wire

    with Wire(arguments.bootstrap) as wire:
        need_leader(wire)
        if arguments.broker is not None:
            _check_broker(wire, arguments)
    _entries(admin, arguments, [each.name for each in entries])
    resource = _resource(arguments, entries)
    futures = admin.incremental_alter_configs([resource])
    try:
        outcome(f"can't change the settings of {resource.name}", futures[resource])
    except Failed as refused:
        if arguments.broker is not None and ONLY_OF_ALL in str(refused):
            raise Failed(
                f"{refused} `fencepost config set --all-brokers` does that, or `--topic TOPIC`."
            ) from refused
        if step := of_the_start(str(refused), [each.name for each in entries]):
            raise Failed(f"{refused}{step}") from refused
        raise
