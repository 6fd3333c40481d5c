"""A runner's self-test, to see whether it works at all: apart from the pool, or not at all."""

from typing import Any

import pytest
import torch

from kvscope_engine.config import ModelConfig
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.runner import ModelRunner


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(load_model(ModelConfig(model="demo")).model, num_blocks=4, block_size=16)


def test_it_writes_nothing_into_the_pool(runner: ModelRunner) -> None:
    for layer in runner.cache.layers:
        layer.fill_(7.0)
    runner.self_test()
    assert all(torch.all(layer == 7.0) for layer in runner.cache.layers)


def test_it_raises_what_every_step_would(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(runner, "_forward", lost)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        runner.self_test()
