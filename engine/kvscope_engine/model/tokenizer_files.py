"""A checkpoint's tokenizer: loaded without its code, tried once, or refused in one line."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, TokenizersBackend

from kvscope_engine.model.errors import CheckpointError
from kvscope_engine.model.library_errors import reported
from kvscope_engine.model.tokenizer import Tokenizer

_ADD = "add the model's tokenizer.json to the folder"
_CHECK = "check tokenizer.json and tokenizer_config.json, or download them again"
_SAMPLE = "Hello, world! Grüße, 世界 123\n"
"""Encoded and decoded once: some faults of a tokenizer.json show only then."""


def load_tokenizer(model: str, folder: Path, eos_token_ids: frozenset[int]) -> Tokenizer:
    """Raises CheckpointError for a tokenizer that is missing or cannot work."""
    remedy = _CHECK if (folder / "tokenizer.json").is_file() else _ADD
    with reported(model, "no usable tokenizer", remedy):
        loaded: Any = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    if not isinstance(loaded, TokenizersBackend):
        raise CheckpointError(
            model, f"{type(loaded).__name__} is not based on tokenizer.json", _ADD
        )
    with reported(model, "its tokenizer does not work", remedy):
        tokenizer = Tokenizer(loaded, eos_token_ids)
        token_ids = tokenizer.encode(_SAMPLE)
        tokenizer.decode(token_ids)
        detokenizer = tokenizer.detokenizer()
        detokenizer.add(token_ids)
        detokenizer.finish()
    return tokenizer
