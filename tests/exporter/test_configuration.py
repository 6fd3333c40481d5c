"""A sidecar's file: what it may say, and one line for every mistake in it."""

import re
import ssl
from pathlib import Path

import pytest

from kvscope_exporter.configuration import (
    ConfigurationError,
    FileValue,
    KvEventsConfig,
    ServerConfig,
    SidecarConfig,
    read_configuration,
)
from kvscope_exporter.configuration.access import header_values, tls_digest, tls_of
from kvscope_exporter.configuration.model import KINDS
from tests.repo.checkout import ROOT
from tests.support.http_peer import make_certificate

FULL = """
listen: {host: 0.0.0.0, port: 8010, address: "sidecar.example:8010"}
compat: [vllm]
servers:
  - name: llama
    kind: vllm
    url: http://10.0.0.7:8000/v0
    metrics_path: /metrics
    kv_events:
      - {endpoint: "tcp://10.0.0.7:5557", replay: "tcp://10.0.0.7:5657", topic: kv}
      - {endpoint: "tcp://*:5558", engine: "1", bind: true}
    headers:
      X-Team: search
      Authorization: {file: token}
    labels: {team: search, rank: "0"}
    model_name: llama-3
    timeout: 3
  - name: ours
    events: ["ipc:///run/kvscope/serve-8000.sock", "ipc:///run/kvscope/vllm/*"]
  - {name: auto, url: "http://10.0.0.8:8000", kv_events: auto}
"""


def read(folder: Path, text: str | bytes) -> SidecarConfig:
    file = folder / "kvscope.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_configuration(file)


def mistake(folder: Path, text: str | bytes) -> str:
    """The message without the folder, always one line."""
    with pytest.raises(ConfigurationError) as caught:
        read(folder, text)
    said = str(caught.value)
    assert said.startswith(f"{folder}/kvscope.yaml")
    assert "\n" not in said
    return said.removeprefix(f"{folder}/kvscope.yaml:")


def test_a_file_with_everything(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer abc\n")
    config = read(tmp_path, FULL)
    llama, ours, auto = config.servers
    assert (config.listen.port, config.compat) == (8010, ("vllm",))
    assert (llama.kind, llama.timeout, llama.model_name) == ("vllm", 3.0, "llama-3")
    assert llama.kv_events[1] == KvEventsConfig(endpoint="tcp://*:5558", engine="1", bind=True)
    assert llama.labels == {"team": "search", "rank": "0"}
    assert (ours.url, len(ours.events), ours.kind) == (None, 2, "auto")
    assert auto.kv_events == "auto"


def test_a_value_in_a_file_is_read_whenever_it_is_needed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer abc\n")
    headers = read(tmp_path, FULL).servers[0].headers
    assert headers["Authorization"] == FileValue(file=str(token)), "relative to the configuration"
    assert header_values(headers)["Authorization"] == "Bearer abc"
    token.write_text("Bearer renewed")
    assert header_values(headers)["Authorization"] == "Bearer renewed"


SERVER = "servers: [{name: a, url: 'http://h:1', %s}]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a mapping of keys; begin with `servers:`"),
        ("- a", "not a mapping of keys"),
        ("servers: []", "1: servers: the list is empty"),
        ("servers: 3", "1: servers: expected array, got int; see docs"),
        ("servers: [{url: 'http://h'}]", "1: servers[0]: name is missing"),
        ("servers: [{name: a}]", "1: servers[0]: nothing to read"),
        ("servers: [{name: no, url: 'http://h'}]", "servers[0].name: expected str, got bool"),
        ("servers: [{name: a b, url: 'http://h'}]", "servers[0].name: 'a b' is not a name"),
        ("servers:\n- name: a\n  uri: x", "3: servers[0].uri: there is no such key; did you mean"),
        ("servers: [{name: a, url: 'http://h'}]\nqqq: 1", "2: qqq: there is no such key; see docs"),
        ("servers:\n- {name: a, url: 'http://h'}\n- {name: a, url: 'http://i'}", "3: servers[1]."),
        ("listen: {port: 65536}\nservers: [{name: a}]", "1: listen.port: expected int <= 65535"),
        (
            "listen: {address: 'a b'}\nservers: [{name: a}]",
            "listen.address: 'a b' is not an address",
        ),
        (
            "compat: [ollama]\nservers: [{name: a}]",
            "compat: 'ollama' is not a set of names; known: vllm",
        ),
        (SERVER % "kind: vlm", "servers[0].kind: invalid enum value 'vlm'; see docs"),
        (SERVER % "timeout: 0", "servers[0].timeout: expected float > 0.0"),
        (SERVER % "timeout: .nan", "servers[0].timeout: expected float"),
        (SERVER % "timeout: 5s", "servers[0].timeout: expected float, got str; see docs"),
        (SERVER % "metrics_path: metrics", "servers[0].metrics_path: expected str matching regex"),
        (SERVER % "headers: {A: 3}", "servers[0].headers: expected str | object, got int"),
        (SERVER % "headers: {A: {env: X}}", "servers[0].headers.env: there is no such key; see"),
        (SERVER % "headers: {A: {file: x}}", "x cannot be used: No such file or directory"),
        (
            SERVER % "headers: {A: {file: /dev/zero}}",
            "/dev/zero is not a regular file, or larger than",
        ),
        (SERVER % 'headers: {A: "b\\nC: d"}', "servers[0].headers.A: the value has a line break"),
        (SERVER % "headers: {Host: a}", "servers[0].headers.Host: this header is kvscope's own"),
        (SERVER % "headers: {a: b, A: c}", "servers[0].headers.A: given twice"),
        (SERVER % "headers: {'a b': c}", "not the name of a header"),
        (SERVER % "tls: {verify: false}", "servers[0].tls: the URL is not encrypted"),
        (SERVER % "labels: {rank: 0}", "servers[0].labels: expected str, got int; see docs"),
        (SERVER % "labels: {instance: x}", "servers[0].labels.instance: kvscope or Prometheus"),
        (SERVER % "labels: {model_name: x}", "servers[0].labels.model_name: kvscope or Prom"),
        (SERVER % "labels: {__address__: x}", "servers[0].labels: expected str matching regex"),
        (SERVER % "labels: {a-b: x}", "servers[0].labels: expected str matching regex"),
        (SERVER % "model_name: ''", "servers[0].model_name: expected str of length >= 1"),
        (SERVER % "kv_events: [{endpoint: 'tcp://h:1'}]", "kv_events: the kind of server is not"),
        (
            "servers: [{name: a, kind: kvscope, kv_events: [{endpoint: 'tcp://h:1'}]}]",
            "kv_events: kvscope's engine publishes no",
        ),
        (SERVER % "kind: vllm, kv_events: [{endpoint: x}]", "'x' is not an endpoint of ZeroMQ"),
        (SERVER % "kind: vllm, kv_events: [{endpoint: 'tcp://*:1'}]", "is where the engine liste"),
        (SERVER % "kind: vllm, kv_events: [{}]", "kv_events[0]: endpoint is missing"),
        (SERVER % "events: ['tcp://10.0.0.7:1']", "events[0]: 'tcp://10.0.0.7:1': 10.0.0.7 is n"),
        (SERVER % "events: [nothing]", "events[0]: 'nothing': not an endpoint of the wire"),
        (SERVER % "events: ['file:///a']", "events[0]: 'file:///a': not an endpoint of the wire"),
        (SERVER % "events: ['ipc:///r/*', 'ipc:///r/*']", "names ipc:///r/* as well; keep one"),
        (
            "servers: [{name: a, events: [], kv_events: auto}]",
            "`auto` queries the server for its streams",
        ),
        ("servers: [{name: a, headers: {A: b}, events: ['tcp://127.0.0.1:1']}]", "without a URL"),
    ],
)
def test_a_mistake_says_where_what_and_what_to_do(tmp_path: Path, text: str, says: str) -> None:
    assert says in mistake(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not valid YAML"),
        ("a: *x", "1: not valid YAML: found undefined alias 'x'"),
        ("a: &a [*a]", "1: a: there is no such key"),
        ("servers: &a [*a]", "1: servers[0]: expected object, got array"),
        ("!!python/object/apply:os.system ['false']", "1: not valid YAML: could not determine a"),
        ("a: 1\na: 2", "2: a: given twice; keep one"),
        ("a: 1\n---\na: 2", "2: not valid YAML: but found another document"),
        ("? [a]\n: 1", "1: not valid YAML: found unhashable key"),
        ("1: 2", "expected str"),
        ("a: 2026-13-99", "not valid YAML: month must be in 1..12"),
        (f"a: {'9' * 5000}", "not valid YAML: Exceeds the limit"),
        ("[" * 100_000, "not valid YAML: maximum recursion depth"),
        ("a" * 300_000, "larger than 256 KiB"),
        (b"a: \xff", "not UTF-8 at byte 3"),
        ("a: \x00", "not valid YAML"),
        ('"a\\nb": 1\nservers: []', "a\\nb: there is no such key"),
        ("!!int", "a value does not fit its tag; leave out the `!!`"),
        ("servers: !!bool maybe", "a value does not fit its tag"),
        ("servers: !!timestamp today", "a value does not fit its tag"),
    ],
)
def test_yaml_that_is_broken_or_hostile(tmp_path: Path, text: str | bytes, says: str) -> None:
    assert says in mistake(tmp_path, text)


def test_an_anchor_is_used_again(tmp_path: Path) -> None:
    lines = [
        "servers:",
        "- &one {name: a, url: 'http://h:1', kind: vllm, headers: &h {A: b}}",
        "- {<<: *one, name: b, url: 'http://h:2'}",
        "- {name: c, url: 'http://h:3', headers: *h}",
    ]
    _, merged, last = read(tmp_path, "\n".join(lines)).servers
    assert (merged.name, merged.url, merged.kind) == ("b", "http://h:2", "vllm")
    assert last.headers == {"A": "b"}
    assert "5: servers[3].uri: there is no such key" in mistake(
        tmp_path, "\n".join([*lines, "- {<<: *one, uri: x}"])
    )


@pytest.mark.timeout(10)
def test_anchors_that_name_each_other_many_times_take_no_longer(tmp_path: Path) -> None:
    lines = ["servers: &s0 [1, 1]", *(f"a{n}: &s{n} [*s{n - 1}, *s{n - 1}]" for n in range(1, 60))]
    assert "servers[0]: expected object, got int" in mistake(tmp_path, "\n".join(lines))


def test_a_page_is_the_same_where_its_usual_path_is_written_out(tmp_path: Path) -> None:
    one, other = "url: 'http://h:1'", "url: 'http://h:1', metrics_path: /metrics"
    text = f"servers: [{{name: a, {one}}}, {{name: b, {other}}}]"
    assert "servers[0].url names http://h:1/metrics as well" in mistake(tmp_path, text)


def test_a_socket_of_a_folder_that_is_watched_is_given_twice(tmp_path: Path) -> None:
    text = "servers: [{name: a, events: ['ipc:///r/*']}, {name: b, events: ['ipc:///r/x.sock']}]"
    assert "servers[1].events[0]: servers[0].events[0] names all sockets of ipc:///r" in mistake(
        tmp_path, text
    )


def test_too_many_servers(tmp_path: Path) -> None:
    lines = [f"- {{name: s{n}, url: 'http://h:{n + 1}'}}" for n in range(257)]
    assert "servers: expected array of length <= 256" in mistake(
        tmp_path, "servers:\n" + "\n".join(lines)
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="yaml: cannot be read: No such file"):
        read_configuration(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match="cannot be read: a folder, not a file"):
        read_configuration(tmp_path)


TLS = "servers: [{name: a, url: 'https://h', tls: {%s}}]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ca: none.pem", "servers[0].tls.ca: {}/none.pem cannot be used: No such file"),
        ("ca: kvscope.yaml", "servers[0].tls.ca: {}/kvscope.yaml cannot be used: "),
        ("cert: kvscope.yaml", "servers[0].tls.cert: {}/kvscope.yaml cannot be used: "),
        ("key: a.pem", "servers[0].tls.key: a key without a certificate"),
        ("verify: false, ca: a.pem", "servers[0].tls.verify: nothing is verified"),
        ("verify: nope", "servers[0].tls.verify: expected bool, got str; see docs"),
    ],
)
def test_tls_files_are_tried_at_once(tmp_path: Path, text: str, says: str) -> None:
    assert says.format(tmp_path) in mistake(tmp_path, TLS % text)


def test_certificates_are_verified_unless_told_otherwise(tmp_path: Path) -> None:
    strict = read(tmp_path, TLS % "").servers[0]
    assert tls_of(strict.tls).context().verify_mode == ssl.CERT_REQUIRED
    assert tls_of(strict.tls).context().check_hostname
    lax = read(tmp_path, TLS % "verify: false").servers[0]
    assert tls_of(lax.tls).context().verify_mode == ssl.CERT_NONE
    assert tls_digest(lax) == ""


def test_the_example_of_the_documentation_can_be_used(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "attach" / "sidecar.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (example,) = [text for text in examples if "\nservers:" in text]
    made = make_certificate(tmp_path)
    (tmp_path / "token").write_text("Bearer abc")
    for name, source in (
        ("ca.pem", made.file),
        ("client.pem", made.file),
        ("client.key", made.key),
    ):
        (tmp_path / name).write_bytes(source.read_bytes())
    config = read(tmp_path, example)
    assert [server.name for server in config.servers] == ["llama", "mistral", "gemma"]
    assert all(f"`{key}`" in page for key in ServerConfig.__struct_fields__)
    assert all(kind in page for kind in KINDS)
