"""Option and standard variables: what wins, what is refused, and how that is said."""

import pytest

from kvscope_exporter.otlp.settings import OtlpConfig, OtlpSettingError, otlp_config

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
OWN = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


def chosen(endpoint: str | None = None, **environment: str) -> OtlpConfig:
    config = otlp_config("metrics", endpoint, environment)
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
    assert otlp_config("metrics", None, environment) is None


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


@pytest.mark.parametrize(
    "endpoint",
    [
        *("a:4318", "grpc://a:4317", "http://", "http://a:port", "http://a:70000", "http://a:0"),
        *("http://a b", "http://a\nb", "http://[::1", "http://a#b", "//a", "http:a"),
    ],
)
def test_a_malformed_endpoint_is_refused_by_name(endpoint: str) -> None:
    with pytest.raises(OtlpSettingError, match=r"^--otlp-endpoint '.*expected http://HOST:4318"):
        otlp_config("metrics", endpoint, {})
    with pytest.raises(OtlpSettingError, match=rf"^({BASE}|{OWN}) "):
        otlp_config("metrics", None, {BASE: endpoint, OWN: endpoint})


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"]
)
@pytest.mark.parametrize("protocol", ["grpc", "http/json"])
def test_other_protocols_are_refused_with_what_to_do(name: str, protocol: str) -> None:
    with pytest.raises(OtlpSettingError, match=r"http/protobuf only.*4318"):
        otlp_config("metrics", "http://a", {name: protocol})
    assert chosen("http://a", **{name: "http/protobuf"})
    assert (
        otlp_config("metrics", None, {name: protocol}) is None
    )  # nothing is sent: no reason to fail


def test_the_protocol_for_metrics_wins() -> None:
    assert chosen(
        "http://a",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
        OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="http/protobuf",
    )


def test_a_password_is_not_shown() -> None:
    assert chosen("https://me:secret@a:4318").shown_url == "https://a:4318/v1/metrics"


def test_traces_have_variables_and_a_path_of_their_own() -> None:
    own = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    for endpoint, environment, url in (
        ("http://o:1", {own: "http://b/x"}, "http://o:1/v1/traces"),
        (None, {own: "http://b/x", BASE: "http://c"}, "http://b/x"),
        (None, {BASE: "http://c"}, "http://c/v1/traces"),
    ):
        assert otlp_config("traces", endpoint, environment) == OtlpConfig(url=url)
    for off in ({OWN: "http://a:4318"}, {BASE: "http://a", "OTEL_TRACES_EXPORTER": "none"}):
        assert otlp_config("traces", None, off) is None
    assert otlp_config("traces", "http://o:1", {"OTEL_SDK_DISABLED": "true"}) is None
    with pytest.raises(OtlpSettingError, match=r"^--otlp-traces-endpoint 'a:4318'"):
        otlp_config("traces", "a:4318", {})
