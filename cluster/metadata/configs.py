"""What a command does to the settings of a resource."""

from collections.abc import Hashable, Iterator

from .image import ClusterImage, ConfigType, ImageDelta
from .records import ConfigsChanged
from .refusal import Reason, Refused


def touched_by_configs_changed(command: ConfigsChanged) -> Iterator[Hashable]:
    yield "configs", command.resource_type, command.name


def why_not_configs_changed(image: ClusterImage, command: ConfigsChanged) -> Refused | None:
    if command.resource_type is ConfigType.TOPIC:
        topic = image.topics.get(command.name)
        if topic is None or command.topic_id not in (None, topic.topic_id):
            return Refused(Reason.TOPIC_UNKNOWN, f"The topic '{command.name}' does not exist.")
    now = image.config(command.resource_type, command.name)
    if command.expects is not None and command.expects != now:
        why = f"The settings of '{command.name}' are others now."
        return Refused(Reason.STALE_CONFIG, why)
    return None


def apply_configs_changed(image: ClusterImage, command: ConfigsChanged, delta: ImageDelta) -> None:
    key = (command.resource_type, command.name)
    # A new dict: whoever holds the old one holds what was in force then.
    configs = dict(image.configs.get(key, ()))
    for name, value in command.changes.items():
        if value is None:
            configs.pop(name, None)
        else:
            configs[name] = value
    if configs:
        image.configs[key] = configs
    else:
        image.configs.pop(key, None)
    delta.configs_changed.append(key)
