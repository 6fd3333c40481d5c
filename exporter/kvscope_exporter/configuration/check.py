"""Checks of a configuration beyond its types: names, endpoints, duplicates."""

from kvscope_exporter.catalogue import COMPAT_SETS
from kvscope_exporter.configuration.check_server import check_server
from kvscope_exporter.configuration.error import ConfigurationError
from kvscope_exporter.configuration.model import FOLDER, ServerConfig, SidecarConfig
from kvscope_exporter.fetch.address import is_address

MAX_ENDPOINTS = 1024
"""Limit for all servers together."""


def check(config: SidecarConfig) -> None:
    """Raises ConfigurationError."""
    _check_listen(config)
    unknown = sorted(set(config.compat or ()) - COMPAT_SETS)
    if unknown:
        known = ", ".join(sorted(COMPAT_SETS))
        raise ConfigurationError(
            "compat", f"{unknown[0]!r} is not a set of names", f"known: {known}"
        )
    for path, server in _by_path(config):
        check_server(path, server)
    _check_names(config)
    _check_places(config)


def _by_path(config: SidecarConfig) -> list[tuple[str, ServerConfig]]:
    return [(f"servers[{number}]", server) for number, server in enumerate(config.servers)]


def _check_listen(config: SidecarConfig) -> None:
    address = config.listen.address
    if address is not None and not is_address(address):
        problem = f"{address!r} is not an address"
        raise ConfigurationError("listen.address", problem, "write HOST:PORT")


def _check_names(config: SidecarConfig) -> None:
    paths: dict[str, str] = {}
    for path, server in _by_path(config):
        other = paths.setdefault(server.name, path)
        if other != path:
            problem = f"{other} is called {server.name!r} as well"
            remedy = "choose another name, or write the endpoints of one server in one entry"
            raise ConfigurationError(f"{path}.name", problem, remedy)


def _check_places(config: SidecarConfig) -> None:
    """Refuse to read anything twice."""
    paths: dict[str, str] = {}
    for path, place in _places(config):
        other = paths.setdefault(place, path)
        if other != path:
            raise ConfigurationError(path, f"{other} names {place} as well", "keep one")
    if len(paths) > MAX_ENDPOINTS:
        problem = f"{len(paths)} endpoints, {MAX_ENDPOINTS} are allowed"
        raise ConfigurationError("servers", problem, "split them among several sidecars")
    for path, server in _by_path(config):
        for number, endpoint in enumerate(server.events):
            folder = endpoint.rpartition("/")[0]
            if folder + FOLDER in paths and not endpoint.endswith(FOLDER):
                problem = f"{paths[folder + FOLDER]} names all sockets of {folder}"
                raise ConfigurationError(f"{path}.events[{number}]", problem, "keep one")


def _places(config: SidecarConfig) -> list[tuple[str, str]]:
    places: list[tuple[str, str]] = []
    for path, server in _by_path(config):
        if server.page_url is not None:
            places.append((f"{path}.url", server.page_url))
        places += [(f"{path}.events[{n}]", endpoint) for n, endpoint in enumerate(server.events)]
        if server.kv_events != "auto":
            for number, stream in enumerate(server.kv_events):
                places.append((f"{path}.kv_events[{number}].endpoint", stream.endpoint))
                if stream.replay is not None:
                    places.append((f"{path}.kv_events[{number}].replay", stream.replay))
    return places
