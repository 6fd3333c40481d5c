"""Prometheus' web configuration file: TLS and users of a port with metrics, as exporters have it.

Keys that would have no effect here are refused, so that no protection is merely assumed.
"""

import re
import ssl
from pathlib import Path

import msgspec

from kvscope_exporter.configuration.error import ConfigurationError, read_text
from kvscope_exporter.configuration.yaml_document import Document, parse_yaml
from kvscope_exporter.web.tls import ClientAuth, MinVersion, server_context

MAX_BYTES = 64 << 10
MAX_USERS = 256
MAX_COST = 14
"""Cost of a bcrypt hash: 2^14 rounds take a core for a second, and each further step twice as long.
"""
_BCRYPT = re.compile(r"\$2[abxy]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}")
_MIN_COST = 4
_AT = re.compile(r"(?P<problem>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?", re.DOTALL)


class _Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cert_file: str
    key_file: str
    client_ca_file: str | None = None
    client_auth_type: ClientAuth = "NoClientCert"
    min_version: MinVersion = "TLS12"


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tls_server_config: _Tls | None = None
    basic_auth_users: dict[str, str] = {}


class WebConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a file."""

    tls: ssl.SSLContext | None = None
    users: dict[str, bytes] = {}
    """bcrypt hash by name; empty: no users, everyone is admitted."""


def read_web_config(file: Path) -> WebConfig:
    """Read a file; relative paths in it start at its folder. Raises ConfigurationError."""
    try:
        return parse_web_config(read_text(file, MAX_BYTES), file.absolute().parent)
    except ConfigurationError as error:
        error.file = str(file)
        raise


def parse_web_config(text: str, folder: Path) -> WebConfig:
    """folder: base of relative paths. Raises ConfigurationError."""
    document = parse_yaml(text)
    if document.content is None:
        return WebConfig()
    content = _converted(document)
    try:
        users = _users(content.basic_auth_users)
        return WebConfig(tls=_context(content.tls_server_config, folder), users=users)
    except ConfigurationError as error:
        error.line = document.line_of(error.path)
        raise


def _converted(document: Document) -> _File:
    try:
        return msgspec.convert(document.content, _File)
    except msgspec.ValidationError as error:
        match = _AT.fullmatch(str(error))
        assert match is not None
        path = match["path"] or ""
        problem = match["problem"].replace("`", "")
        problem = problem[:1].lower() + problem[1:]
        known = "known are tls_server_config (cert_file, key_file, client_ca_file, "
        remedy = f"{known}client_auth_type, min_version) and basic_auth_users"
        raise ConfigurationError(path, problem, remedy, document.line_of(path)) from None


def _users(hashes: dict[str, str]) -> dict[str, bytes]:
    if len(hashes) > MAX_USERS:
        raise ConfigurationError("basic_auth_users", f"over {MAX_USERS} users", "leave some out")
    for name, hashed in hashes.items():
        path = f"basic_auth_users.{name}"
        if not name or ":" in name:
            raise ConfigurationError(path, "no name of a user", "leave the colon out")
        match = _BCRYPT.fullmatch(hashed)
        if match is None:
            remedy = "make one with `htpasswd -nBC 10 NAME`"
            raise ConfigurationError(path, "no bcrypt hash of a password", remedy)
        if not _MIN_COST <= int(match["cost"]) <= MAX_COST:
            problem = f"a bcrypt cost of {int(match['cost'])}"
            remedy = f"use one from {_MIN_COST} to {MAX_COST}; 10 is usual"
            raise ConfigurationError(path, problem, remedy)
    return {name: hashed.encode() for name, hashed in hashes.items()}


def _context(tls: _Tls | None, folder: Path) -> ssl.SSLContext | None:
    if tls is None:
        return None
    path = "tls_server_config"
    if (tls.client_ca_file is None) != (tls.client_auth_type == "NoClientCert"):
        remedy = "give both, or none"
        raise ConfigurationError(path, "client_ca_file or client_auth_type is missing", remedy)
    authorities = None if tls.client_ca_file is None else folder / tls.client_ca_file
    try:
        return server_context(
            folder / tls.cert_file,
            folder / tls.key_file,
            authorities=authorities,
            client_auth=tls.client_auth_type,
            min_version=tls.min_version,
        )
    except ValueError as error:
        raise ConfigurationError(path, str(error), "") from None
