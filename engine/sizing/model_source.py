"""Does --model name something on this machine or on the hub? One rule for `serve` and `plan`."""

from pathlib import Path

_LOCAL_PREFIXES = ("/", ".", "~")


def local_path(model: str) -> Path | None:
    """The file or folder that `model` names, there or not; None: it is a name on the hub.

    A hub name has at most one slash (`gpt2`, `Qwen/Qwen3-0.6B`) and nothing local bears it.
    """
    path = Path(model).expanduser()
    if path.exists() or model.startswith(_LOCAL_PREFIXES) or model.count("/") > 1:
        return path
    return None
