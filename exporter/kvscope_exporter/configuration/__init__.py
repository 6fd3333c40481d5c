"""The servers that a sidecar watches, and how: a YAML file, checked as a whole before use."""

from kvscope_exporter.configuration.error import ConfigurationError
from kvscope_exporter.configuration.model import (
    FileValue,
    KvEventsConfig,
    ListenSettings,
    ServerConfig,
    SidecarConfig,
    TlsConfig,
)
from kvscope_exporter.configuration.read import read_configuration

__all__ = [
    "ConfigurationError",
    "FileValue",
    "KvEventsConfig",
    "ListenSettings",
    "ServerConfig",
    "SidecarConfig",
    "TlsConfig",
    "read_configuration",
]
