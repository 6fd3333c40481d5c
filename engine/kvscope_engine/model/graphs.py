"""Decode steps of fixed sizes, captured as CUDA graphs: one launch instead of hundreds.

A step in which every row has one token is padded to the next bucket (1, 2, 4, 8, … rows) and
replayed. Without CUDA the same padded step runs without a graph.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kvscope_engine.model.attention.backend import StaticBackend, StepAttention
from kvscope_engine.model.attention.interface import PagedStep
from kvscope_engine.model.decode_inputs import DecodeBuffers, DecodeInputs
from kvscope_engine.model.errors import first_line
from kvscope_engine.model.forward import Forward, step_logits
from kvscope_engine.model.kv_cache import KVCache
from kvscope_engine.step_plan import ScheduledSequence

logger = logging.getLogger(__name__)

_WARM_UPS = 2
"""Runs before capture: the first one compiles kernels and makes libraries allocate workspaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticDecoding:
    """The decode steps that get a fixed size."""

    attention: StaticBackend
    max_num_seqs: int
    max_model_len: int

    @property
    def buckets(self) -> list[int]:
        """Rows of the steps, ascending: powers of two, and max_num_seqs itself."""
        powers = (1 << exponent for exponent in range(self.max_num_seqs.bit_length()))
        return sorted({*powers, self.max_num_seqs})


@dataclass(frozen=True, slots=True)
class _StaticBatch:
    """A `ForwardBatch`. The kernels never read unwritten slots: nothing has to be opened."""

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    logit_positions: Tensor
    opened: list[int] = field(default_factory=list)


class DecodeSteps:
    """The padded steps of one model and cache. One thread; a step's logits last until the next."""

    def __init__(
        self, forward: Forward, cache: KVCache, settings: StaticDecoding, scratch: int
    ) -> None:
        """scratch: a block of the cache that no sequence gets."""
        block_size = cache.layout.block_size
        buffers = DecodeBuffers(
            max_rows=settings.max_num_seqs,
            max_blocks=-(-settings.max_model_len // block_size),
            block_size=block_size,
            scratch=scratch,
            device=cache.device,
        )
        self._device = cache.device
        self._steps: dict[int, _DecodeStep] = {}
        for bucket in settings.buckets:
            inputs = buffers.rows(bucket)
            attention = settings.attention(
                cache, inputs.tables, inputs.contexts, settings.max_model_len
            )
            self._steps[bucket] = _DecodeStep(forward, cache, inputs, attention)

    def logits(self, rows: list[ScheduledSequence]) -> Tensor | None:
        """(S, V) float32 of the S sampling rows, in order; None: no fixed-size step fits.

        Writes the rows' KV, and nothing else that a sequence reads.
        """
        if any(row.count != 1 for row in rows):
            return None
        step = next((step for size, step in self._steps.items() if size >= len(rows)), None)
        if step is None:
            return None
        logits = step.run(rows)
        sampling = [index for index, row in enumerate(rows) if row.samples]
        if len(sampling) == len(rows):
            return logits[: len(rows)]
        return logits[torch.tensor(sampling, dtype=torch.int64, device=logits.device)]

    def capture(self) -> bool:
        """Capture every step; if that is impossible, the reason is logged and none is captured.

        Takes about as long as three steps of each size, plus the compilation of the kernels.
        """
        started = time.monotonic()
        device = self._device
        # After torch's notes on CUDA graphs: warm up on a side stream, then capture there, all into
        # one pool. Sharing it is safe although graphs are replayed in any order: one runs at a
        # time, and its logits are read before the next. The largest comes first, so that the
        # smaller ones fit into its memory.
        pool = torch.cuda.graph_pool_handle()
        make_stream: Any = torch.cuda.Stream  # untyped
        stream, outer = make_stream(device), torch.cuda.current_stream(device)
        try:
            for step in reversed(self._steps.values()):
                step.capture(pool, stream, outer)
        except RuntimeError as error:  # a layer that waits for the device, as some experts do
            self.release()
            logger.warning(
                "decode steps are launched one kernel at a time, they cannot be captured as CUDA "
                "graphs: %s",
                first_line(error),
            )
            return False
        finally:
            torch.cuda.set_stream(outer)  # torch leaves a failed capture on its own stream
        seconds = time.monotonic() - started
        logger.info("captured %d decode steps as CUDA graphs, %.1f s", len(self._steps), seconds)
        return True

    def release(self) -> None:
        """Drop the graphs and their memory; steps run without them again."""
        for step in self._steps.values():
            step.release()


class _DecodeStep:
    """The step of one bucket."""

    def __init__(
        self,
        forward: Forward,
        cache: KVCache,
        inputs: DecodeInputs,
        attention: StepAttention,
    ) -> None:
        self._compute = forward
        self._cache = cache
        self._inputs = inputs
        self._attention = attention
        self._every_row = torch.arange(inputs.num_rows, device=cache.device)
        self._replay: Callable[[], Tensor] | None = None

    def run(self, rows: list[ScheduledSequence]) -> Tensor:
        """(bucket, V) float32; the padding's rows come last."""
        self._inputs.fill(rows)
        return self._forward() if self._replay is None else self._replay()

    def capture(self, pool: Any, stream: torch.cuda.Stream, outer: torch.cuda.Stream) -> None:
        """pool: torch's handle of the graphs' memory. outer: the stream that steps run on."""
        self._inputs.fill([])
        stream.wait_stream(outer)
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._forward()
        outer.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # thread_local: what other threads do with the device meanwhile is not an error of the
        # capture.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            logits = self._forward()

        def replay() -> Tensor:
            graph.replay()
            return logits

        self._replay = replay

    def release(self) -> None:
        self._replay = None

    def _forward(self) -> Tensor:
        """Everything on the device from the inputs to the logits."""
        inputs = self._inputs
        batch = _StaticBatch(
            inputs.token_ids(), inputs.positions(), inputs.slots(), self._every_row
        )
        return step_logits(self._compute, PagedStep(self._cache, batch, self._attention))
