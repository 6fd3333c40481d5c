"""What switches traces on, and what is refused by name."""

import pytest

from exporter.otlp.settings import OtlpSettingError
from exporter.tracing.settings import TracesConfig, traces_config

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
OWN = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


def chosen(endpoint: str | None = None, **environment: str) -> TracesConfig:
    config = traces_config(endpoint, environment)
    assert config is not None
    return config


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {BASE: ""},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://a:4318"},
        {"OTEL_TRACES_SAMPLER": "always_on"},
        {BASE: "http://a:4318", "OTEL_TRACES_EXPORTER": "none"},
        {BASE: "http://a:4318", "OTEL_TRACES_EXPORTER": "zipkin,console"},
        {BASE: "http://a:4318", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_nothing_is_sent_unless_it_is_asked_for(environment: dict[str, str]) -> None:
    assert traces_config(None, environment) is None


def test_the_option_wins_then_the_variable_for_traces_then_the_common_one() -> None:
    assert chosen("http://o:1", **{OWN: "http://b/x"}).url == "http://o:1/v1/traces"
    assert chosen("http://o:1/v1/traces").url == "http://o:1/v1/traces"
    assert chosen("http://o:1", OTEL_SDK_DISABLED="true").url == "http://o:1/v1/traces"
    assert chosen(None, **{OWN: "http://b/x", BASE: "http://c"}).url == "http://b/x"
    assert chosen(None, **{BASE: "http://c"}).url == "http://c/v1/traces"


def test_defaults_are_opentelemetrys_and_variables_change_them() -> None:
    config = chosen("http://a")
    assert config == TracesConfig(url="http://a/v1/traces")
    config = chosen(
        "http://a",
        OTEL_EXPORTER_OTLP_TIMEOUT="3000",
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT="250",
        OTEL_TRACES_SAMPLER="ParentBased_TraceIdRatio",
        OTEL_TRACES_SAMPLER_ARG="0.25",
        OTEL_BSP_SCHEDULE_DELAY="100",
        OTEL_BSP_MAX_QUEUE_SIZE="100",
    )
    assert config == TracesConfig(
        url="http://a/v1/traces",
        timeout_seconds=0.25,
        sampler="parentbased_traceidratio",
        ratio=0.25,
        delay_seconds=0.1,
        queue_spans=100,
        batch_spans=100,
    )


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"OTEL_TRACES_SAMPLER": "sometimes"}, "OTEL_TRACES_SAMPLER 'sometimes': expected one of"),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "nan"},
            "OTEL_TRACES_SAMPLER_ARG 'nan': expected a ratio from 0 to 1",
        ),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "0"}, "OTEL_BSP_MAX_QUEUE_SIZE '0': expected a number"),
        (
            {"OTEL_BSP_MAX_QUEUE_SIZE": "10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "11"},
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE '11': expected a number of spans from 1 to 10",
        ),
        ({"OTEL_BSP_SCHEDULE_DELAY": "1s"}, "OTEL_BSP_SCHEDULE_DELAY '1s': expected whole"),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL 'grpc': kvscope sends http/protobuf only; set "
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf",
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "key"}, "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(
    environment: dict[str, str], said: str
) -> None:
    with pytest.raises(OtlpSettingError) as refused:
        traces_config("http://a:4318", environment)
    assert str(refused.value).startswith(said)


def test_a_malformed_endpoint_is_refused_by_the_options_name() -> None:
    with pytest.raises(OtlpSettingError, match=r"^--otlp-traces-endpoint 'a:4318'"):
        traces_config("a:4318", {})
