"""Spoilt checkpoints: each is refused in one line, or served as transformers itself would."""

import os
import random
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from engine.build import build_engine
from engine.config import CacheConfig, EngineConfig, ModelConfig
from engine.hashing import PrefixHasher
from engine.model.errors import CheckpointError
from engine.model.loader import load_model
from engine.model.runner import ModelRunner
from engine.request import SamplingParams, Sequence
from engine.sizing import PoolSizeError
from engine.step_plan import ScheduledSequence, StepPlan
from kvscope_events.bus import EventBus
from tests.support.checkpoints import make_checkpoint
from tools.fuzz.spoilt_json import spoil_field, spoil_text
from tools.fuzz.spoilt_weights import INDEX, spoil_bytes, spoil_header, spoil_index

MAX_SECONDS = 20.0
"""Processor time of one variant; a sound one takes 0.2 s."""
_PROMPT = "The cache of a server is finite, and so is the patience of its clients."
_NEW_TOKENS = 6
_BLOCK_SIZE = 4


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

    def spoilt(self, folder: Path, rng: random.Random) -> str:
        """Write a variant to `folder`, which must not exist. Returns what is wrong with it."""
        template = rng.choice(self.folders)
        shutil.copytree(template, folder)
        done = [rng.choice(_FAULTS)(folder, rng) for _ in range(1 + (rng.random() < 0.15))]
        return f"{template.name}, " + ", ".join(done)


def judge(folder: Path) -> Verdict:
    """Load the checkpoint as `kvscope serve` does. Where it loads, compare what it says."""
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


def _json_file(folder: Path, rng: random.Random) -> Path:
    names = ("config.json",) * 8 + ("tokenizer.json",) * 3 + ("tokenizer_config.json",) * 2
    file = folder / rng.choice((*names, "generation_config.json"))
    return file if file.is_file() else folder / "config.json"


def _weights(folder: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(file for file in folder.glob("*.safetensors") if file.is_file()))


def _in_the_way(folder: Path, rng: random.Random) -> str:
    """Replace a file by something else, or remove it."""
    file = rng.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    file.unlink()
    how = rng.choice(("gone", "folder", "pipe", "loop", "endless"))
    if how == "folder":
        file.mkdir()
    elif how == "pipe":
        os.mkfifo(file)
    elif how == "loop":
        file.symlink_to(file.name)
    elif how == "endless":
        file.symlink_to("/dev/zero")
    return f"{file.name}: {how}"


def _index(folder: Path, rng: random.Random) -> str:
    if (folder / INDEX).is_file():
        return spoil_index(folder, rng)
    (folder / INDEX).write_text(rng.choice(("{}", "[", '{"weight_map": {"a": "b.safetensors"}}')))
    return "an index that nobody needs"


def _field(folder: Path, rng: random.Random) -> str:
    return spoil_field(_json_file(folder, rng), rng)


def _text(folder: Path, rng: random.Random) -> str:
    return spoil_text(_json_file(folder, rng), rng)


def _header(folder: Path, rng: random.Random) -> str:
    return spoil_header(_weights(folder, rng), rng)


def _bytes(folder: Path, rng: random.Random) -> str:
    return spoil_bytes(_weights(folder, rng), rng)


def _safely(fault: "Fault") -> "Fault":
    """A second fault may find nothing left to spoil."""

    def spoil(folder: Path, rng: random.Random) -> str:
        if not (folder / "config.json").is_file():  # nothing to add to that, nor to read
            return "nothing more"
        try:
            return fault(folder, rng)
        except (ValueError, OSError, TypeError, LookupError, AttributeError, RecursionError):
            return "nothing more"

    return spoil


Fault = Callable[[Path, random.Random], str]
_FAULTS: tuple[Fault, ...] = tuple(
    _safely(fault)
    for fault, share in (
        *((_field, 9), (_text, 3), (_header, 4), (_bytes, 2), (_index, 1), (_in_the_way, 1)),
    )
    for _ in range(share)
)
