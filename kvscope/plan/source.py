"""Finds the files of a plan: config.json and what belongs to it, in a folder or on the hub."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import httpx

from kvscope.plan.weight_files import Tensor, WeightFiles, read_weight_files, weight_files
from kvscope_engine.config import ModelConfig
from kvscope_engine.sizing import ConfigError, read_config
from kvscope_engine.sizing.config_json import CONFIG, Config, local_path

_QUANTIZATION = "hf_quant_config.json"
"""ModelOpt's file beside config.json, which vLLM reads where that has no quantization_config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """The parts of a checkpoint that a plan reads."""

    config: Config
    """config.json, with the quantization that a second file describes."""
    weights: WeightFiles | None = None
    """None: there are no files of weights."""


def find_checkpoint(model: str) -> CheckpointFiles:
    """A folder, or a config.json in one; a name that does not exist locally goes to the hub.

    Raises ConfigError.
    """
    path = local_path(model)
    if path is not None:
        read = read_config(path)
        folder = path if path.is_dir() else path.parent
        config = _quantized(read, folder / _QUANTIZATION)
        beside = path.is_dir() or path.name == CONFIG
        return CheckpointFiles(config=config, weights=read_weight_files(folder) if beside else None)
    if model == ModelConfig().model:
        raise ConfigError(
            f"{model} has no checkpoint to plan from: it is made by kvscope engine serve"
        )
    if find_spec("huggingface_hub") is None:
        raise ConfigError(
            f"{model} is not a local file or folder, and asking the hub needs huggingface_hub: pip "
            "install '.[engine]' in a checkout of kvscope, or download its config.json"
        )
    return _from_hub(model)


def find_config(model: str) -> Config:
    """config.json alone, for a draft model. Raises ConfigError."""
    return find_checkpoint(model).config


def _quantized(config: Config, file: Path) -> Config:
    if isinstance(config.get("quantization_config"), Mapping) or not file.is_file():
        return config
    return {**config, "quantization_config": read_config(file)}


def _from_hub(model: str) -> CheckpointFiles:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HFValidationError,
        NotASafetensorsRepoError,
        SafetensorsParsingError,
    )

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line for each retry otherwise
    try:
        config = read_config(Path(hf_hub_download(model, CONFIG)))
    except (OSError, HFValidationError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"{model} is not a local file or folder, and the hub did not deliver it ({reason})"
        ) from error
    try:
        if not isinstance(config.get("quantization_config"), Mapping):
            config = _quantized(config, Path(hf_hub_download(model, _QUANTIZATION)))
    except (EntryNotFoundError, OSError, httpx.HTTPError):  # most checkpoints have no such file
        pass
    try:
        headers = HfApi().get_safetensors_metadata(model).files_metadata.values()
    except (NotASafetensorsRepoError, SafetensorsParsingError, OSError, httpx.HTTPError):
        return CheckpointFiles(config=config)
    tensors = {
        name: Tensor(str(each.dtype), tuple(each.shape))
        for header in headers
        for name, each in header.tensors.items()
    }
    return CheckpointFiles(config=config, weights=weight_files(tensors))
