"""The containers of an injected pod, as processes around a real vLLM."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.inject.odd_inputs import EXISTING_PATH_AND_PLUGINS
from tests.inject.run import loaded, run
from tests.kubernetes.objects import container
from tests.support.process import completed, forked_kvscope
from tests.support.waiting import wait_for
from tests.vllm.observed import SMALL
from tests.vllm.server import free_port, server_command, server_environment, started

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly),
    *(pytest.mark.slow, pytest.mark.timeout(600)),
]


def sample(page: str, family: str) -> list[float]:
    return [float(text) for text in re.findall(rf"(?m)^{family}(?:\{{.*\}})? (\S+)$", page)]


def test_an_injected_vllm_is_observed_and_its_ledger_balances(
    vllm_python: Path, models: Callable[[str], Path]
) -> None:
    """It has a PYTHONPATH of its own, and a VLLM_PLUGINS that does not name ours."""
    outcome = run(EXISTING_PATH_AND_PLUGINS)
    assert outcome.code == 0, outcome.said
    (deployment,) = loaded(outcome.text)
    server, port = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="kvs-") as place:
        folder = Path(place)

        def here(words: list[str]) -> list[str]:
            """With folders for volumes, and free ports."""
            at = {"/kvscope/": f"{folder}/", "127.0.0.1:8000": f"127.0.0.1:{server}"}
            at["--port=8010"] = f"--port={port}"
            return [re.sub("|".join(at), lambda found: at[found[0]], word) for word in words]

        done = completed(*here(container(deployment, "kvscope-observer")["args"]))
        assert done.returncode == 0, done.stderr
        variables: Any = container(deployment, "vllm")["env"]
        environment = {entry["name"]: here([entry["value"]])[0] for entry in variables}
        assert environment["VLLM_PLUGINS"] == "lora_resolver,kvscope"
        command = server_command(vllm_python, models("llama"), server, *SMALL)
        sidecar = here(container(deployment, "kvscope")["args"])
        with (
            forked_kvscope(*sidecar) as watching,
            started(command, server_environment(**environment), server, folder, "vllm") as vllm,
        ):
            for _ in range(4):
                vllm.complete(["ab " * 200, "cd " * 300], 32)

            def page() -> str:
                return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text

            wait_for(
                lambda: sum(sample(page(), "kvscope_prefix_cache_hit_tokens_total")) > 0,
                "hits on the page of the sidecar",
            )
            text = page()
            assert set(sample(text, "kvscope_source_up")) == {1.0}, watching.text
            assert sample(text, "kvscope_kv_ledger_imbalance_blocks") == [0.0]
            assert set(sample(text, "kvscope_observer_stopped")) == {0.0}
            assert sample(text, "kvscope_kv_blocks")
