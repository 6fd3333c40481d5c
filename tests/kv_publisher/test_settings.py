"""`--kv-events-config`: vLLM's JSON, its defaults, and errors that name the field."""

import pytest

from engine.kv_events.settings import KvEventsConfig, parse_kv_events_config
from kvscope.options.kv_events import kv_events_published


def test_the_json_of_vllm_is_understood() -> None:
    config = parse_kv_events_config(
        '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557", '
        '"replay_endpoint": "tcp://*:5558", "buffer_steps": 10000, "hwm": 100000, '
        '"max_queue_size": 100000, "topic": "kv-events"}'
    )
    assert config.is_on
    assert config.binds
    assert (config.address, config.replay_endpoint) == ("tcp://*:5557", "tcp://*:5558")
    assert config.remote_addresses == ["tcp://*:5557", "tcp://*:5558"]


@pytest.mark.parametrize(("bind", "warned"), [(None, True), (True, False)])
def test_an_endpoint_that_a_reader_has_to_listen_at_is_a_warning(
    bind: bool | None, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader that connects as well hears nothing, and neither side has an error."""
    endpoint = "tcp://127.0.0.1:1" if bind is None else "tcp://127.0.0.1:0"
    config = KvEventsConfig(enable_kv_cache_events=True, endpoint=endpoint, bind=bind)
    with kv_events_published(config):
        messages = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert bool(messages) == warned
    assert all(endpoint in text and '"bind": true' in text for text in messages)


def test_nothing_is_published_unless_it_is_enabled() -> None:
    assert not parse_kv_events_config("{}").is_on
    assert not parse_kv_events_config('{"publisher": "zmq"}').is_on
    assert not KvEventsConfig(enable_kv_cache_events=True, publisher="null").is_on
    assert KvEventsConfig(enable_kv_cache_events=True).is_on


def test_without_an_endpoint_it_listens_on_loopback() -> None:
    config = KvEventsConfig(enable_kv_cache_events=True)
    assert (config.address, config.binds) == ("tcp://127.0.0.1:5557", True)
    assert config.remote_addresses == []


@pytest.mark.parametrize(
    ("endpoint", "binds"),
    [
        ("tcp://*:5557", True),
        ("tcp://[::]:5557", True),
        ("ipc:///run/kv/events", True),
        ("tcp://127.0.0.1:5557", False),
        ("tcp://0.0.0.0:5557", False),
        ("tcp://collector:5557", False),
    ],
)
def test_it_binds_and_connects_where_vllm_does_unless_told(endpoint: str, binds: bool) -> None:
    assert KvEventsConfig(endpoint=endpoint).binds == binds
    assert KvEventsConfig(endpoint="tcp://127.0.0.1:5557", bind=True).binds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "--kv-events-config: "),
        ('{"endpiont": "tcp://*:1"}', "endpiont"),
        ('{"hwm": 0}', r"\$\.hwm"),
        ('{"hwm": 4294967296}', r"\$\.hwm"),
        ('{"max_queue_size": 0}', r"\$\.max_queue_size"),
        ('{"publisher": "kafka"}', r"'kafka' - at `\$\.publisher`"),
        ('{"enable_kv_cache_events": 1}', r"\$\.enable_kv_cache_events"),
        ('{"endpoint": "http://here"}', "endpoint: 'http://here': not an endpoint"),
        ('{"endpoint": "inproc://x"}', "endpoint: 'inproc://x': not an endpoint"),
        ('{"endpoint": "tcp://*:5557", "bind": false}', "no host to connect to"),
        ('{"replay_endpoint": "tcp://*:65536"}', "replay_endpoint: .*not HOST:PORT"),
    ],
)
def test_an_error_names_the_flag_and_the_field(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as raised:
        parse_kv_events_config(text)
    assert str(raised.value).startswith("--kv-events-config: ")
