"""The servers that a sidecar watches, and how: a YAML file, checked as a whole before use."""

from exporter.configuration.error import ConfigurationError
from exporter.configuration.model import (
    FileValue,
    KvEventsConfig,
    ListenSettings,
    ServerConfig,
    SidecarConfig,
    TlsConfig,
)
from exporter.configuration.read import read_configuration

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
