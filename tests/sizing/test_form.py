"""The calculator of the live page: the figures of the command, from numbers alone."""

import json
from collections.abc import Iterator

import httpx
import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope.plan.form import plan_router
from kvscope.plan.gpus import GPUS
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.metrics import bare_app

NUMBERS = {
    "layers": "32",
    "kv_heads": "8",
    "head_dim": "128",
    "params": "8.03e9",
    "gpu": "H200",
    "max_model_len": "16384",
    "concurrency": "64",
    "kv_cache_dtype": "fp8",
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = bare_app("x")
    served.include_router(plan_router())
    with HttpServer(served, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.port}/api/plan"


def ask(url: str, **changed: str) -> httpx.Response:
    return httpx.get(url, params=NUMBERS | changed, timeout=30)


def test_it_answers_what_the_command_prints(url: str) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in NUMBERS.items()]
    printed = CliRunner().invoke(app, ["plan", *flags, "-o", "json"])
    assert ask(url).json() == json.loads(printed.stdout)


def test_a_model_that_does_not_fit_is_an_answer(url: str) -> None:
    answer = ask(url, gpu="L4", params="5e12")
    assert answer.status_code == 200
    assert not answer.json()["verdict"]["fits"]


def test_every_gpu_of_its_list_is_known(url: str) -> None:
    names = httpx.get(f"{url}/gpus", timeout=30).json()
    assert len(names) == len(GPUS)
    assert {ask(url, gpu=name).status_code for name in names} == {200}


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"gpu": "H20O"}, 400, "H20O"),
        ({"kv_cache_dtype": "fp7"}, 400, "fp7"),
        ({"params": "nan"}, 422, "params"),
        ({"params": "1e300"}, 400, "--params"),
        ({"layers": "0"}, 422, "layers"),
        ({"layers": "1000000000"}, 422, "layers"),
        ({"concurrency": "many"}, 422, "concurrency"),
    ],
)
def test_bad_numbers_are_named(url: str, changed: dict[str, str], status: int, said: str) -> None:
    answer = ask(url, **changed)
    assert (answer.status_code, said in answer.text) == (status, True), answer.text


def test_it_looks_for_no_checkpoint(url: str) -> None:
    assert ask(url, model="/etc/passwd", checkpoint="org/model").json() == ask(url).json()
