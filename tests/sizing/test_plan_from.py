"""`kvscope plan --from`: a running server's facts, with another model, GPU or length."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT
from tests.sizing.configs import LLAMA_3_8B, QWEN3_8B
from tests.sizing.test_cli import document, kvscope
from tests.support.http_peer import Peer, serving, text
from tests.support.http_peer import json as json_answer

VLLM_PAGE = """\
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="32",cache_dtype="fp8",engine="0",\
gpu_memory_utilization="0.8",kv_cache_max_concurrency="2.8125",kv_cache_size_tokens="11520"} 1.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 0.0
"""
KVSCOPE_PAGE = (ROOT / "tests" / "exporter" / "golden" / "openmetrics.txt").read_text()
"""Our demo model, with blocks of 4 tokens, on an H100."""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    return str(tmp_path)


@pytest.fixture
def vllm(checkpoint: str) -> Iterator[Peer]:
    models = json.dumps({"data": [{"id": "tiny", "root": checkpoint, "max_model_len": 4096}]})
    with serving({"/metrics": text(VLLM_PAGE), "/v1/models": json_answer(models)}) as peer:
        yield peer


@pytest.fixture
def sidecar() -> Iterator[Peer]:
    with serving({"/metrics": text(KVSCOPE_PAGE, OPENMETRICS)}) as peer:
        yield peer


def test_a_vllms_facts_are_those_of_its_page_and_its_list_of_models(
    vllm: Peer, checkpoint: str
) -> None:
    plan = document("--from", vllm.url, "--gpu", "H200")
    same = document(
        *(checkpoint, "--gpu", "H200", "--max-model-len", "4096", "--block-size", "32"),
        *("--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.8"),
    )
    assert plan == same


def test_what_is_given_takes_precedence_also_where_it_is_the_default(
    vllm: Peer, checkpoint: str
) -> None:
    given = ("--gpu", "L40S", "--max-model-len", "8192", "--block-size", "16")
    plan = document("--from", f"{vllm.url}/metrics", *given)
    settings = ("--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.8")
    assert plan == document(checkpoint, *given, *settings)


def test_another_model_on_the_gpu_that_a_kvscope_sees(sidecar: Peer, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps(QWEN3_8B))
    length = ("--max-model-len", "4096")
    plan = document("--from", sidecar.url, "--model", str(file), *length)
    assert plan == document(
        *(str(file), "--gpu", "NVIDIA H100", "--block-size", "4", *length),
        *("--gpu-memory-utilization", "0.9"),
    )


def test_a_length_that_only_the_pools_size_shows(vllm: Peer, checkpoint: str) -> None:
    del vllm.answers["/v1/models"]
    plan = document("--from", vllm.url, "--model", checkpoint, "--gpu", "H200")
    assert plan["bytes"]["per_sequence"] == 4096 * plan["bytes"]["per_token"]


def test_a_length_is_not_the_quotient_of_a_bound(sidecar: Peer, tmp_path: Path) -> None:
    """A sidecar that only reads vLLM's page knows tokens as blocks times their size, at most."""
    file = tmp_path / "other.json"
    file.write_text(json.dumps(QWEN3_8B))
    engine = 'engine="0",model_name="demo"'
    sizes = {"kvscope_kv_usable_tokens": 393_216, "kvscope_kv_full_length_sequences": 15.2}
    lines = ['kvscope_gpu_info{name="NVIDIA H100",gpu="0"} 1']
    lines += [f"{name}{{{engine}}} {value}" for name, value in sizes.items()]
    sidecar.answers["/metrics"] = text("\n".join([*lines, ""]))
    plan = document("--from", sidecar.url, "--model", str(file))
    assert plan == document(str(file), "--gpu", "NVIDIA H100")


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("up 1\n", "names no model"),
        (VLLM_PAGE, "does not say on which GPU it runs: give --gpu"),
        (VLLM_PAGE + 'vllm:num_requests_running{engine="1",model_name="b"} 0\n', "several models"),
        ("no page {", "cannot be parsed"),
        (
            VLLM_PAGE
            + 'kvscope_gpu_info{name="NVIDIA L4",gpu="0"} 1\n'
            + 'kvscope_gpu_info{name="NVIDIA H200",gpu="1"} 1\n',
            "different GPUs, NVIDIA H200, NVIDIA L4",
        ),
    ],
)
def test_an_error_names_what_is_lacking(vllm: Peer, page: str, says: str) -> None:
    vllm.answers["/metrics"] = text(page)
    result = kvscope("--from", vllm.url)
    assert result.exit_code == 2
    assert says in result.output
    assert len(result.output.splitlines()) == 1


def test_a_server_that_is_not_there_is_an_error() -> None:
    result = kvscope("--from", "http://127.0.0.1:9", "--gpu", "H200")
    assert result.exit_code == 2
    assert "nothing answers at http://127.0.0.1:9" in result.output
