"""Reads a configuration file, all or nothing."""

from pathlib import Path

import msgspec

from kvscope_exporter.configuration.check import check
from kvscope_exporter.configuration.convert import to_configuration
from kvscope_exporter.configuration.error import ConfigurationError, read_text
from kvscope_exporter.configuration.model import FileValue, ServerConfig, SidecarConfig, TlsConfig
from kvscope_exporter.configuration.yaml_document import parse_yaml

MAX_BYTES = 256 << 10
"""PyYAML reads about 100 KB a second; 256 servers take half of this."""
_TOO_LARGE = "split the servers among several sidecars"


def read_configuration(file: Path) -> SidecarConfig:
    """Read a configuration, ready to use; relative paths in it are made absolute.

    Raises ConfigurationError, which names the file.
    """
    try:
        document = parse_yaml(read_text(file, MAX_BYTES, _TOO_LARGE))
        try:
            config = _resolved(to_configuration(document), file.absolute().parent)
            check(config)
        except ConfigurationError as error:
            error.line = error.line or document.line_of(error.path)
            raise
    except ConfigurationError as error:
        error.file = str(file)
        raise
    return config


def _resolved(config: SidecarConfig, folder: Path) -> SidecarConfig:
    servers = tuple(_resolved_server(server, folder) for server in config.servers)
    return msgspec.structs.replace(config, servers=servers)


def _resolved_server(server: ServerConfig, folder: Path) -> ServerConfig:
    headers = {
        name: FileValue(file=str(folder / value.file)) if isinstance(value, FileValue) else value
        for name, value in server.headers.items()
    }
    return msgspec.structs.replace(server, headers=headers, tls=_resolved_tls(server.tls, folder))


def _resolved_tls(tls: TlsConfig | None, folder: Path) -> TlsConfig | None:
    if tls is None:
        return None
    paths = {
        name: None if path is None else str(folder / path)
        for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key))
    }
    return msgspec.structs.replace(tls, **paths)
