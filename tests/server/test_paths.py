"""Each route of our servers has a row in the table of paths, which says who may call it."""

from collections.abc import Iterable, Iterator
from typing import Any

from kvscope_engine.server.control import create_control_app
from kvscope_exporter.paths import PATHS, door_of, row_of
from kvscope_exporter.web.landing import landing_router
from kvscope_exporter.web.orders import gpu_router
from kvscope_exporter.web.sidecar_app import sidecar_app
from tests.support.server import serving

NOTHING: Any = None
"""Routes are declared without a look at what they serve."""


def paths_of(routes: Iterable[Any]) -> Iterator[str]:
    """Also of routers that are included, which FastAPI keeps as routes of their own."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from paths_of(included.routes)
        else:
            yield route.path


def declared() -> set[str]:
    apps = (sidecar_app(NOTHING), create_control_app(NOTHING))
    routers = (gpu_router(NOTHING), landing_router("x", list, has_targets=False))
    return {path for each in (*apps, *routers) for path in paths_of(each.routes)}


def test_every_route_has_a_row() -> None:
    with serving() as server:
        described = server.client.get("/openapi.json").json()["paths"]
    paths = {*declared(), *described, "/openapi.json"}
    assert {"/v1/completions", "/reset_prefix_cache", "/metrics", "/api/gpu/release"} <= paths
    assert [path for path in sorted(paths) if row_of(path) is None] == []
    exact = {row.path for row in PATHS if row.path == "/" or not row.path.endswith("/")}
    assert exact <= paths, "a row without a route"


def test_what_no_row_names_needs_the_key_of_the_api() -> None:
    assert row_of("/metricsx") is None
    assert row_of("/api") is None
    assert door_of("GET", "/unknown") == "api"
    assert door_of("POST", "/unknown") == "control"
    assert door_of("POST", "/v1/unknown") == "api"
