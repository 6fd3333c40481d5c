"""All dashboards by file, and their JSON: sorted keys, so that a change shows as what it is."""

from collections.abc import Callable, Iterator
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import kv_pool, links, memory, overview, prefix_cache, vllm

FOLDER = Path(__file__).parent

BOARDS: dict[str, Callable[[], db.Dashboard]] = {
    links.OVERVIEW: overview.build,
    links.KV_POOL: kv_pool.build,
    links.PREFIX_CACHE: prefix_cache.build,
    links.MEMORY: memory.build,
    links.VLLM: vllm.build,
}
"""By uid, which is also the file's name."""


def as_json(build: Callable[[], db.Dashboard]) -> str:
    return JSONEncoder(sort_keys=True, indent=2).encode(build().build()) + "\n"


def write(folder: Path) -> Iterator[Path]:
    """Every dashboard as a file there."""
    for uid, build in BOARDS.items():
        path = folder / f"{uid}.json"
        path.write_text(as_json(build))
        yield path
