"""Fair shares: what one client has under way, and that it is counted down again."""

from typing import Any

import pytest

from kvscope_engine.server.clients import ClientLimits
from kvscope_engine.server.errors import BadRequestError, ClientLimitError
from tests.support.server import Server, greedy, make_engine_config, serving
from tests.support.waiting import wait_for

PATH = "/v1/completions"


def held_by_stream(server: Server, **limits: Any) -> dict[str, Any]:
    """The error that a call gets while a stream of the same client is under way."""
    body = greedy("abc", max_tokens=100)
    with (
        server.reins.held(),
        server.client.stream("POST", PATH, json=body | {"stream": True}) as response,
    ):
        assert response.status_code == 200
        wait_for(lambda: server.engine.loop.num_in_flight == 1, "the stream is under way")
        refused = server.post(PATH, body)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        server.reins.let_go()
        for _ in response.iter_lines():
            pass
    error: dict[str, Any] = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_exceeded", 429)
    assert server.post(PATH, body).status_code == 200, "the stream has ended"
    assert server.metric("kvscope_requests_rejected_total", reason="client_limit") == 1
    return error


def test_a_client_has_so_many_calls_under_way_and_no_more() -> None:
    with serving(make_engine_config(max_client_requests=1)) as server:
        error = held_by_stream(server)
        assert error["message"] == "1 calls of this client are under way, the limit is 1"
        for bad in ({"prompt": 5}, {"prompt": "a", "max_tokens": 0}):
            assert server.post(PATH, bad).status_code == 400
        assert server.post(PATH, greedy("a")).status_code == 200, "a refused call is not counted"


def test_a_clients_calls_take_so_many_tokens_together() -> None:
    with serving(make_engine_config(max_client_tokens=150)) as server:
        error = held_by_stream(server)
        assert "this one 103; the limit is 150" in error["message"]
        refused = server.post(PATH, greedy("abc", max_tokens=100, n=2))
        assert refused.status_code == 400, "it would never fit, so there is nothing to wait for"
        assert refused.json()["error"]["param"] == "max_tokens"


def test_without_limits_nobody_is_refused() -> None:
    limits = ClientLimits(None, None)
    shares = [limits.enter("one") for _ in range(1000)]
    for share in shares:
        share.close()
    assert limits.num_clients == 0


def test_each_client_has_its_own_share_and_leaves_no_entry() -> None:
    limits = ClientLimits(1, 10)
    first, second = limits.enter("one"), limits.enter("two")
    with pytest.raises(ClientLimitError):
        limits.enter("one")
    limits.take("two", 10)
    with pytest.raises(ClientLimitError):
        limits.take("two", 1)
    with pytest.raises(BadRequestError):
        limits.take("one", 11)
    for share in (first, second, first):
        share.close()
    assert limits.num_clients == 0


def test_an_error_ends_the_share() -> None:
    limits = ClientLimits(1, None)
    with pytest.raises(ValueError, match="bad"), limits.enter("one"):
        raise ValueError("bad")
    with limits.enter("one"):
        assert limits.num_clients == 1
