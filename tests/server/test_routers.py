"""Routers of others on the engine's port, and a port of its own for what operators ask."""

from fastapi import APIRouter
from fastapi.testclient import TestClient

from kvscope_engine.config import SchedulerConfig
from kvscope_engine.model.demo import demo_tokenizer
from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.server.app import ApiConfig, create_app
from kvscope_engine.server.control import create_control_app
from kvscope_engine.server.dispatch import Dispatcher
from kvscope_engine.server.requests import ServedModel
from tests.support.server import Server


def test_a_router_of_others_answers_on_the_engines_port() -> None:
    routes = APIRouter()

    @routes.get("/other")
    async def answer() -> str:
        return "other"

    app = create_app(
        Dispatcher(),
        Tokenizer(demo_tokenizer(), frozenset()),
        ServedModel(name="m", vocab_size=259, block_size=16, created=0),
        SchedulerConfig(max_model_len=64),
        ApiConfig(),
        routers=[routes],
    )
    client = TestClient(app)
    assert client.get("/other").json() == "other"
    assert client.post("/reset_prefix_cache").status_code == 404, "unless its router is given"


def test_the_control_app_resets_the_cache_from_another_thread(server: Server) -> None:
    server.complete(list(range(64)))
    assert server.pool.num_cached > 0
    control = TestClient(create_control_app(server.engine.dispatcher))
    assert control.get("/health").json() == {"status": "ok"}
    assert control.head("/health").status_code == 200
    assert control.post("/reset_prefix_cache").status_code == 202
    server.complete([1])  # the step before which it happens
    assert control.get("/v1/models").status_code == 404
    wrong = control.get("/reset_prefix_cache")
    assert wrong.status_code == 405
    assert wrong.json()["error"]["code"] == 405
