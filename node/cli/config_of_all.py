"""`fencepost config … --all-brokers`: what all brokers have that have no value of their own.

By the project's own client: librdkafka takes no resource without a name, and an empty one is Kafka's word for all brokers.
"""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.broker_config import BROKER_CONFIGS
from fencepost.cluster.wire.api import ApiKey

from .checked import Failed, named
from .cluster import EXIT_OK, did_you_mean, pairs
from .leading import look_for_leader, need_leader
from .output import show, show_json, show_line
from .refusals import of_the_start
from .wire import Wire

BROKER, ALL = 4, ""  # Kafka's number for the kind of resource
SET, DELETE = 0, 1
SET_BY: Final = "all brokers"


def get(arguments: argparse.Namespace) -> int:
    if arguments.all:
        raise Failed(
            "--all shows what is in force, which each broker says for itself: name one with --broker ID"
        )
    _check_known(arguments.name)
    with Wire(arguments.bootstrap) as wire:
        look_for_leader(wire)
        found = _set_now(wire)
        code = wire.code
    names = arguments.name or sorted(found)
    rows = [(name, found.get(name), SET_BY if name in found else None) for name in names]
    empty = "Nothing is set for all brokers; what each has is told by `fencepost config get --broker ID`."
    show(("setting", "value", "set by"), rows, as_json=arguments.json, empty=empty)
    return code


def change(arguments: argparse.Namespace) -> int:
    wanted = pairs(arguments.setting)
    _alter(arguments, wanted)
    if arguments.json:
        show_json([{"setting": name, "value": value} for name, value in wanted.items()])
    else:
        for name, value in wanted.items():
            show_line(f"{name}={value}, for all brokers that have no value of their own")
    return EXIT_OK


def unset(arguments: argparse.Namespace) -> int:
    _alter(arguments, dict.fromkeys(arguments.name))
    if arguments.json:
        show_json([{"setting": name, "value": None} for name in arguments.name])
    else:
        for name in arguments.name:
            show_line(f"{name} is set no more for all brokers; each has its own, or the default")
    return EXIT_OK


def _alter(arguments: argparse.Namespace, wanted: Mapping[str, str | None]) -> None:
    _check_known(wanted)
    configs = [
        {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
        for name, value in wanted.items()
    ]
    resource = {"resource_type": BROKER, "resource_name": ALL, "configs": configs}
    with Wire(arguments.bootstrap) as wire:
        need_leader(wire)
        answer = wire.ask(
            ApiKey.incremental_alter_configs, resources=[resource], validate_only=False
        ).responses[0]
    _check("can't change the settings of all brokers", answer, *wanted)


def _set_now(wire: Wire) -> dict[str, str | None]:
    resource = {"resource_type": BROKER, "resource_name": ALL, "configuration_keys": None}
    answer = wire.ask(
        ApiKey.describe_configs,
        resources=[resource],
        include_synonyms=False,
        include_documentation=False,
    ).results[0]
    _check("can't read the settings of all brokers", answer)
    return {each.name: "(hidden)" if each.is_sensitive else each.value for each in answer.configs}


def _check(failed: str, answer: Any, *names: str) -> None:
    """`names` of what was to be changed."""
    if answer.error_code is not ErrorCode.none:
        name = answer.error_code.name.upper()
        why = f"{name}: {answer.error_message or ''}".rstrip(": .")
        raise Failed(f"{failed}: {why}.{of_the_start(why, names)}")


def _check_known(names: Any) -> None:
    named("a setting's name", *names)
    for name in names:
        if name not in BROKER_CONFIGS and not name.startswith("listener.name."):
            raise Failed(f"unknown setting {name}: {did_you_mean(name, BROKER_CONFIGS)}")
