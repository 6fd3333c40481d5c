"""Lets HiCache run on a CPU: its tiers are kept, and nothing is copied between them."""

import builtins
import re
from pathlib import Path
from typing import Any


def copy_nothing() -> None:
    """Replace kernels that copy by nothing, streams and events by finished ones."""
    import sglang.srt.mem_cache.pool_host.common as common
    import torch

    for source in Path(common.__file__).parent.glob("*.py"):
        for name in set(re.findall(r"\btransfer_kv_\w+", source.read_text())):
            setattr(builtins, name, lambda *_, **__: None)
    cpu: Any = torch.cpu
    cpu.Stream = cpu.Event = cpu.stream = Done
    for name in ("_cuda_host_register", "_cuda_host_unregister"):
        if hasattr(common, name):
            setattr(common, name, lambda *_, **__: None)


class Done:
    """A stream or an event on which everything has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_stream = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: True

    def __enter__(self) -> "Done":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing waits."""
