"""Finds the config.json of a plan: a file, in a folder, or on the hub."""

import logging
from importlib.util import find_spec
from pathlib import Path

from kvscope_engine.config import ModelConfig
from kvscope_engine.sizing import ConfigError, read_config
from kvscope_engine.sizing.config_json import Config, local_path


def find_config(model: str) -> Config:
    """Read config.json; a name that does not exist locally goes to the hub. Raises ConfigError."""
    path = local_path(model)
    if path is not None:
        return read_config(path)
    if model == ModelConfig().model:
        raise ConfigError(f"{model} has no checkpoint to plan from: it is made by kvscope serve")
    if find_spec("huggingface_hub") is None:
        raise ConfigError(
            f"{model} is not a local file or folder, and asking the hub needs huggingface_hub: pip "
            "install '.[engine]' in a checkout of kvscope, or download its config.json"
        )
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HFValidationError

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line for each retry otherwise
    try:
        return read_config(Path(hf_hub_download(model, "config.json")))
    except (OSError, HFValidationError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"{model} is not a local file or folder, and the hub did not deliver it ({reason})"
        ) from error
