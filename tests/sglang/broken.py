"""Methods of our observer that raise, for what that costs an SGLang."""

import importlib
import importlib.util
import itertools
from typing import Any


def break_hook(text: str) -> None:
    """Let these of ours raise, each once: `module.Class.method@CALL`, joined by `+`."""
    for one in text.split("+"):
        name, _, call = one.partition("@")
        module, *owners, attribute = name.split(".")
        owner = _module_of_ours(module)
        for part in owners:
            owner = getattr(owner, part)
        setattr(owner, attribute, _broken(getattr(owner, attribute), int(call or 3)))


def _module_of_ours(name: str) -> Any:
    for package in ("observers.sglang", "observers", "wire", ""):
        full = ".".join(filter(None, ("kvscope_events", package, name)))
        if importlib.util.find_spec(full) is not None:
            return importlib.import_module(full)
    raise ModuleNotFoundError(name)


def _broken(original: Any, call: int) -> Any:
    calls = itertools.count(1)

    def broken(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            raise RuntimeError("broken for a test")
        return original(*args, **kwargs)

    return broken
