"""All boards by uid, and their JSON with sorted keys, so that a diff shows only what changed."""

from collections.abc import Callable, Iterator
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.boards.exporter import board as exporter
from dashboards.boards.kv_pool import board as kv_pool
from dashboards.boards.memory import board as memory
from dashboards.boards.overview import board as overview
from dashboards.boards.prefix_cache import board as prefix_cache
from dashboards.boards.service_levels import board as service_levels
from dashboards.boards.vllm import board as vllm
from dashboards.boards.wall import board as wall
from dashboards.kit import links

FOLDER = Path(__file__).parent

BOARDS: dict[str, Callable[[], db.Dashboard]] = {
    links.OVERVIEW: overview.build,
    links.KV_POOL: kv_pool.build,
    links.PREFIX_CACHE: prefix_cache.build,
    links.MEMORY: memory.build,
    links.LEVELS: service_levels.build,
    links.WALL: wall.build,
    links.EXPORTER: exporter.build,
    links.VLLM: vllm.build,
}
"""Builders by uid, which is also the file's name."""


def as_json(build: Callable[[], db.Dashboard]) -> str:
    return JSONEncoder(sort_keys=True, indent=2).encode(build().build()) + "\n"


def write(folder: Path) -> Iterator[Path]:
    """Write every dashboard into a folder."""
    for uid, build in BOARDS.items():
        path = folder / f"{uid}.json"
        path.write_text(as_json(build))
        yield path
