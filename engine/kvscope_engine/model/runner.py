"""One step of the model: compute the KV of the scheduled tokens, sample where a row is complete."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.attention.interface import PagedStep
from kvscope_engine.model.execution import Execution
from kvscope_engine.model.forward import forward_of, step_logits
from kvscope_engine.model.graphs import DecodeSteps
from kvscope_engine.model.kv_cache import KVCache, KVLayout, kv_layout
from kvscope_engine.model.memory_report import MemoryReporter, weight_bytes
from kvscope_engine.model.sampler import Sampler
from kvscope_engine.model.step_batch import StepBatch
from kvscope_engine.model.torch_errors import device_out_of_memory
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import SampledToken, ScheduledSequence, StepPlan
from kvscope_events.events import DeviceMemorySampled

_SAMPLING = SamplingParams(max_tokens=1, temperature=1.0, top_p=0.9)


def trial_rows(block_size: int) -> list[ScheduledSequence]:
    """A prefill and a first token, each in a block of its own: row i has block i."""
    counts = (min(3, block_size), 1)
    return [
        ScheduledSequence(_sequence(count, block, block_size), 0, count)
        for block, count in enumerate(counts)
    ]


def _sequence(length: int, block: int, block_size: int) -> Sequence:
    return Sequence(
        sequence_id=block,
        request_id=0,
        tokens=[0] * length,
        prompt_length=length,
        sampling=_SAMPLING,
        hasher=PrefixHasher(b"", block_size),
        block_table=[block],
    )


_PLAIN = Execution()


class ModelRunner:
    """A model loaded for paged attention, with its KV tensors.

    One thread at a time. The model's device and dtype are those of the KV tensors.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        num_blocks: int,
        block_size: int,
        seed: int = 0,
        profiled_peak: int = 0,
        execution: Execution = _PLAIN,
    ) -> None:
        """Allocates num_blocks * bytes_per_block, plus one block for steps of fixed sizes.

        seed: for calls without one. profiled_peak: bytes that start-up's largest step took.
        """
        self._model = model
        self._forward = forward_of(model, kernels=execution.kernels)
        self._attention = execution.attention
        self.layout: KVLayout = kv_layout(model.config, block_size, model.dtype, execution.stored)
        static = execution.static
        scratch = 0 if static is None else 1
        self.cache = KVCache(self.layout, num_blocks + scratch, model.device)
        self._static: DecodeSteps | None = None
        if static is not None:
            self._static = DecodeSteps(self._forward, self.cache, static, scratch=num_blocks)
        self._sampler = Sampler(seed)
        self._memory = MemoryReporter(
            model.device,
            weights_bytes=weight_bytes(model),
            kv_pool_bytes=num_blocks * self.layout.bytes_per_block,
            profiled_peak=profiled_peak,
        )

    @property
    def vocab_size(self) -> int:
        """Columns of the logits; may exceed the tokenizer's vocabulary."""
        size: int = self._model.config.get_text_config(decoder=True).vocab_size
        return size

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        """Write the rows' KV and return each row's next token, None where it does not sample.

        Every row's block table must cover its tokens, and no two rows may write the same slot.
        Forks stand behind the row that they draw with.

        Raises DeviceOutOfMemoryError; the step can then be tried again, smaller.
        """
        rows = plan.rows
        with device_out_of_memory():
            # A fork draws from its leader's logits.
            computed = [row for row in rows if row.count] if plan.num_forks else rows
            logits = self.forward_logits(computed)
            if plan.num_forks:
                logits = logits[_lines(rows)]
            tokens = self._sampler.sample(logits, [row.sequence for row in rows if row.samples])
        sampled = iter(tokens)
        return [next(sampled) if row.samples else None for row in rows]

    def self_test(self) -> None:
        """A tiny prefill and a first token, in a cache of their own.

        Raises whatever every step would raise, or DeviceOutOfMemoryError.
        """
        rows = trial_rows(self.layout.block_size)
        with device_out_of_memory():
            cache = KVCache(self.layout, len(rows), self.cache.device)
            self._sampler.sample(self._logits(rows, cache), [row.sequence for row in rows])

    def drop_caches(self) -> None:
        """Return memory that torch holds but does not use to the device."""
        if self.cache.device.type == "cuda":
            torch.cuda.empty_cache()

    def capture_graphs(self) -> bool:
        """Capture the static decode steps as CUDA graphs; False: that is not possible."""
        assert self._static is not None, "the runner was made without static steps"
        captured = self._static.capture()
        if not captured:
            self._static = None  # padding is pointless without graphs
        return captured

    def sample_memory(self) -> DeviceMemorySampled:
        """The present use of the device's memory, as far as this process knows."""
        return self._memory.sample()

    def forward_logits(self, rows: list[ScheduledSequence]) -> Tensor:
        """Write the rows' KV. Returns (S, vocab_size) float32, of the S rows that sample, in order.

        They last until the next step.
        """
        if self._static is not None:
            logits = self._static.logits(rows)
            if logits is not None:
                return logits
        return self._logits(rows, self.cache)

    def _logits(self, rows: list[ScheduledSequence], cache: KVCache) -> Tensor:
        batch = StepBatch(rows, self.layout, cache.device)
        step = PagedStep(cache, batch, self._attention(batch, cache))
        return step_logits(self._forward, step)


def _lines(rows: list[ScheduledSequence]) -> list[int]:
    """For each sampling row, the line of logits that it draws from: a fork uses its leader's."""
    lines, line = [], -1
    for row in rows:
        if row.samples:
            line += row.count > 0
            lines.append(line)
    return lines
