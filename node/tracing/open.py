"""Spans, if they are wanted: OpenTelemetry is imported only then, and is an extra (`fencepost[otel]`)."""

import importlib.util

from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.base.foreign_log import take_over
from fencepost.cluster.base.ports import Env

from ..config import NodeConfig
from .spans import Spans

ENDPOINT = "tracing.otlp.endpoint"
# What `otel.py` needs of the extra: other packages bring OpenTelemetry's API alone.
NEEDED = (
    "opentelemetry.sdk.trace",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "requests",
)


def check_spans(config: NodeConfig) -> None:
    """ConfigRefused where spans are wanted and can't be made."""
    endpoint = config.string(ENDPOINT)
    if endpoint and not all(map(_is_there, NEEDED)):
        raise ConfigRefused(
            f"{ENDPOINT}={endpoint} asks for spans, and OpenTelemetry is not installed: "
            "`pip install -e '.[otel]'` in the checkout that this node runs from (for an image `make image "
            "EXTRAS=clients,otel`), or leave the setting out"
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package that it would be in
        return False


def open_spans(env: Env, config: NodeConfig) -> Spans | None:
    endpoint = config.string(ENDPOINT)
    if not endpoint:
        return None
    check_spans(config)
    from .otel import OtelSpans, exported_to, provider_of

    take_over("opentelemetry", env.log)
    ratio = config.value("tracing.sample.ratio")
    assert isinstance(ratio, float)
    return OtelSpans(env.clock, exported_to(endpoint, provider_of(config.node_id, ratio)))
