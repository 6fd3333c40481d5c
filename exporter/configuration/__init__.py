"""Which servers a sidecar watches and how: a file in YAML, checked as a whole before it is used."""

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
