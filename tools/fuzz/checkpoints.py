"""Spoilt checkpoints: each is refused in one line, or served as transformers itself would."""

import json
import os
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from kvscope_engine.build import build_engine
from kvscope_engine.config import CacheConfig, EngineConfig, ModelConfig
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.errors import CheckpointError
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.sizing import PoolSizeError
from kvscope_engine.step_plan import ScheduledSequence, StepPlan
from kvscope_events.bus import EventBus
from tests.support.checkpoints import make_checkpoint
from tools.fuzz.inputs import changed
from tools.fuzz.target import Codec

INDEX = "model.safetensors.index.json"
MAX_SECONDS = 20.0
"""Processor time of one variant; a sound one takes 0.2 s."""
_PROMPT = "The cache of a server is finite, and so is the patience of its clients."
_NEW_TOKENS = 6
_BLOCK_SIZE = 4
_LENGTH_BYTES = 8
_JSON = Codec(decode=json.loads, encode=lambda value: json.dumps(value).encode())
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
    "model_max_length": (-1, 0, 10**30, "x"),
    "chat_template": (5, {}, "{% if %}", [{"name": "x"}]),
    "added_tokens_decoder": ({"x": {}}, {"5": 7}, {"-1": {"content": "x"}}, []),
}
"""Values likelier to do harm than others, by field; a missing field is added."""
_WHOLE_FILES: tuple[Callable[[bytes], bytes], ...] = (
    *(lambda text, one=one: one for one in (b"", b"[1, 2]", b"5", b"null", b"{}")),
    *(lambda text, one=one: one * 100_000 for one in (b"[", b'{"a":')),
    lambda text: b"\xef\xbb\xbf" + text,
    lambda text: bytes(len(text)),
    lambda text: text[: len(text) // 2] + b"\xff" * (len(text) - len(text) // 2),
    lambda text: text.rstrip().removesuffix(b"}") + b',"num_hidden_layers":' + b"9" * 5000 + b"}",
    lambda text: text.rstrip().removesuffix(b"}") + b',"x":[' + b"{}," * 3_000_000 + b"{}]}",
    lambda text: (60 * 10**9).to_bytes(8, "little") + text[8:],
    lambda text: b"version https://git-lfs.github.com/spec/v1\n",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one variant."""

    outcome: str
    """`served`, `refused`, or what must not be: `wrong`, `raised`, `slow`."""
    detail: str

    @property
    def good(self) -> bool:
        return self.outcome in ("served", "refused")


class Templates:
    """Sound checkpoints to spoil copies of, in a folder that the caller removes."""

    def __init__(self, folder: Path) -> None:
        self.folders = [
            make_checkpoint(folder / "llama", "llama"),
            make_checkpoint(folder / "sharded", "llama", max_shard_size="200KB"),
            make_checkpoint(folder / "tied", "llama", tie_word_embeddings=True),
            make_checkpoint(folder / "experts", "qwen3_moe"),
            make_checkpoint(folder / "sliding", "gemma2"),
        ]

    def spoilt(self, folder: Path, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
        """Write a variant to `folder`, which must not exist. Returns what is wrong with it."""
        template = draw(st.sampled_from(self.folders))
        shutil.copytree(template, folder)
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        done = []
        for _ in range(draw(st.sampled_from((1, 1, 1, 1, 1, 1, 2)))):
            name = draw(st.sampled_from(["config.json"] * len(names) + names))
            how = draw(st.sampled_from(["changed"] * 7 + ["whole", "in the way"]))
            _spoil(folder / name, how, draw)
            done.append(f"{name} {how}")
        return f"{template.name}, " + ", ".join(done)


def _spoil(file: Path, how: str, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    if not file.is_file():
        return  # a first fault has left nothing to spoil
    if how == "whole":
        file.write_bytes(draw(st.sampled_from(_WHOLE_FILES))(file.read_bytes()))
    elif how == "in the way":
        file.unlink()
        there = draw(st.sampled_from(("nothing", "folder", "pipe", "loop", "endless")))
        if there == "folder":
            file.mkdir()
        elif there == "pipe":
            os.mkfifo(file)
        elif there != "nothing":
            file.symlink_to(file.name if there == "loop" else "/dev/zero")
    elif file.suffix == ".safetensors":
        file.write_bytes(_weights(file.read_bytes(), draw))
    else:
        likely = _FIELDS if "config" in file.name else {}
        file.write_bytes(draw(changed([file.read_bytes()], _JSON, (), likely)))


def _weights(content: bytes, draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """Another header, or other bytes behind it."""
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    header, data = content[_LENGTH_BYTES:start], content[start:]
    if draw(st.booleans()):
        header = draw(changed([header], _JSON, (b'"data_offsets"', b'"shape"', b'"I32"', b"-1")))
    else:
        fill = draw(st.sampled_from((b"", b"\x00", b"\xff", b"\x7f\xc0")))
        at = draw(st.integers(0, len(data)))
        data = data[:at] + (fill * len(data))[: len(data) - at]
    return len(header).to_bytes(_LENGTH_BYTES, "little") + header + data


def judge(folder: Path) -> Verdict:
    """Load the checkpoint as `kvscope engine serve` does. Where it loads, compare what it says."""
    started = time.process_time()
    settings = EngineConfig(
        model=ModelConfig(model=str(folder), device="cpu"),
        cache=CacheConfig(num_gpu_blocks_override=64),
        max_model_len=128,
    )
    try:
        build_engine(settings, EventBus())
        verdict = _compared(folder)
    except (CheckpointError, PoolSizeError, ValueError) as error:
        message = str(error)
        lines = len(message.splitlines())
        if lines != 1 or len(message) > 2000 or not message.isprintable():
            return Verdict("wrong", f"an error of {lines} lines: {message!r:.500}")
        if type(error) is ValueError and not message.startswith("--max-model-len"):
            return Verdict("raised", traceback.format_exc(limit=-3))
        verdict = Verdict("refused", message.removeprefix(f"{folder}: "))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return Verdict("raised", traceback.format_exc(limit=-3))
    seconds = time.process_time() - started
    return Verdict("slow", f"{seconds:.1f} s") if seconds > MAX_SECONDS else verdict


def _compared(folder: Path) -> Verdict:
    """Prompt and continuation of the engine's parts beside those of transformers alone."""
    loaded = load_model(ModelConfig(model=str(folder), device="cpu"))
    prompt = loaded.tokenizer.encode(_PROMPT)
    make_tokenizer: Any = AutoTokenizer
    tokenizer = make_tokenizer.from_pretrained(folder)
    tokenizer.model_max_length = len(_PROMPT)  # compared with a text that is there by some faults
    theirs = tokenizer(_PROMPT, truncation=False)["input_ids"]
    if prompt != theirs:
        return Verdict("wrong", f"prompt {prompt[:9]} instead of {theirs[:9]}")
    runner = ModelRunner(loaded.model, num_blocks=64, block_size=_BLOCK_SIZE)
    if not prompt or max(prompt) >= runner.vocab_size:
        return Verdict("served", "every prompt is refused: its tokens are outside the vocabulary")
    sequence = Sequence(
        sequence_id=1,
        request_id=1,
        tokens=list(prompt),
        prompt_length=len(prompt),
        sampling=SamplingParams(max_tokens=_NEW_TOKENS),
        hasher=PrefixHasher(b"", _BLOCK_SIZE),
        block_table=list(range(64)),
    )
    start = 0
    for _ in range(_NEW_TOKENS):
        row = ScheduledSequence(sequence, start, len(sequence.tokens) - start)
        (token,) = runner.execute(StepPlan([row]))
        assert token is not None, "a row that reaches its last token samples"
        start = len(sequence.tokens)
        sequence.tokens.append(token.token_id)
    expected = transformers_tokens(folder, prompt, _NEW_TOKENS)
    got = sequence.tokens[len(prompt) :]
    if got != expected:
        return Verdict("wrong", f"{got} instead of {expected}")
    return Verdict("served", str(got))


def transformers_tokens(folder: Path, prompt: list[int], count: int) -> list[int]:
    """The greedy continuation by transformers alone; it needs no generation_config.json, and raises
    for one that is spoilt."""
    make_model: Any = AutoModelForCausalLM
    make_generation_config: Any = GenerationConfig
    model = make_model.from_pretrained(
        folder,
        dtype="auto",
        attn_implementation="eager",
        generation_config=make_generation_config(),
    ).eval()
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
            tokens.append(int(logits.float().argmax()))
    return tokens[len(prompt) :]
