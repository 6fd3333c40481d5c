"""Pools as a real vLLM builds them: its models on the meta device, its specs, its groups.

`python -m tests.vllm.plan_pools CASES` prints one line for each case, and `--all` one for each
text model of vLLM's registry. No weight is allocated and nothing is computed. Settings that a CPU
changes are set to those of a GPU: an engine that schedules ahead, prefix caching, and recurrences
in the type of the case.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    ensure_model_parallel_initialized,
    init_distributed_environment,
    parallel_state,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.platforms.cpu import CpuPlatform
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import MambaSpec, SlidingWindowSpec

from tests.vllm.architectures import architectures

_choose = CpuPlatform.get_attn_backend_cls.__func__


def _chosen(cls: Any, *arguments: Any, attn_selector_config: Any, **named: Any) -> str:
    """Sparse attention has no CPU kernel; the specification of its cache needs none."""
    if attn_selector_config.use_sparse:
        return str(AttentionBackendEnum.CPU_MLA.get_path())
    named["attn_selector_config"] = attn_selector_config
    return str(_choose(cls, *arguments, **named))


def _configured(case: dict[str, Any], folder: Path) -> VllmConfig:
    (folder / "config.json").write_text(json.dumps(case["config"]))
    config = EngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="bfloat16",
        block_size=case["block_size"],
        max_model_len=case["max_model_len"],
        max_num_batched_tokens=case["max_num_batched_tokens"],
        max_num_seqs=16,
        enforce_eager=True,
        enable_prefix_caching=False,
        language_model_only=True,
    ).create_engine_config()
    config.scheduler_config.async_scheduling = True
    config.cache_config.enable_prefix_caching = True
    config.cache_config.mamba_ssm_cache_dtype = case["state_dtype"]
    if config.model_config.is_hybrid:  # as the hook for such models sets it on a GPU
        config.cache_config.mamba_cache_mode = "align"
        config.cache_config.mamba_block_size = config.cache_config.block_size
    return config


def _divided(tensor: int, config: VllmConfig) -> None:
    """Build layers for one of this many GPUs."""
    parallel_state.get_tp_group().world_size = tensor
    config.parallel_config.tensor_parallel_size = tensor


def _built(config: VllmConfig) -> tuple[int, dict[str, Any]]:
    """Weights of one GPU, and what each of its layers keeps."""
    meta = torch.device("meta")
    with set_current_vllm_config(config), set_default_torch_dtype(torch.bfloat16), meta:
        model = initialize_model(vllm_config=config)
    current_platform.update_block_size_for_backend(config)
    specs = {}
    for name, layer in config.compilation_config.static_forward_context.items():
        if getattr(layer, "kv_sharing_target_layer_name", None):
            continue  # vLLM's runner gives it the tensors of the other layer
        spec = layer.get_kv_cache_spec(config) if hasattr(layer, "get_kv_cache_spec") else None
        if spec is not None:
            specs[name] = spec
    return sum(parameter.numel() for parameter in model.parameters()), specs


def _case(case: dict[str, Any], first: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        config = _configured(case, Path(folder))
        if first:
            with set_current_vllm_config(config):
                address = f"file://{folder}/store"
                init_distributed_environment(1, 0, address, 0, "gloo")
                ensure_model_parallel_initialized(1, 1)
                if parallel_state._EP is None:  # made for models with experts only
                    parallel_state._EP = parallel_state.get_tp_group()
        _divided(case["tensor"], config)
        weights, specs = _built(config)
    config.cache_config.kv_cache_layout = "LBNHC"
    (pool,) = kv_cache_utils.get_kv_cache_configs(config, [specs], [case["memory"]])
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(
        config, kv_cache_utils.generate_scheduler_kv_cache_config([pool])
    )
    kept = specs.values()
    states = [spec.dtypes[-1] for spec in kept if isinstance(spec, MambaSpec)]
    tokens_of = [
        spec.block_size for spec in kept if not isinstance(spec, MambaSpec | SlidingWindowSpec)
    ]
    return {
        "name": case["name"],
        "block_size": case["block_size"] if states or not tokens_of else max(tokens_of),
        "state_dtype": str(states[0]).removeprefix("torch.") if states else None,
        "weights": weights,
        "blocks": pool.num_blocks,
        "tokens": tokens,
        "concurrency": concurrency,
        "layers": sorted(len(group.layer_names) for group in pool.kv_cache_groups),
    }


def main() -> None:
    everything = sys.argv[1] == "--all"
    os.environ.setdefault("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    CpuPlatform.get_attn_backend_cls = classmethod(_chosen)
    cases = architectures() if everything else json.loads(Path(sys.argv[1]).read_text())
    ready = False
    for case in cases:
        try:
            found = _case(case, first=not ready)
        except Exception as error:  # the others are still of use
            found = {"name": case["name"], "error": f"{type(error).__name__}: {error}"}
        ready = ready or parallel_state._TP is not None
        shown = {"case": case, "version": vllm.__version__} if everything else {}
        print(json.dumps({**found, **shown}), flush=True)


if __name__ == "__main__":
    main()
