"""Kafka 4.3.0 was asked for all its settings, and to set each of them to sixty values; so are we."""

import json
import pathlib

import pytest
from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.broker_config import (
    BROKER_CONFIGS,
    BrokerValues,
    check_broker_configs,
)
from fencepost.cluster.metadata.config_def import Update, show_value
from fencepost.cluster.metadata.config_docs import (
    BROKER_DOCS,
    CLIENT_METRICS_DOCS,
    GROUP_DOCS,
    TOPIC_DOCS,
)
from fencepost.cluster.metadata.describe import DescribedConfig, describe
from fencepost.cluster.metadata.group_config import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    check_client_metrics_configs,
    check_group_configs,
)
from fencepost.cluster.metadata.image import ClusterImage, ConfigType, TopicState
from fencepost.cluster.metadata.topic_config import (
    TOPIC_CONFIGS,
    TopicConfig,
    TopicConfigs,
    check_topic_configs,
)

KAFKA = pathlib.Path(__file__).parent / "kafka_4_3"
SETTINGS = json.loads((KAFKA / "settings.json").read_text())
ANSWERS = json.loads((KAFKA / "answers_to_values.json").read_text())
DESCRIBED = json.loads((KAFKA / "described.json").read_text())
VALUES = {int(number): text for number, text in ANSWERS["values"].items()}
NODE = BrokerId(1)

# Where this node's default is another than Kafka's, and why.
OTHER_DEFAULTS = {
    "broker.session.timeout.ms",  # 3 s: the rest is most of Kafka's failover time
    "broker.heartbeat.interval.ms",  # several in one session
    # 10 s: a node that was restarted leads its share again before the next one of a rolling restart goes.
    "leader.imbalance.check.interval.seconds",
    "log.dir",  # none: Kafka's lies in /tmp
}


# What Kafka has not.
OURS = {"log.flush.policy", "log.level", "request.log", "request.log.slow.ms"}


def test_all_of_kafkas_topic_settings_are_here_with_its_types_and_defaults() -> None:
    ours = {row.name for row in TOPIC_CONFIGS.values() if not row.internal} - {"flush.policy"}
    assert ours == set(SETTINGS["topic"])
    for name, kafka in SETTINGS["topic"].items():
        row = TOPIC_CONFIGS[name]
        assert (row.type, show_value(row.default)) == (kafka["type"], kafka["value"]), name
        if kafka["synonyms"]:
            assert row.synonyms[0][0] == kafka["synonyms"][0][0], name


def test_all_of_kafkas_broker_settings_are_here_with_its_types_defaults_and_update_modes() -> None:
    ours = {row.name for row in BROKER_CONFIGS.values() if not row.internal}
    assert ours - OURS == set(SETTINGS["broker"])
    for name, kafka in SETTINGS["broker"].items():
        row = BROKER_CONFIGS[name]
        assert row.type == kafka["type"], name
        assert (row.update is Update.READ_ONLY) == kafka["read_only"], name
        assert row.sensitive == kafka["sensitive"], name
        by_default = [value for _, value, source in kafka["synonyms"] if source == 5]
        if by_default and name not in OTHER_DEFAULTS:
            assert show_value(row.default) == by_default[0], name


def test_all_of_kafkas_group_and_client_metrics_settings_are_here() -> None:
    for ours, kafkas in ((GROUP_CONFIGS, "group"), (CLIENT_METRICS_CONFIGS, "client_metrics")):
        assert set(ours) == set(SETTINGS[kafkas])
        for name, kafka in SETTINGS[kafkas].items():
            row = ours[name]
            assert (row.type, show_value(row.default)) == (kafka["type"], kafka["value"]), name


def test_every_documented_setting_exists_and_every_topic_setting_is_documented() -> None:
    assert set(TOPIC_DOCS) == set(TOPIC_CONFIGS)
    assert set(BROKER_DOCS) <= set(BROKER_CONFIGS)
    assert set(GROUP_DOCS) <= set(GROUP_CONFIGS)
    assert set(CLIENT_METRICS_DOCS) == set(CLIENT_METRICS_CONFIGS)


# --- sixty values each ----------------------------------------------------------------------------


def expected(section: str, name: str) -> dict[str, tuple[bool, str]]:
    """Value -> (was taken, the sentence)."""
    answers = {}
    for told, numbers in ANSWERS[section][name].items():
        code, _, sentence = told.partition(" ")
        for number in numbers:
            text = VALUES[number]
            answers[text] = (code == "0", sentence.replace("{}", text, 1))
    return answers


@pytest.mark.parametrize("name", sorted(ANSWERS["topic"]))
def test_a_topic_setting_takes_and_refuses_what_kafka_does_in_its_words(name: str) -> None:
    for text, (taken, sentence) in expected("topic", name).items():
        why = refused(lambda text=text: check_topic_configs({name: text}))
        assert (why is None, why or "") == (taken, sentence), text


# Kafka's answer comes of something that this node has not got, or is an accident of Kafka's.
ACCIDENTS = (
    "Dynamic thread count update",
    "Log cleaner threads cannot",
    "log.cleaner.dedupe.buffer.size",
    "/ by zero",
    "Error parsing configuration property",
    "Error creating broker listeners",
    "Unable to parse a listener name",
    "Validation of dynamic config update",
    "while ELR is enabled",
    "Invalid max.connection",
    "max.connections.per.ip can be set to zero only if",
    "log.retention.ms property value",
    "as log.retention.ms value is set",
    "could not be found",
    "listeners' must not be empty",
    "must be less than or equal to group.",
)


# Kafka reads the rest of the node's configuration to answer.
ONLY_AT_A_START = (
    "A node here opens its doors when it starts, so write it into its own settings (--config, FENCEPOST_…, --set) and start"
    " it again; these are not changed while it runs: [listeners]"
)
ENTANGLED = {"cordoned.log.dirs", "listener.security.protocol.map"}


@pytest.mark.parametrize("name", sorted(set(ANSWERS["broker"]) - ENTANGLED))
def test_a_broker_setting_takes_and_refuses_what_kafka_does_in_its_words(name: str) -> None:
    for text, (taken, sentence) in expected("broker", name).items():
        if any(accident in sentence for accident in ACCIDENTS):
            continue
        why = refused(lambda text=text: check_broker_configs({name: text}, one_broker=True))
        if taken and name == "listeners":
            taken, sentence = False, ONLY_AT_A_START
        assert (why is None, why or "") == (taken, sentence), text


@pytest.mark.parametrize("name", sorted(ANSWERS["group"]))
def test_a_group_setting_takes_and_refuses_what_kafka_does_in_its_words(name: str) -> None:
    brokers = BrokerValues(ClusterImage(), {}, NODE)
    for text, (taken, sentence) in expected("group", name).items():
        why = refused(lambda text=text: check_group_configs({name: text}, brokers))
        assert (why is None, why or "") == (taken, sentence), text


@pytest.mark.parametrize("name", sorted(ANSWERS["client_metrics"]))
def test_a_client_metrics_setting_takes_and_refuses_what_kafka_does_in_its_words(
    name: str,
) -> None:
    for text, (taken, sentence) in expected("client_metrics", name).items():
        why = refused(lambda text=text: check_client_metrics_configs({name: text}))
        assert (why is None, why or "") == (taken, sentence), text


def refused(check: object) -> str | None:
    try:
        check()  # type: ignore[operator]
    except ConfigRefused as why:
        return str(why)
    return None


def test_segments_are_smaller_than_kafka_allows_only_where_a_test_says_so() -> None:
    image = ClusterImage()
    small = TopicConfig.resolve(image, "t", {"log.internal.segment.bytes": "4096"})
    assert small.segment_bytes == 4096
    image.configs[ConfigType.TOPIC, "t"] = {"internal.segment.bytes": "100"}
    assert TopicConfig.resolve(image, "t", {}).segment_bytes == 100


def test_a_topics_settings_are_resolved_once_for_all_that_have_the_same() -> None:
    image, configs = ClusterImage(), TopicConfigs({"log.retention.hours": "-1"}, NODE)
    assert configs.of(image, "a") is configs.of(image, "b")
    assert configs.of(image, "a").retention_ms == -1
    image.configs[ConfigType.TOPIC, "b"] = {"retention.ms": "5", "cleanup.policy": "compact"}
    assert configs.of(image, "b").retention_ms == 5
    assert (configs.of(image, "b").compact, configs.of(image, "b").delete) == (True, False)
    before = configs.of(image, "a")
    image.configs[ConfigType.BROKER, "1"] = {"log.retention.ms": "7"}
    assert (configs.of(image, "a").retention_ms, before.retention_ms) == (7, -1)
    assert configs.of(image, "b").retention_ms == 5


# --- what is shown --------------------------------------------------------------------------------

STATIC = {
    "log.retention.hours": "100",
    "log.retention.minutes": "500",
    "log.roll.hours": "24",
    "log.flush.interval.ms": "1000",
    "log.flush.scheduler.interval.ms": "2000",
    "log.cleanup.policy": "compact,delete",
    "unclean.leader.election.enable": "false",
    "min.insync.replicas": "1",
    "segment.bytes": "5",
    "my.custom": "1",
    "sasl.jaas.config": "x y z;",
}


def scene(step: str) -> ClusterImage:
    """The same cluster that Kafka was asked about."""
    image = ClusterImage()
    image.topics["s"] = TopicState("s", None, [])  # type: ignore[arg-type]
    of_topic = {"segment.bytes": "2000000", "cleanup.policy": "compact"}
    image.configs[ConfigType.TOPIC, "s"] = of_topic
    # Kafka keeps one setting of its own for all brokers.
    image.configs[ConfigType.BROKER, ""] = {"min.insync.replicas": "1"}
    if step != "static":
        image.configs[ConfigType.BROKER, "1"] = {
            "log.retention.ms": "7200000",
            "log.segment.bytes": "3000000",
            "unclean.leader.election.enable": "true",
        }
        image.configs[ConfigType.BROKER, ""] |= {
            "log.retention.ms": "3600000",
            "log.cleanup.policy": "compact",
            "log.flush.interval.ms": "5000",
            "bogus.thing": "7",
        }
        image.configs[ConfigType.GROUP, "g"] = {"consumer.session.timeout.ms": "50000"}
    if step == "internal":
        of_topic["internal.segment.bytes"] = "1000"
    return image


def shown(config: DescribedConfig) -> list[object]:
    synonyms = [[each.name, each.value, each.source] for each in config.synonyms]
    flags = [config.read_only, config.sensitive, config.type]
    return [config.value, config.source, *flags, synonyms]


@pytest.mark.parametrize("step", ["static", "dynamic", "internal"])
@pytest.mark.parametrize(
    ("kind", "resource", "name"),
    [
        ("topic", ConfigType.TOPIC, "s"),
        ("broker", ConfigType.BROKER, "1"),
        ("broker_default", ConfigType.BROKER, ""),
        ("group", ConfigType.GROUP, "g"),
    ],
)
def test_settings_are_shown_with_the_sources_and_synonyms_that_kafka_shows(
    step: str, kind: str, resource: ConfigType, name: str
) -> None:
    answer = describe(scene(step), STATIC, NODE, resource, name)
    assert isinstance(answer, list)
    ours = {config.name: shown(config) for config in answer}
    for setting, kafka in DESCRIBED[f"{step} {kind}"].items():
        if kind == "broker" and step != "static" and setting.startswith("log.retention."):
            # Kafka shows `log.retention.hours` 168 there although it was set to 100: not worth following.
            assert ours[setting][1:] == kafka[1:], setting
            continue
        if setting == "log.flush.scheduler.interval.ms" and step != "static":
            assert ours[setting][1:] == kafka[1:], setting  # likewise
            continue
        assert ours[setting] == kafka, setting
    if kind != "broker":
        assert set(ours) - {"flush.policy"} == set(DESCRIBED[f"{step} {kind}"])
