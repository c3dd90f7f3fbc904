"""The table of versions, against what a Kafka 4.3.0 broker said and what kio has."""

import json
import pathlib

from fencepost.cluster.wire.versions import ADVERTISED_MIN, SUPPORTED, ApiKey
from kio.schema.index import api_key_map, schema_name_map

ANSWER = json.loads(
    (pathlib.Path(__file__).parent / "kafka_4_3_api_versions.json").read_text(encoding="utf-8")
)
# Kafka has these only where a telemetry plugin is configured.
ONLY_WITH_A_PLUGIN = {ApiKey.get_telemetry_subscriptions, ApiKey.push_telemetry}
# Written down in Kafka, and advertised only where unstable versions are allowed: two-phase commit (KIP-939).
UNSTABLE_IN_KAFKA = {ApiKey.init_producer_id: 6}


def test_every_api_has_the_versions_that_kafka_4_3_and_kio_both_have() -> None:
    for key, (low, high) in SUPPORTED.items():
        ours = schema_name_map[key.name]
        assert set(range(low, high + 1)) <= set(ours)
        if key in ONLY_WITH_A_PLUGIN:
            continue
        advertised_low, theirs_high = ANSWER["api_versions"][str(int(key))]
        assert ADVERTISED_MIN.get(key, low) == advertised_low, key
        assert high == UNSTABLE_IN_KAFKA.get(key, min(max(ours), theirs_high)), key


def test_what_kafka_has_and_we_have_not_is_delegation_tokens_share_groups_and_streams() -> None:
    missing = {int(key) for key in ANSWER["api_versions"]} - set(SUPPORTED)
    assert {ApiKey(key).name for key in missing} == {
        *(f"{verb}_delegation_token" for verb in ("create", "renew", "expire", "describe")),
        *("share_group_heartbeat", "share_group_describe", "share_fetch", "share_acknowledge"),
        *("initialize_share_group_state", "read_share_group_state", "write_share_group_state"),
        *("delete_share_group_state", "read_share_group_state_summary"),
        *("streams_group_heartbeat", "streams_group_describe"),
        *("describe_share_group_offsets", "alter_share_group_offsets"),
        "delete_share_group_offsets",
    }


def test_names_are_those_of_kios_folders() -> None:
    assert {int(key): key.name for key in ApiKey} == dict(api_key_map)
