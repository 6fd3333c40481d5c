"""Option and standard variables: what wins, what is refused, and how that is said."""

import pytest

from exporter.otlp.settings import OtlpConfig, OtlpSettingError, otlp_config

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
OWN = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


def chosen(endpoint: str | None = None, **environment: str) -> OtlpConfig:
    config = otlp_config(endpoint, environment)
    assert config is not None
    return config


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {BASE: ""},
        {BASE: "  "},
        {"OTEL_SERVICE_NAME": "x"},
        {BASE: "http://a:4318", "OTEL_METRICS_EXPORTER": "none"},
        {BASE: "http://a:4318", "OTEL_METRICS_EXPORTER": "prometheus"},
        {BASE: "http://a:4318", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_nothing_is_sent_unless_it_is_asked_for(environment: dict[str, str]) -> None:
    assert otlp_config(None, environment) is None


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://a:4318", "http://a:4318/v1/metrics"),
        ("http://a:4318/", "http://a:4318/v1/metrics"),
        ("https://a/api/v1/otlp", "https://a/api/v1/otlp/v1/metrics"),
        ("http://a:4318/v1/metrics", "http://a:4318/v1/metrics"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
        ("https://a?token=1", "https://a/v1/metrics?token=1"),
    ],
)
def test_the_option_is_a_base_url_as_the_variable_is(endpoint: str, url: str) -> None:
    assert chosen(endpoint).url == url
    assert chosen(None, **{BASE: endpoint}).url == url


def test_the_option_wins_then_the_variable_for_metrics_which_is_taken_as_it_is() -> None:
    environment = {BASE: "http://base:4318", OWN: "http://own:4318/push"}
    assert chosen(None, **environment).url == "http://own:4318/push"
    assert chosen("http://option:4318", **environment).url == "http://option:4318/v1/metrics"
    assert chosen("http://o:1", OTEL_METRICS_EXPORTER="none").url == "http://o:1/v1/metrics"


def test_intervals_and_time_outs_are_milliseconds() -> None:
    config = chosen("http://a")
    assert (config.interval_seconds, config.timeout_seconds) == (60, 10)
    config = chosen(
        "http://a",
        OTEL_METRIC_EXPORT_INTERVAL="1500",
        OTEL_EXPORTER_OTLP_TIMEOUT="3000",
    )
    assert (config.interval_seconds, config.timeout_seconds) == (1.5, 3)
    config = chosen(
        "http://a", OTEL_EXPORTER_OTLP_TIMEOUT="3000", OTEL_EXPORTER_OTLP_METRICS_TIMEOUT="250"
    )
    assert config.timeout_seconds == 0.25


@pytest.mark.parametrize(
    "endpoint",
    [
        *("a:4318", "grpc://a:4317", "http://", "http://a:port", "http://a:70000", "http://a:0"),
        *("http://a b", "http://a\nb", "http://[::1", "http://a#b", "//a", "http:a"),
    ],
)
def test_a_malformed_endpoint_is_refused_by_name(endpoint: str) -> None:
    with pytest.raises(OtlpSettingError, match=r"^--otlp-endpoint '.*expected http://HOST:4318"):
        otlp_config(endpoint, {})
    with pytest.raises(OtlpSettingError, match=rf"^({BASE}|{OWN}) "):
        otlp_config(None, {BASE: endpoint, OWN: endpoint})


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"]
)
@pytest.mark.parametrize("protocol", ["grpc", "http/json"])
def test_other_protocols_are_refused_with_what_to_do(name: str, protocol: str) -> None:
    with pytest.raises(OtlpSettingError, match=r"http/protobuf only; set OTEL_.*4318"):
        otlp_config("http://a", {name: protocol})
    assert chosen("http://a", **{name: "http/protobuf"})
    assert otlp_config(None, {name: protocol}) is None  # nothing is sent: no reason to fail


def test_the_protocol_for_metrics_wins() -> None:
    assert chosen(
        "http://a",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
        OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="http/protobuf",
    )


@pytest.mark.parametrize("text", ["1s", "-5", "0", "1.5", "99", "٣٠٠٠", "9" * 40])
def test_a_malformed_interval_is_refused(text: str) -> None:
    with pytest.raises(OtlpSettingError, match=r"OTEL_METRIC_EXPORT_INTERVAL '.*milliseconds"):
        otlp_config("http://a", {"OTEL_METRIC_EXPORT_INTERVAL": text})


def test_a_password_is_not_shown() -> None:
    assert chosen("https://me:secret@a:4318").shown_url == "https://a:4318/v1/metrics"


@pytest.mark.parametrize("name", ["HEADERS", "METRICS_HEADERS"])
@pytest.mark.parametrize(
    "text", ["Authorization: Bearer SECRET", "a=SE;CRET", 'a="SECRET"', "a=SEC%0ARET", "=SECRET"]
)
def test_malformed_headers_are_refused_and_not_shown(name: str, text: str) -> None:
    with pytest.raises(OtlpSettingError, match=r"HEADERS .*expected name=value") as refused:
        otlp_config("http://a", {f"OTEL_EXPORTER_OTLP_{name}": text})
    assert "SE" not in str(refused.value).replace("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "")


def test_headers_with_encoded_values_are_taken() -> None:
    assert chosen("http://a", OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20x, x-scope=team")
