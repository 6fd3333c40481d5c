"""Plain values to typed configuration, with errors that say what would be right."""

import difflib
import re

import msgspec

from exporter.configuration.error import ConfigurationError
from exporter.configuration.model import (
    KINDS,
    FileValue,
    KvEventsConfig,
    ListenSettings,
    ServerConfig,
    SidecarConfig,
    TlsConfig,
)
from exporter.configuration.yaml_document import Document

_AT = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`")
_PARTS: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    (r"", SidecarConfig),
    (r"listen", ListenSettings),
    (r"servers\[\d+\]", ServerConfig),
    (r"servers\[\d+\]\.tls", TlsConfig),
    (r"servers\[\d+\]\.kv_events\[\d+\]", KvEventsConfig),
    (r"servers\[\d+\]\.headers.*", FileValue),
)
_FORMS = {
    "servers": "write a list: `- name: llama` with `url:`, `events:` or `kv_events:` below it",
    "kind": f"use one of {', '.join(KINDS)}",
    "events": "write a list of endpoints: [ipc:///run/kvscope/serve-8000.sock]",
    "kv_events": "write `auto`, or a list with `- endpoint: tcp://HOST:5557`",
    "headers": "write text in quotes, or {file: PATH}",
    "labels": "write KEY: VALUE with each value in quotes",
    "timeout": "write a number of seconds, such as 5",
    "port": "write a number from 0 to 65535",
    "verify": "write true or false",
    "bind": "write true or false",
    "compat": "write a list, such as [vllm]",
}


def to_configuration(document: Document) -> SidecarConfig:
    """Check types and keys. Raises ConfigurationError."""
    if not isinstance(document.content, dict):
        raise ConfigurationError("", "not a mapping of keys", "begin with `servers:`")
    try:
        return msgspec.convert(document.content, SidecarConfig)
    except msgspec.ValidationError as error:
        raise _explained(str(error), document) from None


def _explained(text: str, document: Document) -> ConfigurationError:
    match = _AT.fullmatch(text)
    assert match is not None
    path = (match["path"] or "").replace("[...]", "")
    problem: str = match["problem"]
    if unknown := _UNKNOWN.fullmatch(problem):
        key = unknown["key"]
        inner = f"{path}.{key}" if path else key
        line = document.line_of(inner)
        return ConfigurationError(inner, "there is no such key", _known_keys(path, key), line)
    if missing := _MISSING.fullmatch(problem):
        return ConfigurationError(
            path, f"{missing['key']} is missing", _form(missing["key"]), document.line_of(path)
        )
    field = re.sub(r"\[\d+\]", "", path.rpartition(".")[2])
    problem = problem[:1].lower() + problem[1:].replace("`", "")
    return ConfigurationError(path, problem, _form(field), document.line_of(path))


def _form(field: str) -> str:
    return _FORMS.get(field, "write text, in quotes where it may look like something else")


def _known_keys(path: str, key: str) -> str:
    for pattern, part in _PARTS:
        if re.fullmatch(pattern, path):
            names = part.__struct_fields__
            near = difflib.get_close_matches(key, names, 1)
            return f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
    return "leave it out"
