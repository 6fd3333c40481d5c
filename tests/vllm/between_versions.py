"""Differences between the driven versions of vLLM: constructors, functions, torch."""

import inspect
import os
from typing import Any


def build(cls: Any, **wanted: Any) -> Any:
    """Make one of vLLM's objects with those arguments that this version has."""
    known = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in wanted.items() if name in known})


def version_of_vllm() -> tuple[int, ...]:
    import vllm

    return tuple(int(part) for part in vllm.__version__.split(".")[:2])


def unwrapped(cls: Any, base: Any) -> Any:
    """A factory with the signature of the base's own __init__: subclasses take *args."""

    def make(**kwargs: Any) -> Any:
        return cls(**kwargs)

    make.__signature__ = inspect.signature(base.__init__)  # type: ignore[attr-defined]
    return make


def hash_function() -> Any:
    try:
        from vllm.utils.hashing import get_hash_fn_by_name
    except ImportError:
        from vllm.utils import get_hash_fn_by_name
    return get_hash_fn_by_name("sha256")


def stand_in() -> None:
    """Called before vLLM is imported: its settings, and stand-ins for what older versions expect of
    a newer torch."""
    os.environ.update(
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
        VLLM_PLUGINS="",
        VLLM_TARGET_DEVICE="cpu",
        VLLM_CPU_KVCACHE_SPACE="1",
    )
    import torch

    for name in (
        "_is_avx512_supported",
        "_is_avx2_supported",
        "_is_amx_tile_supported",
        "_is_avx512_bf16_supported",
    ):
        if not hasattr(torch._C._cpu, name):
            setattr(torch._C._cpu, name, lambda: False)
