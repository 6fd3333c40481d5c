"""From --model to a model and a tokenizer that are verified to work, or one clear error."""

import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from kvscope_engine.config import ModelConfig
from kvscope_engine.model import demo
from kvscope_engine.model.architecture import check_config, check_model_type
from kvscope_engine.model.attention.choice import TORCH, Attention
from kvscope_engine.model.attention.interface import IMPLEMENTATION
from kvscope_engine.model.checkpoint import check_files
from kvscope_engine.model.end_tokens import end_token_ids
from kvscope_engine.model.errors import CheckpointError, ModelTooLargeError, first_line
from kvscope_engine.model.library_errors import reported
from kvscope_engine.model.limits import max_model_len
from kvscope_engine.model.memory_report import weight_bytes
from kvscope_engine.model.probe import probe
from kvscope_engine.model.room import BELONG, check_counts, check_room, mismatch
from kvscope_engine.model.safetensors_file import StoredTensor
from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.model.tokenizer_files import load_tokenizer
from kvscope_engine.sizing.config_json import local_path
from kvscope_events.printable import one_line

logger = logging.getLogger(__name__)

_DOWNLOADED = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]
_NOT_DOWNLOADED = ["consolidated*", "original/*"]
_QUOTED = 80
"""Maximum characters of a tensor's name in the log."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Weights on their device, ready for a ModelRunner, and their tokenizer."""

    model: PreTrainedModel
    tokenizer: Tokenizer


def load_model(config: ModelConfig, attention: Attention = TORCH) -> LoadedModel:
    """Load, check and probe a model. Raises a CheckpointError of one line; prints nothing.

    attention: the backend that it is probed with. Only a name on the hub goes to the network.
    """
    started = time.monotonic()
    device = device_of(config)
    with _quiet_transformers():
        if config.model == demo.NAME:
            loaded = _load_demo(config, device)
        else:
            loaded = _load_checkpoint(config, device)
        with reported(config.model, "its trial run failed", BELONG):
            probe(loaded.model, config.model, attention)
            length = max_model_len(loaded.model.config)
    logger.info(
        "loaded %s: %s, %s on %s, %.1f MiB, %d tokens of context, %.1f s",
        config.model,
        loaded.model.config.model_type,
        loaded.model.dtype,
        loaded.model.device,
        weight_bytes(loaded.model) / 2**20,
        length,
        time.monotonic() - started,
    )
    return loaded


def device_of(config: ModelConfig) -> torch.device:
    """The device that the model is loaded to."""
    name: str = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _load_demo(config: ModelConfig, device: torch.device) -> LoadedModel:
    dtype = torch.float32 if config.dtype == "auto" else getattr(torch, config.dtype)
    model = demo.demo_model(config.seed, dtype, device)
    return LoadedModel(model, Tokenizer(demo.demo_tokenizer(), frozenset()))


def _load_checkpoint(config: ModelConfig, device: torch.device) -> LoadedModel:
    name = config.model
    folder = _local_folder(name)
    files = check_files(folder)
    check_model_type(name, files.config)
    check_counts(name, files.config)
    model_config = _model_config(name, folder)
    dtype = None if config.dtype == "auto" else getattr(torch, config.dtype)
    check_room(name, model_config, files.tensors, device, dtype)
    eos_token_ids = end_token_ids(name, files.generation, model_config)
    model = _load_weights(name, folder, model_config, files.tensors, device, dtype)
    return LoadedModel(model, load_tokenizer(name, folder, eos_token_ids))


def _local_folder(model: str) -> Path:
    """The folder itself, or the hub's snapshot of a name, downloaded if it is not cached."""
    path = local_path(model)
    if path is not None:
        return path
    logger.info("%s is not a local folder: asking the hub", model)
    try:
        return Path(
            snapshot_download(model, allow_patterns=_DOWNLOADED, ignore_patterns=_NOT_DOWNLOADED)
        )
    except (OSError, HFValidationError) as error:
        raise CheckpointError(
            model,
            f"no such folder, and the hub did not deliver it ({first_line(error)})",
            "check the name, the network, and HF_TOKEN if access is restricted",
        ) from error


def _model_config(name: str, folder: Path) -> PreTrainedConfig:
    with reported(name, "transformers cannot read config.json", BELONG):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        check_config(name, config)
    assert isinstance(config, PreTrainedConfig)
    return config


def _load_weights(
    name: str,
    folder: Path,
    model_config: PreTrainedConfig,
    tensors: Mapping[str, StoredTensor],
    device: torch.device,
    dtype: torch.dtype | None,
) -> PreTrainedModel:
    try:
        with reported(name, "transformers cannot load it", BELONG):
            model, loading = _from_files(folder, model_config, device, dtype)
    except ModelTooLargeError:
        raise
    except CheckpointError as error:
        raise mismatch(name, model_config, tensors) or error from error
    missing = sorted(loading["missing_keys"])
    if missing:
        raise CheckpointError(
            name,
            f"{len(missing)} tensors are missing from the weights, first {missing[0]}",
            "download the checkpoint again, or take one made for text generation",
        )
    unused = sorted(loading["unexpected_keys"])
    if unused:  # other parts, such as a vision tower, or another model's configuration
        first = one_line(unused[0], _QUOTED)
        logger.warning("%s: %d tensors are not used, first %s", name, len(unused), first)
    model.train(False)
    return model


def _from_files(
    folder: Path,
    model_config: PreTrainedConfig,
    device: torch.device,
    dtype: torch.dtype | None,
) -> tuple[PreTrainedModel, dict[str, Any]]:
    make_generation_config: Any = GenerationConfig  # untyped
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        config=model_config,
        dtype="auto" if dtype is None else dtype,
        device_map=None if device.type == "cpu" else device,
        attn_implementation=IMPLEMENTATION,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
        output_loading_info=True,
        generation_config=make_generation_config(),  # we read the file's end tokens ourselves
    )
    model, loading = loaded
    assert isinstance(model, PreTrainedModel)
    return model, loading


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bars, warnings or advice while loading; the settings return afterwards."""
    settings: Any = transformers_logging  # untyped
    verbosity = settings.get_verbosity()
    progress_bar = settings.is_progress_bar_enabled()
    settings.set_verbosity(logging.CRITICAL)
    settings.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        settings.set_verbosity(verbosity)
        if progress_bar:
            settings.enable_progress_bar()
