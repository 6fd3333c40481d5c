"""Routers of others on the engine's port: open ones, and those that ask for the API key."""

import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient

from engine.config import SchedulerConfig
from engine.model.demo import demo_tokenizer
from engine.model.tokenizer import Tokenizer
from engine.server.app import ApiConfig, create_app
from engine.server.dispatch import Dispatcher
from engine.server.requests import ServedModel


def router(path: str) -> APIRouter:
    routes = APIRouter()

    @routes.get(path)
    async def answer() -> str:
        return path

    return routes


def client(api_key: str | None) -> TestClient:
    app = create_app(
        Dispatcher(),
        Tokenizer(demo_tokenizer(), frozenset()),
        ServedModel(name="m", vocab_size=259, block_size=16, created=0),
        SchedulerConfig(max_model_len=64),
        ApiConfig(api_key=api_key),
        routers=[router("/open")],
        guarded_routers=[router("/guarded")],
    )
    return TestClient(app)


def test_a_guarded_router_asks_for_the_key_and_an_open_one_does_not() -> None:
    asking = client(api_key="secret")
    assert asking.get("/open").status_code == 200
    refused = asking.get("/guarded")
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == 401
    assert asking.get("/guarded", headers={"Authorization": "Bearer secret"}).status_code == 200


@pytest.mark.parametrize("path", ["/open", "/guarded"])
def test_without_a_key_both_are_open(path: str) -> None:
    assert client(api_key=None).get(path).json() == path
