"""Converts plain values to typed configuration, with errors that say what would be valid."""

import difflib
import re

import msgspec

from kvscope_exporter.configuration.error import ConfigurationError
from kvscope_exporter.configuration.model import (
    FileValue,
    KvEventsConfig,
    ListenSettings,
    ServerConfig,
    SidecarConfig,
    TlsConfig,
)
from kvscope_exporter.configuration.yaml_document import Document

GUIDE = "see docs/attach/sidecar.md"
_AT = re.compile(r"(?P<problem>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`")
_STRUCTS = (SidecarConfig, ListenSettings, ServerConfig, TlsConfig, KvEventsConfig, FileValue)
_KEYS = sorted({key for struct in _STRUCTS for key in struct.__struct_fields__})


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
    path, problem, remedy = (match["path"] or "").replace("[...]", ""), match["problem"], GUIDE
    if unknown := _UNKNOWN.fullmatch(problem):
        key = unknown["key"]
        path, problem = f"{path}.{key}" if path else key, "there is no such key"
        if near := difflib.get_close_matches(key, _KEYS, 1):
            remedy = f"did you mean {near[0]}?"
    elif missing := _MISSING.fullmatch(problem):
        problem = f"{missing['key']} is missing"
    elif problem == "Expected `array` of length >= 1":
        problem = "the list is empty"
    problem = problem[:1].lower() + problem[1:].replace("`", "")
    return ConfigurationError(path, problem, remedy, document.line_of(path))
