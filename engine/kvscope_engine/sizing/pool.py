"""The pool's size at start-up: configured, measured on a device, or a share of a CPU's free memory.

The terms of a measured pool add up to the device's total:

    total = in_use_at_start + weights + buffers + activation_peak + non_torch + kv_pool + unclaimed

and `requested` is the budget for all of them except the first and the last.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kvscope_engine.config import CacheConfig, SchedulerConfig
from kvscope_engine.sizing.memory import (
    CPU_MEMORY_SHARE,
    MainMemory,
    MeasuredDevice,
    PoolSizeError,
    cpu_pool_blocks,
    kv_budget,
    requested_bytes,
)
from kvscope_engine.sizing.units import format_bytes
from kvscope_events.vocabulary import SizingTerm

logger = logging.getLogger(__name__)

Terms = dict[SizingTerm, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes of the loaded model, and of one block of its KV cache."""

    weights: int
    """Bytes of its parameters, tied ones once."""
    buffers: int
    """Bytes of its other tensors: tables of rotary angles, mostly."""
    bytes_per_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """The size of the pool, and how it was found."""

    num_blocks: int
    block_size: int
    bytes_per_block: int
    max_model_len: int
    rule: str
    """The origin of the size, for logs and errors."""
    terms: Terms = field(default_factory=dict)
    """Bytes; empty: the size was configured."""
    activation_peak: int = 0
    """Bytes that the largest step took beyond weights and pool; 0: not measured, on a CPU."""

    @property
    def tokens(self) -> int:
        return self.num_blocks * self.block_size

    @property
    def measured(self) -> bool:
        """Whether the size is a share of the device's memory, minus what a test run took."""
        return "activation_peak" in self.terms

    @property
    def full_sequences(self) -> float:
        """Sequences of max_model_len tokens that fit at once."""
        return self.num_blocks / -(-self.max_model_len // self.block_size)

    def table(self) -> str:
        """The pool in one line, then every term on a line of its own."""
        rows = [
            f"  {term:<16}{size:>18,} B  {format_bytes(size)}" for term, size in self.terms.items()
        ]
        summary = (
            f"KV pool: {self.num_blocks} blocks of {self.block_size} tokens, "
            f"{format_bytes(self.num_blocks * self.bytes_per_block)} ({self.rule}); {self.tokens} "
            f"tokens, {self.full_sequences:.1f} sequences of {self.max_model_len}"
        )
        return "\n".join([summary, *rows])


class PoolSizer:
    """Sizes one pool. Create it before the model is loaded: memory in use by then is not ours."""

    def __init__(self, cache: CacheConfig, memory: MeasuredDevice | MainMemory) -> None:
        """Raises PoolSizeError if a device has less free memory than the share requires."""
        self._cache = cache
        self._memory = memory
        self._total = memory.total()
        self._free_at_start = memory.free()
        self._requested = requested_bytes(self._total, cache.gpu_memory_utilization)
        configured = cache.num_gpu_blocks_override or cache.kv_cache_memory_bytes
        if isinstance(memory, MainMemory) or configured or self._free_at_start >= self._requested:
            return
        raise PoolSizeError(
            f"--gpu-memory-utilization {cache.gpu_memory_utilization} asks for "
            f"{format_bytes(self._requested)} of the device's {format_bytes(self._total)}, but "
            f"{format_bytes(self._free_at_start)} are free: end what else runs there, or ask for "
            f"at most {int(self._free_at_start / self._total * 100) / 100}"
        )

    def size(
        self,
        scheduler: SchedulerConfig,
        footprint: Footprint,
        measure: Callable[[int], int],
        measure_graphs: Callable[[], int] = lambda: 0,
    ) -> PoolSize:
        """Size the pool and log every term.

        measure: runs the largest batches that a pool of this many bytes allows, leaves nothing
        behind, and returns their peak bytes beyond what was allocated before; called only on a
        device.

        measure_graphs: additional bytes for CUDA graphs; called after it, only on a device.

        Raises PoolSizeError if there is no room for one sequence of max_model_len tokens.
        """
        cache, bytes_per_block = self._cache, footprint.bytes_per_block
        needed = -(-scheduler.max_model_len // cache.block_size)
        terms: Terms = {}
        configured = self._configured(bytes_per_block)
        peak = graphs = 0
        if not isinstance(self._memory, MainMemory):
            # For a configured size as well: the headroom is compared with a step's peak.
            free = self._memory.free()
            peak = measure(
                free if configured is None else min(configured[0] * bytes_per_block, free)
            )
            self._memory.trim()
            graphs = measure_graphs()
        if configured is not None:
            blocks, rule = configured
        elif isinstance(self._memory, MainMemory):
            useful = scheduler.max_num_seqs * needed
            free = self._memory.free()
            blocks = cpu_pool_blocks(free, bytes_per_block, useful)
            rule = f"{CPU_MEMORY_SHARE:.0%} of {format_bytes(free)} free, at most {useful} of use"
            terms = self._host_terms(footprint, free, blocks)
        else:
            terms = self._device_terms(footprint, self._memory, peak, graphs)
            blocks = terms["kv_pool"] // bytes_per_block
            rule = f"measured, {cache.gpu_memory_utilization} of {format_bytes(self._total)}"
        size = PoolSize(
            num_blocks=blocks,
            block_size=cache.block_size,
            bytes_per_block=bytes_per_block,
            max_model_len=scheduler.max_model_len,
            rule=rule,
            terms=terms,
            activation_peak=peak,
        )
        self._check(size, needed)
        logger.info("%s", size.table())
        self._warn_if_tight(size, graphs)
        return size

    def _configured(self, bytes_per_block: int) -> tuple[int, str] | None:
        """Blocks, and the option that sets them; None: neither option is given."""
        blocks, size = self._cache.num_gpu_blocks_override, self._cache.kv_cache_memory_bytes
        if blocks is not None:
            return blocks, "--num-gpu-blocks-override"
        if size is not None:
            return size // bytes_per_block, f"--kv-cache-memory-bytes {size}"
        return None

    def _host_terms(self, footprint: Footprint, free: int, blocks: int) -> Terms:
        pool = blocks * footprint.bytes_per_block
        in_use = self._total - self._free_at_start
        return {
            "total": self._total,
            "requested": int(free * CPU_MEMORY_SHARE),
            "in_use_at_start": in_use,
            "weights": footprint.weights,
            "buffers": footprint.buffers,
            "kv_pool": pool,
            "unclaimed": self._total - in_use - footprint.weights - footprint.buffers - pool,
        }

    def _device_terms(
        self, footprint: Footprint, memory: MeasuredDevice, peak: int, graphs: int
    ) -> Terms:
        weights, buffers = footprint.weights, footprint.buffers
        taken = self._free_at_start - memory.free()
        non_torch = taken - weights - buffers
        if non_torch < 0:
            raise PoolSizeError(
                f"loading {format_bytes(weights + buffers)} took {format_bytes(taken)} of the free "
                "memory: something else gave memory back meanwhile; start again when it has ended"
            )
        non_torch += graphs  # not captured yet; torch cannot release their memory either
        left = kv_budget(self._requested, weights + buffers, peak, non_torch)
        pool = max(0, left) // footprint.bytes_per_block * footprint.bytes_per_block
        in_use = self._total - self._free_at_start
        claimed = in_use + weights + buffers + peak + non_torch + pool
        return {
            "total": self._total,
            "requested": self._requested,
            "in_use_at_start": in_use,
            "weights": weights,
            "buffers": buffers,
            "activation_peak": peak,
            "non_torch": non_torch,
            "kv_pool": pool,
            "unclaimed": self._total - claimed,
        }

    def _warn_if_tight(self, size: PoolSize, graphs: int) -> None:
        """Only a configured pool can be too large; a measured one leaves room for any step."""
        left = self._memory.free() - size.num_blocks * size.bytes_per_block - graphs
        if left < size.activation_peak:
            logger.warning(
                "the pool leaves %s for steps that take up to %s: large ones will run out of "
                "memory; give the pool less, or lower --max-num-batched-tokens or --max-num-seqs",
                format_bytes(left),
                format_bytes(size.activation_peak),
            )

    def _check(self, size: PoolSize, needed: int) -> None:
        free = self._memory.free()
        wanted = size.num_blocks * size.bytes_per_block
        if wanted > free:
            raise PoolSizeError(
                f"a pool of {size.num_blocks} blocks ({size.rule}; {size.bytes_per_block} bytes "
                f"each) takes {format_bytes(wanted)}, but {format_bytes(free)} are free: "
                "give it less"
            )
        if size.num_blocks >= needed:
            return
        remedy = f"give the pool {needed * size.bytes_per_block} bytes or lower --max-model-len"
        raise PoolSizeError(
            f"a pool of {size.num_blocks} blocks ({size.rule}; {size.bytes_per_block} bytes each) "
            f"holds {size.tokens} tokens, but one sequence of max_model_len {size.max_model_len} "
            f"needs {needed} blocks: {remedy}" + _in_words(size.terms)
        )


def _in_words(terms: Terms) -> str:
    """The terms, to append to an error; empty if the size was configured."""
    if not terms:
        return ""
    return "; " + ", ".join(f"{term} {format_bytes(size)}" for term, size in terms.items())
