"""A real Prometheus over blocks of the past, and range queries to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.alerts.stack import free_port, running

PATIENCE = 600.0

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Storage:
    """Its answers."""

    client: httpx.Client
    """One for all queries: to set one up takes longer than many of them."""

    def ask(self, path: str, **parameters: str | float) -> Any:
        """An answer of the API. Raises AssertionError with the query if it fails."""
        answer = self.client.get(f"/api/v1/{path}", params=parameters)
        body = answer.json()
        assert body["status"] == "success", (parameters, body)
        return body["data"]

    def over(
        self, query: str, start: int, end: int, step: int
    ) -> dict[Labels, list[tuple[int, float]]]:
        """By labels: the moments at which the query has a value, and the values."""
        data = self.ask("query_range", query=query, start=start, end=end, step=step)
        return {
            tuple(sorted(found["metric"].items())): [
                (int(moment), float(value)) for moment, value in found["values"]
            ]
            for found in data["result"]
        }


@contextmanager
def storage(folder: Path, data: Path, *flags: str) -> Iterator[Storage]:
    """Prometheus on the blocks in `data`; it forgets none of them."""
    url = f"http://127.0.0.1:{free_port()}"
    path = folder / "prometheus.yml"
    path.write_text("global: {evaluation_interval: 1m}\n")
    command = (
        "prometheus",
        f"--config.file={path}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=10y",
        "--query.max-samples=500000000",
        f"--query.timeout={PATIENCE:.0f}s",
        f"--web.listen-address={url.removeprefix('http://')}",
        *flags,
    )
    with (
        running(folder, "prometheus", *command, url=url),
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
    ):
        yield Storage(client)
