"""An injected Compose file as containers: a real vLLM with observer and sidecar, and without.

It needs a Docker daemon, and in KVSCOPE_TEST_VLLM_IMAGE the name of an image with a vLLM for CPU
that root starts by `vllm serve`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.inject.run import run
from tests.stack.daemon import docker, unable
from tests.support.pages import sample
from tests.support.waiting import wait_for
from tests.vllm.model import tiny_model
from tests.vllm.server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

IMAGE = "KVSCOPE_TEST_VLLM_IMAGE"
START_SECONDS = 600
COMPOSE = """\
# A user's own
name: kvscope-test-injected
services:
  llama:
    image: {image}
    user: "{user}"
    ports: ["127.0.0.1:{port}:8000"]
    ipc: host
    environment:
      - HF_HUB_OFFLINE=1  # the model is here
      - HOME=/tmp
      - USER=vllm
      - VLLM_CPU_KVCACHE_SPACE=1
    volumes:
      - {models}:/models:ro
    entrypoint: [vllm, serve]
    command: >
      --model /models --served-model-name tiny --max-model-len 1024 --num-gpu-blocks-override 120
      --block-size 32 --enforce-eager --dtype float32
    restart: unless-stopped
    healthcheck:
      test: [CMD, python3, -c, "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"]
      interval: 5s
      retries: 100
  client:
    image: {image}
    entrypoint: [sleep, infinity]
    depends_on:
      llama: {{condition: service_healthy}}
"""


@pytest.fixture(scope="module")
def exporter() -> str:
    """The image of the exporter, built from this checkout."""
    reason = unable() or (None if IMAGE in os.environ else f"{IMAGE} names no image of a vLLM")
    if reason is not None:
        pytest.skip(f"THE CONTAINERS WERE NOT TRIED: {reason}")
    name = "kvscope-exporter:test"
    docker(["build", "--target", "exporter", "--tag", name, "."], DOCKER_BUILDKIT="1")
    return name


class _Stack:
    """A Compose file, and what it starts."""

    def __init__(self, folder: Path, user: int) -> None:
        self.port, self.page_port = free_port(), free_port()
        models = tiny_model(folder / "models", "llama")
        for path in (models, *models.iterdir()):
            path.chmod(0o755)  # for a user of the container
        image = os.environ[IMAGE]
        self.text = COMPOSE.format(image=image, user=user, port=self.port, models=models)
        self.file = folder / "compose.yaml"
        self.file.write_text(self.text)

    def compose(self, *arguments: str) -> str:
        return docker(["compose", "--file", str(self.file), *arguments])

    def up(self) -> None:
        wait = ("--wait", "--wait-timeout", str(START_SECONDS))
        self.compose("up", "--detach", "--remove-orphans", *wait)

    def ask(self) -> None:
        url = f"http://127.0.0.1:{self.port}"
        wait_for(lambda: _answers(f"{url}/health"), "vLLM is up", START_SECONDS)
        for number in range(6):
            prompt = "a shared beginning " * 12 + str(number % 2)
            body = {"model": "tiny", "prompt": prompt, "max_tokens": 8}
            httpx.post(f"{url}/v1/completions", json=body, timeout=60).raise_for_status()

    def is_counted(self) -> bool:
        """Whether the hits are vLLM's own, in a ledger that has every block."""
        urls = (f"http://127.0.0.1:{port}/metrics" for port in (self.port, self.page_port))
        try:
            servers, page = (httpx.get(url, timeout=30).text for url in urls)
        except httpx.HTTPError:  # its container is starting
            return False
        own = sample(servers, "vllm:prefix_cache_hits_total")
        ours = sample(page, "kvscope_prefix_cache_hit_tokens_total", phase="first")
        balance = sample(page, "kvscope_kv_ledger_imbalance_blocks")
        stopped = [
            line[-4:] for line in page.splitlines() if line.startswith("kvscope_observer_st")
        ]
        return bool(own) and own == ours and balance == 0 and set(stopped) == {" 0.0"}


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(params=[0, 1000], ids=["root", "user"])
def stack(exporter: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[_Stack]:
    """With its server observed, up and healthy."""
    made = _Stack(tmp_path, request.param)
    options = (f"--exporter-image={exporter}", f"--port={made.page_port}")
    made.file.write_text(run(made.text, *options).text)
    try:
        made.up()
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5", "--remove-orphans")
        for volume in ("observer", "sockets"):
            name = f"kvscope-test-injected_llama-kvscope-{volume}"
            docker(["volume", "rm", "--force", name])


def test_a_vllm_is_observed_across_restarts_and_no_longer_after_removal(stack: _Stack) -> None:
    stack.ask()
    wait_for(stack.is_counted, "the page has vLLM's own hits")
    for service in ("llama", "llama-kvscope", "llama-kvscope-observer"):
        stack.compose("restart", "--timeout", "5", service)
        stack.ask()
        wait_for(stack.is_counted, f"it counts again after a restart of {service}")
    removed = run(stack.file.read_text(), "--remove")
    assert removed.text == stack.text
    stack.file.write_text(removed.text)
    stack.up()
    stack.ask()
    services = stack.compose("ps", "--services").split()
    assert sorted(services) == ["client", "llama"]
    assert "KVSCOPE" not in stack.compose("exec", "llama", "env")
