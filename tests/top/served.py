"""A sidecar's app over the exporters of simulated engines, on a port of its own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.web.access import Access, AccessConfig, Credentials
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.sidecar_app import sidecar_app


class Pages:
    """Servers by name."""

    def __init__(self, servers: Mapping[str, Exporter]) -> None:
        self._servers = servers

    @property
    def own(self) -> Exporter:
        return next(iter(self._servers.values()))

    def names(self) -> list[str]:
        return list(self._servers)

    def labels(self, name: str) -> Mapping[str, str]:
        return {}

    def server(self, name: str) -> Exporter | None:
        return self._servers.get(name)


@contextmanager
def served(key: str = "", port: int = 0, **servers: Exporter) -> Iterator[str]:
    """The URL. key: wanted with each request; empty: none."""
    credentials = Credentials([key]) if key else None
    app = Access(
        sidecar_app(Pages(servers)),  # type: ignore[arg-type]
        AccessConfig(pages=credentials) if credentials else AccessConfig(),
    )
    with HttpServer(app, "127.0.0.1", port) as server:
        yield f"http://127.0.0.1:{server.port}"
