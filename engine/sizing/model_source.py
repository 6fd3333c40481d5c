"""Does --model name something on this machine or on the hub? One rule for `serve` and `plan`."""

from pathlib import Path

_LOCAL_PREFIXES = ("/", ".", "~")


def local_path(model: str) -> Path | None:
    """The file or folder that `model` names, there or not; None: it is a name on the hub.

    A hub name has at most one slash (`gpt2`, `Qwen/Qwen3-0.6B`) and nothing local bears it.
    """
    path = _expanded(model)
    if model.startswith(_LOCAL_PREFIXES) or model.count("/") > 1:
        return path
    try:
        return path if path.exists() else None
    except OSError:  # too long for a file, or in a folder that may not be looked into
        return None


def _expanded(model: str) -> Path:
    try:
        return Path(model).expanduser()
    except RuntimeError:  # ~name of nobody here
        return Path(model)
