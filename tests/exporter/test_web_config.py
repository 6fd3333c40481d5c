"""Prometheus' web configuration: what it asks for is done, or refused in one line."""

from pathlib import Path

import pytest

from kvscope_exporter.configuration import ConfigurationError
from kvscope_exporter.web.access.web_config import MAX_BYTES, read_web_config
from tests.support.http_peer import make_certificate

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"


def written(folder: Path, text: str) -> Path:
    file = folder / "web.yml"
    file.write_text(text)
    return file


def test_users_and_certificate_are_read_from_beside_the_file(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "server.example")
    text = f"""
    tls_server_config:
      cert_file: {made.file.name}
      key_file: {made.key.name}
      client_ca_file: {made.file.name}
      client_auth_type: RequireAndVerifyClientCert
      min_version: TLS13
    basic_auth_users: {{prometheus: {HASH}}}
    """
    config = read_web_config(written(tmp_path, text))
    assert config.users == {"prometheus": HASH.encode()}
    assert config.tls is not None
    assert config.tls.minimum_version.name == "TLSv1_3"
    assert config.tls.verify_mode.name == "CERT_REQUIRED"


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "basic_auth_users: {}"])
def test_an_empty_file_asks_for_nothing(tmp_path: Path, text: str) -> None:
    config = read_web_config(written(tmp_path, text))
    assert (config.tls, config.users) == (None, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "expected object, got array"),
        ("basic_auth_user: {}", "unknown field basic_auth_user; known are"),
        ("http_server_config: {http2: false}", "unknown field http_server_config"),
        ("basic_auth_users: [a]", "basic_auth_users: expected object"),
        ("basic_auth_users: {a: secret}", "basic_auth_users.a: no bcrypt hash"),
        ("basic_auth_users: {a: 1}", "expected str"),
        (f'basic_auth_users: {{"a:b": {HASH}}}', "no name of a user"),
        (f"basic_auth_users: {{a: {HASH.replace('$10$', '$31$')}}}", "a bcrypt cost of 31"),
        ("tls_server_config: {cert_file: a}", "missing required field key_file"),
        ("tls_server_config: {cert_file: a, key_file: b, cipher_suites: []}", "cipher_suites"),
        ("tls_server_config: {cert_file: a, key_file: b}", "a: cannot be read: No such file"),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequestClientCert}",
            "client_auth_type: invalid enum value 'RequestClientCert'",
        ),
        (
            "tls_server_config: {cert_file: web.yml, key_file: web.yml, client_ca_file: web.yml}",
            "client_ca_file or client_auth_type is missing",
        ),
        (
            "tls_server_config: {cert_file: web.yml, key_file: web.yml}",
            "no certificate with its key in PEM",
        ),
        ("a: &a [*a]", "unknown field a; known are"),
        ("{" * 100, "nested|not valid YAML|not text"),
        ("x" * (MAX_BYTES + 1), "larger than 64 KiB"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        read_web_config(written(tmp_path, text))
    line = str(caught.value)
    assert line.startswith(str(tmp_path / "web.yml"))
    assert "\n" not in line
    assert "secret" not in line


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_web_config(tmp_path / "missing")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        read_web_config(binary)
