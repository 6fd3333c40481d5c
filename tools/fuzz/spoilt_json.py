"""Faults of a checkpoint's JSON files: fields of another kind, and invalid JSON."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

JUNK: tuple[object, ...] = (
    *(None, True, False, -1, 0, 1, 3, 7, 2**31, 10**12, 10**30, 0.0, -0.5, 1e308),
    *(
        float("nan"),
        float("inf"),
        "",
        "x",
        "auto",
        "\ud800\n",
        [],
        [[1]],
        [None],
        {},
        {"x": {"y": 1}},
    ),
    *([0] * 1000, ["x"] * 5),
)
"""In place of any field."""

_FIELDS: dict[str, tuple[object, ...]] = {
    "auto_map": ({"AutoConfig": "a.B"}, 5),
    "dtype": ("int8", "bool", "float8_e4m3fn", "complex64", "bfloat16", "Tensor", "nn", 7),
    "eos_token_id": ([], [[]], [{}], "257", 2.5, 10**12, -1, [257, "x"], True, {"a": 1}),
    "is_encoder_decoder": (True, "x"),
    "layer_types": ([], ["full_attention"], ["x"] * 4, [[]] * 4, "full_attention"),
    "max_position_embeddings": (0, -5, 10**12, 10**30, True, "512"),
    "model_type": ("", "t5", "gpt2", "mamba", "qwen3_moe", "gemma2", "llama4", "bert", 5, []),
    "num_attention_heads": (0, -4, 3, 5, 10**6, 10**12),
    "num_experts": (0, 10**5, 10**9),
    "num_hidden_layers": (0, -1, 1, 3, 5, 10**5, 10**9, 10**18),
    "num_key_value_heads": (0, -2, 3, 7, 10**9),
    "num_labels": (0, -1, 10**9, 10**12),
    "head_dim": (0, -16, 1, 15, 10**9),
    "hidden_act": ("x", "", "gelu", 5),
    "hidden_size": (0, -64, 10**6, 10**9, 10**12, 10**19),
    "intermediate_size": (0, -1, 97, 10**12, 10**19),
    "vocab_size": (0, -1, 258, 260, 10**12, 10**19),
    "pad_token_id": (-1, 10**9, 258.5),
    "quantization_config": ({}, {"quant_method": "gptq"}, {"quant_method": "fp8"}, [], "x"),
    "rms_norm_eps": (0, -1, float("nan"), "1e-6", 1e300),
    "rope_parameters": (
        *({}, {"rope_type": "x"}, {"rope_type": "yarn"}, {"rope_type": "dynamic", "factor": 0}),
        *({"rope_type": "default", "rope_theta": 0}, {"rope_type": "default", "rope_theta": "x"}),
        *([], 5, {"rope_type": "linear", "rope_theta": 10000.0, "factor": -2.0}),
    ),
    "sliding_window": (0, -1, 4, 10**12, "x"),
    "text_config": ({}, [], {"model_type": "llama"}, 5),
    "tie_word_embeddings": (True, "x", None),
    "tokenizer_class": ("LlamaTokenizer", "BertTokenizer", "X", 5, ""),
    "transformers_weights": ("other.safetensors", "../model.safetensors", 5),
    "transformers_version": (5, "x", None),
    "model_max_length": (-1, 0, 10**30, "x"),
    "chat_template": (5, {}, "{% if %}", [{"name": "x"}]),
    "added_tokens_decoder": ({"x": {}}, {"5": 7}, {"-1": {"content": "x"}}, []),
    "extra_special_tokens": (5, {"x": 7}, ["a", 5]),
    "bos_token": (5, {}, {"content": 5}, "new"),
    "version": ("2.0", 5),
}
"""Values likelier to do harm than junk, by field; a missing field is added."""


def spoil_field(file: Path, rng: random.Random) -> str:
    """Change a field at the top of the file, or a part of one deeper down."""
    content = json.loads(file.read_text())
    names = [*_FIELDS, *content] if file.name.startswith("config") else [*content, *_FIELDS][:60]
    name = rng.choice(names)
    fault = rng.random()
    if fault < 0.12 and name in content:
        del content[name]
        how = "removed"
    elif fault < 0.3 and isinstance(content.get(name), dict | list) and content[name]:
        how = f"inner {_spoil_inside(content[name], rng)!r:.60}"
    else:
        junk = JUNK if name not in _FIELDS or rng.random() < 0.3 else _FIELDS[name]
        content[name] = rng.choice(junk)
        how = f"= {content[name]!r:.60}"
    file.write_text(json.dumps(content))
    return f"{file.name}: {name} {how}"


def _spoil_inside(value: Any, rng: random.Random) -> object:
    """Put junk somewhere below `value`, the deeper the rarer. Returns the junk."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = rng.choice(list(keys))
    inner = value[key]
    if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
        return _spoil_inside(inner, rng)
    value[key] = rng.choice(JUNK)
    return value[key]


def spoil_text(file: Path, rng: random.Random) -> str:
    """Make it another text, mostly no JSON."""
    text = file.read_bytes()
    at = rng.randrange(len(text))
    how, spoilt = rng.choice(_texts(text, at, rng))()
    file.write_bytes(spoilt)
    return f"{file.name}: {how}"


def _texts(
    text: bytes, at: int, rng: random.Random
) -> list[Callable[[], tuple[str, bytes]]]:  # fmt: skip
    flipped = text[:at] + bytes((text[at] ^ 1 << rng.randrange(8),)) + text[at + 1 :]
    inside = text.rstrip().removesuffix(b"}")
    deep = rng.choice((70, 120, 300, 900, 5000))
    return [
        lambda: (f"cut at {at}", text[:at]),
        lambda: (f"bit flipped at {at}", flipped),
        lambda: ("empty", b""),
        lambda: ("100,000 brackets", b"[" * 100_000),
        lambda: ("100,000 objects", b'{"a":' * 100_000),
        lambda: (f"{deep} levels", inside + b',"x":' + b"[" * deep + b"]" * deep + b"}"),
        lambda: ("UTF-16", text.decode().encode("utf-16")),
        lambda: ("byte order mark", b"\xef\xbb\xbf" + text),
        lambda: ("number of 5,000 digits", inside + b',"num_hidden_layers":' + b"9" * 5000 + b"}"),
        lambda: ("field twice", inside + b',"model_type":"gpt2","vocab_size":7}'),
        lambda: ("zeros", bytes(len(text))),
        lambda: ("random bytes", rng.randbytes(300)),
        lambda: ("a list", b"[1, 2]"),
        lambda: ("a number", b"5"),
        lambda: ("null", b"null"),
        lambda: ("an empty object", b"{}"),
        lambda: ("9 MB of objects", inside + b',"x":[' + b"{}," * 3_000_000 + b"{}]}"),
    ]
