"""A scheduler of SGLang as the report of its start sees it: the constructor's calls, on a CPU."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from kvscope_events.events import EngineEvent
from kvscope_events.observers.sglang import plugin, start
from tests.observers import workers

ARGS = SimpleNamespace(served_model_name="tiny", model_path="/models/t")
PARALLEL = SimpleNamespace(
    **{"tp_size": 4, "tp_rank": 3, "pp_rank": 0, "dp_rank": None},
    **{"attn_tp_rank": 3, "attn_dp_size": 1, "attn_dp_rank": 0},
)
"""The last rank of four, which has no observer of its pool."""


class DefaultModelLoader:
    """Two tensors in each file."""

    files: tuple[Path, ...] = ()

    def _prepare_weights(self, folder: str) -> tuple[str, list[str], bool]:
        return folder, [str(file) for file in self.files], True

    def _get_weights_iterator(self, source: str) -> Iterator[tuple[str, torch.Tensor]]:
        for file in self._prepare_weights(source)[1]:
            yield f"{Path(file).stem}.a", torch.zeros(100, dtype=torch.uint8)
            yield f"{Path(file).stem}.b", torch.zeros(50, dtype=torch.uint8)


class ModelRunner:
    at_load: Callable[[], None] = staticmethod(lambda: None)
    """Called once the weights are loaded."""

    def __init__(self) -> None:
        self.load_model()

    def load_model(self) -> int:
        read = len([*DefaultModelLoader()._get_weights_iterator("folder")])
        type(self).at_load()
        return read


class Scheduler:
    """Calls its parts as SGLang's does since 0.5.17."""

    def __init__(self, server_args: Any, port_args: Any) -> None:
        self.init_model_worker()

    def init_model_worker(self) -> None:
        self.init_tp_model_worker()
        self.maybe_init_draft_worker()
        self.init_memory_pools()
        self.init_all_attention_backends()

    def init_tp_model_worker(self) -> None:
        ModelRunner()

    def maybe_init_draft_worker(self) -> None:
        ModelRunner()

    def init_memory_pools(self) -> None:
        pass

    def init_all_attention_backends(self) -> None:
        pass


MODULES = {
    plugin._MODULE: {"Scheduler": Scheduler, "get_parallel": lambda: PARALLEL},
    start.RUNNER: {"ModelRunner": ModelRunner},
    start.LOADER: {"DefaultModelLoader": DefaultModelLoader},
    "sglang.srt.mem_cache.cache_init_params": {"CacheInitParams": None},
}
METHODS = {
    ModelRunner: ("load_model",),
    DefaultModelLoader: ("_prepare_weights", "_get_weights_iterator"),
}
_ORIGINALS = {(kind, name): vars(kind)[name] for kind, names in METHODS.items() for name in names}


def hooked(made: Scheduler) -> set[str]:
    """Methods of it, and of the classes, that are not their own."""
    replaced = {n for (kind, n), own in _ORIGINALS.items() if vars(kind).get(n, own) is not own}
    return {*vars(made), *replaced}


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch, **changes: object) -> Iterator[None]:
    """The plugin, in a process with these modules; changes: methods of the scheduler."""
    for name, content in MODULES.items():
        module = ModuleType(name)
        vars(module).update(content, CacheInitParams=type("CacheInitParams", (), {}))
        monkeypatch.setitem(sys.modules, name, module)
    for name, method in changes.items():
        if method is None:
            monkeypatch.delattr(Scheduler, name)
        else:
            monkeypatch.setattr(Scheduler, name, method)
    with monkeypatch.context() as wrapped:
        wrapped.setattr(Scheduler, "__init__", Scheduler.__init__)
        plugin.install()
        try:
            yield
        finally:
            while start._starts:
                start._starts.pop().stop()


def events_until(kind: type[EngineEvent]) -> list[EngineEvent]:
    return workers.events_until(kind, 3, "sglang")
