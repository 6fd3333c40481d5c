"""/openapi.json is accurate: schemathesis finds no answer that it does not describe."""

import subprocess
import sys
from pathlib import Path

import httpx
import jsonschema
import pytest

from tests.support.server import Server, greedy, make_engine_config, serving

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [8, pytest.param(40, marks=pytest.mark.weekly)])
def test_schemathesis_finds_nothing_undescribed(tmp_path: Path, seconds: int) -> None:
    """No 500, no hang, no status, type or shape of an answer that the document does not have.

    Not that every body of the schema is taken: what two fields say together it cannot express
    (`stream_options` without `stream`), nor that 1.0 is not an integer here.
    """
    with serving(make_engine_config(max_model_len=96)) as server:  # short work: 5 s are a hang
        tried = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
                *("--max-time", str(seconds), "--seed", "1", "--request-timeout", "10"),
                *("--max-response-time", "5", "--exclude-checks", "positive_data_acceptance"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60 + 4 * seconds,
        )
        server.wait_until_free()
    assert tried.returncode == 0, tried.stdout
    assert "5 selected / 5 total" in tried.stdout


def test_every_status_is_described(server: Server) -> None:
    """The others need keys, a dead engine or a template: 401, 403, 415, 500, 501, 503."""
    document = server.client.get("/openapi.json").json()
    described = {
        (path, method): set(operation["responses"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    call = {"200", "400", "401", "413", "429", "500", "503"}
    assert described == {
        (COMPLETIONS, "post"): call,
        (CHAT, "post"): call | {"501"},
        ("/v1/models", "get"): {"200", "401", "503"},
        ("/health", "get"): {"200", "503"},
        ("/reset_prefix_cache", "post"): {"202", "401", "403", "415", "503"},
    }


def test_answers_have_the_described_shape(server: Server) -> None:
    paths = server.client.get("/openapi.json").json()["paths"]

    def check(response: httpx.Response, path: str, method: str = "post") -> None:
        described = paths[path][method]["responses"][str(response.status_code)]
        schema = described["content"]["application/json"]["schema"]
        jsonschema.validate(response.json(), schema)

    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    for settings in ({}, {"n": 2, "return_token_ids": True}, {"logprobs": 2}):
        check(server.post(COMPLETIONS, greedy("abc", **settings)), COMPLETIONS)
    for settings in ({}, {"return_token_ids": True}, {"logprobs": True, "top_logprobs": 2}):
        check(server.post(CHAT, chat | settings), CHAT)
    for path in (COMPLETIONS, CHAT):
        check(server.post(path, {"n": 0}), path)
    check(server.client.get("/v1/models"), "/v1/models", "get")
    check(server.client.get("/health"), "/health", "get")


def test_allow_names_all_methods_of_health(server: Server) -> None:
    refused = server.client.options("/health")
    assert refused.status_code == 405
    assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert server.client.head("/health").status_code == 200
