"""What becomes of requests to change settings: Kafka's rules in Kafka's words.

A resource's settings are checked as a whole, changed ones together with those that stay, and the record
expects them to be what they were: two requests that are fine each but not together can't both pass.
"""

import re
from collections import Counter
from typing import Final

from ..base.errors import ConfigRefused, ErrorCode
from ..metadata.broker_config import BROKER_CONFIGS, check_broker_configs
from ..metadata.codec import Command
from ..metadata.config_def import ConfigDef, ValueType, show_value
from ..metadata.group_config import (
    MetricsRefused,
    check_client_metrics_configs,
    check_group_configs,
)
from ..metadata.image import BROKER_DEFAULT, ConfigType
from ..metadata.records import ConfigsChanged
from ..metadata.topic_config import TOPIC_CONFIGS, check_topic_configs, why_topic_name_invalid
from .commands import AlterConfigs, ConfigChange, ConfigOperation, ResourceChange, ResourceResult
from .decision import TOO_LARGE, CommandRefused, Decision, Scene, is_too_long
from .min_isr_policy import MIN_ISR, no_longer_eligible

_BAD: Final = ErrorCode.invalid_request
_NODE_ID: Final = re.compile(r"0|-?[1-9][0-9]{0,9}")


def decide_alter_configs(scene: Scene, command: AlterConfigs) -> Decision[list[ResourceResult]]:
    if is_too_long(change.value for each in command.resources for change in each.changes):
        return _all_refused(command, CommandRefused(ErrorCode.policy_violation, TOO_LARGE))
    times = Counter((each.resource_type, each.name) for each in command.resources)
    results: list[ResourceResult] = []
    records: list[ConfigsChanged] = []
    for resource in command.resources:
        code: ErrorCode = ErrorCode.none
        message: str | None = None
        try:
            if times[resource.resource_type, resource.name] > 1:
                raise CommandRefused(_BAD, "Each resource must appear at most once.")
            record = _altered(scene, resource, replace_all=command.replace_all)
            if record is not None:
                records.append(record)
        except CommandRefused as refused:
            code, message = refused.error_code, refused.message
        results.append(_result(resource, code, message))
    kept: list[Command] = []
    if not command.validate_only:
        kept = [*records, *no_longer_eligible(scene, records)]
    return Decision(
        records=kept,
        reply=lambda _version: results,
        too_large=lambda refused: _all_refused(command, refused).reply(0),
    )


def _all_refused(command: AlterConfigs, refused: CommandRefused) -> Decision[list[ResourceResult]]:
    results = [_result(each, refused.error_code, refused.message) for each in command.resources]
    return Decision(reply=lambda _version: results)


def _result(resource: ResourceChange, code: ErrorCode, message: str | None) -> ResourceResult:
    return ResourceResult(
        resource_type=resource.resource_type,
        name=resource.name,
        error_code=code,
        error_message=message,
    )


def _altered(scene: Scene, resource: ResourceChange, *, replace_all: bool) -> ConfigsChanged | None:
    """The record, or None when nothing would change."""
    _check_shape(resource, replace_all=replace_all)
    kind = _kind(scene, resource, replace_all=replace_all)
    now = dict(scene.image.config(kind, resource.name))
    changes: dict[str, str | None] = {}
    if replace_all:
        changes.update((name, None) for name in now)
    for change in resource.changes:
        operation = ConfigOperation.SET if replace_all else ConfigOperation(change.operation)
        changes[change.name] = _value(kind, now.get(change.name), change, operation)
    then = {name: value for name, value in {**now, **changes}.items() if value is not None}
    _check_values(scene, kind, resource.name, then, changes)
    changes = {name: value for name, value in changes.items() if now.get(name) != value}
    if not changes:
        return None
    topic = scene.image.topics.get(resource.name) if kind is ConfigType.TOPIC else None
    return ConfigsChanged(
        resource_type=kind,
        name=resource.name,
        changes=changes,
        expects=now,
        topic_id=None if topic is None else topic.topic_id,
    )


def _check_shape(resource: ResourceChange, *, replace_all: bool) -> None:
    without_value = [
        change.name
        for change in resource.changes
        if change.value is None and (replace_all or change.operation != ConfigOperation.DELETE)
    ]
    if without_value:
        raise CommandRefused(_BAD, f"Null value not supported for : {','.join(without_value)}")
    if len({change.name for change in resource.changes}) < len(resource.changes):
        raise CommandRefused(_BAD, "Error due to duplicate config keys")
    for change in resource.changes:
        if not replace_all and change.operation not in set(ConfigOperation):
            raise CommandRefused(_BAD, f"Unknown config operation {change.operation}")


def _kind(scene: Scene, resource: ResourceChange, *, replace_all: bool) -> ConfigType:
    """The resource's type, once it is known that there may be settings of that name."""
    name = resource.name
    match resource.resource_type:
        case ConfigType.TOPIC:
            if not name:
                raise CommandRefused(_BAD, "Default topic resources are not allowed.")
            why = why_topic_name_invalid(name)
            if why is not None:
                raise CommandRefused(ErrorCode.invalid_topic_exception, why)
            return ConfigType.TOPIC
        case ConfigType.BROKER:
            if name != BROKER_DEFAULT:
                _check_broker(scene, name)
            return ConfigType.BROKER
        case ConfigType.BROKER_LOGGER if not replace_all:
            _check_broker(scene, name)
            # There is one log here, and it has no levels.
            loggers = [change.name for change in resource.changes]
            raise CommandRefused(
                ErrorCode.invalid_config, f"Logger {(loggers or [''])[0]} does not exist!"
            )
        case ConfigType.CLIENT_METRICS:
            if not name:
                raise CommandRefused(_BAD, "Subscription name can't be empty")
            return ConfigType.CLIENT_METRICS
        case ConfigType.GROUP:
            if not name:
                raise CommandRefused(_BAD, "Default group resources are not allowed.")
            return ConfigType.GROUP
        case unknown:
            raise CommandRefused(_BAD, f"Unknown resource type {int(unknown)}")


def _check_broker(scene: Scene, name: str) -> None:
    # Not " 1" or "01" either: what is kept under such a name is nobody's.
    if _NODE_ID.fullmatch(name) is None:
        raise CommandRefused(_BAD, f"Node id must be an integer, but it is: {name}")
    asked = int(name)
    known = sorted(scene.image.brokers)
    if asked not in known:
        expected = " or ".join(map(str, known))
        why = f"Unexpected broker id, expected {expected}, but received {asked}"
        raise CommandRefused(_BAD, why)


def _row(kind: ConfigType, name: str) -> ConfigDef | None:
    if kind is ConfigType.TOPIC:
        return TOPIC_CONFIGS.get(name)
    return BROKER_CONFIGS.get(name) if kind is ConfigType.BROKER else None


def _value(
    kind: ConfigType, now: str | None, change: ConfigChange, operation: ConfigOperation
) -> str | None:
    if operation is ConfigOperation.DELETE:
        return None
    assert change.value is not None
    if operation is ConfigOperation.SET:
        return change.value
    row = _row(kind, change.name)
    if row is None or row.type is not ValueType.LIST:
        why = f"Can't {operation.name} to key {change.name} because its type is not LIST."
        raise CommandRefused(ErrorCode.invalid_config, why)
    text = show_value(row.default) if now is None else now
    items = [item for item in (text or "").split(",") if item]
    for item in change.value.split(","):
        if operation is ConfigOperation.APPEND and item not in items:
            items.append(item)
        elif operation is ConfigOperation.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _check_values(
    scene: Scene,
    kind: ConfigType,
    name: str,
    then: dict[str, str],
    changes: dict[str, str | None],
) -> None:
    code = ErrorCode.invalid_config
    try:
        match kind:
            case ConfigType.TOPIC:
                check_topic_configs(then)
                if name not in scene.image.topics:
                    why = f"The topic '{name}' does not exist."
                    raise CommandRefused(ErrorCode.unknown_topic_or_partition, why)
            case ConfigType.GROUP:
                check_group_configs(then, scene.settings)
            case ConfigType.CLIENT_METRICS:
                check_client_metrics_configs(then)
            case _:
                _check_min_insync_replicas(name, changes)
                code = _BAD
                changed = {each: then[each] for each in changes if each in then}
                check_broker_configs(changed, one_broker=name != BROKER_DEFAULT)
    except MetricsRefused as refused:
        raise CommandRefused(_BAD, str(refused)) from refused
    except ConfigRefused as refused:
        raise CommandRefused(code, str(refused)) from refused


def _check_min_insync_replicas(name: str, changes: dict[str, str | None]) -> None:
    """Whether a replica is eligible to lead depends on it (KIP-966): it must be the same on every broker."""
    if MIN_ISR not in changes:
        return
    if name != BROKER_DEFAULT:
        raise ConfigRefused(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    if changes[MIN_ISR] is None:
        raise ConfigRefused(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
