"""Checks of one server's configuration beyond its types."""

import re

import httpx

from kvscope_events.wire.endpoint import MAX_SOCKET_PATH_BYTES, EndpointError, parse_endpoint
from kvscope_exporter.catalogue import CATALOGUE
from kvscope_exporter.configuration.access import check_tls, header_values
from kvscope_exporter.configuration.error import ConfigurationError
from kvscope_exporter.configuration.model import FOLDER, KvEventsConfig, ServerConfig
from kvscope_exporter.extras import lacking
from kvscope_exporter.fetch.address import address_problem
from kvscope_exporter.scrape.detect import OWN_PAGE, OWN_PAGE_REMEDY

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
"""A server name needs no quoting in a URL, a query, or a shell."""
NAME_RULE = "use letters, digits and . _ : - only, at most 128, a letter or digit first"
_TAKEN = {"instance", "job", "le", "quantile"} | {name for row in CATALOGUE for name in row.labels}
"""Labels of Prometheus or our own families; Prometheus would rename ours to exported_…"""
_STREAM = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.*-]+):(?P<port>[0-9]{1,5})")


def check_server(path: str, server: ServerConfig) -> None:
    """Raises ConfigurationError. path: `servers[0]`."""
    if NAME.fullmatch(server.name) is None:
        raise ConfigurationError(f"{path}.name", f"{server.name!r} is not a name", NAME_RULE)
    if server.url is None and not server.events and not server.kv_events:
        problem = "nothing to read"
        raise ConfigurationError(path, problem, "add `url:`, `events:` or `kv_events:`")
    _check_page(path, server)
    for number, endpoint in enumerate(server.events):
        _check_endpoint(f"{path}.events[{number}]", endpoint)
    _check_streams(f"{path}.kv_events", server)
    _check_labels(f"{path}.labels", server.labels)


def url_problem(url: str) -> str:
    """Describe what is wrong with a base URL; empty if nothing is."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        return f"{url!r} is not a URL ({error})"
    if parsed.userinfo:
        return "it has a user or password, which logs would show"
    if parsed.scheme not in ("http", "https"):
        return f"{url!r} does not begin with http:// or https://"
    if problem := address_problem(parsed):
        return f"{url!r} {problem}"
    if parsed.query or parsed.fragment or "?" in url or "#" in url:
        return f"{url!r} has more than a path: a query or a fragment"
    return ""


def _check_page(path: str, server: ServerConfig) -> None:
    if server.url is None:
        unused = ("metrics_path", "headers", "tls")
        for field in (name for name in unused if getattr(server, name)):
            raise ConfigurationError(f"{path}.{field}", "has no effect without a URL", "add `url:`")
        return
    if problem := url_problem(server.url):
        remedy = "write http://HOST:PORT; a user or a token goes into `headers:`"
        raise ConfigurationError(f"{path}.url", problem, remedy)
    if server.kind == "kvscope":
        raise ConfigurationError(f"{path}.url", OWN_PAGE, OWN_PAGE_REMEDY)
    if server.tls is not None and not server.url.lower().startswith("https:"):
        raise ConfigurationError(f"{path}.tls", "the URL is not encrypted", "write https://")
    try:
        header_values(server.headers)
        check_tls(server.tls)
    except ConfigurationError as error:
        inner = f"{path}.{error.path}"
        raise ConfigurationError(inner, error.problem, error.remedy) from None


def _check_endpoint(path: str, endpoint: str) -> None:
    try:
        # A folder is checked like a socket in it with the shortest name.
        socket = endpoint.removesuffix(FOLDER) + "/x" if endpoint.endswith(FOLDER) else endpoint
        parse_endpoint(socket)
    except EndpointError as error:
        problem = f"{endpoint!r}: {error.problem}"
        raise ConfigurationError(path, problem, error.remedy) from None


def _check_streams(path: str, server: ServerConfig) -> None:
    streams = server.kv_events
    if streams and (problem := lacking("reading KV events", "kv-events")):
        what, _, remedy = problem.partition(": ")
        raise ConfigurationError(path, what, remedy)
    if streams == "auto":
        if server.url is None:
            problem = "`auto` queries the server for its streams"
            raise ConfigurationError(path, problem, "add `url:`, or write a list of streams")
        return
    if streams and server.kind == "auto":
        problem = "the kind of server is not known before its stream is read"
        raise ConfigurationError(path, problem, "add `kind: vllm` or `kind: sglang`")
    if streams and server.kind == "kvscope":
        problem = "kvscope's engine publishes no KV events"
        raise ConfigurationError(path, problem, "write `events:` with the address of its own")
    ranks: dict[str, int] = {}
    for number, stream in enumerate(streams):
        _check_stream(f"{path}[{number}]", stream)
        if ranks.setdefault(stream.engine, number) != number:
            problem = f"engine {stream.engine!r} is also that of {path}[{ranks[stream.engine]}]"
            remedy = "give each stream the data-parallel rank of its engine"
            raise ConfigurationError(f"{path}[{number}].engine", problem, remedy)


def _check_stream(path: str, stream: KvEventsConfig) -> None:
    places = (("endpoint", stream.endpoint, stream.bind), ("replay", stream.replay, False))
    for field, place, binds in places:
        if place is None or _is_socket(place):
            continue
        match = _STREAM.fullmatch(place)
        if match is None or not 0 < int(match["port"]) < 2**16:
            problem = f"{place!r} is not an endpoint of ZeroMQ"
            raise ConfigurationError(f"{path}.{field}", problem, "write tcp://HOST:PORT")
        if "*" in place and not (binds and place.startswith("tcp://*:")):
            problem = f"{place!r} is where the engine listens, not where it can be reached"
            raise ConfigurationError(f"{path}.{field}", problem, "write the engine's host for *")


def _is_socket(place: str) -> bool:
    path = place.removeprefix("ipc://")
    return place.startswith("ipc:///") and len(path.encode()) <= MAX_SOCKET_PATH_BYTES


def _check_labels(path: str, labels: dict[str, str]) -> None:
    for name in labels:
        if name in _TAKEN:
            problem = "kvscope or Prometheus sets this label"
            raise ConfigurationError(f"{path}.{name}", problem, "choose another name")
