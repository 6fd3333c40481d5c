"""A proposal: one option of the watched server, with its price, its gain and the evidence."""

from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

Option = Literal[
    "gpu_memory_utilization",
    "num_gpu_blocks_override",
    "kv_cache_memory_bytes",
    "max_num_seqs",
    "max_num_batched_tokens",
    "watermark",
    "prefix_cache_retention_interval",
    "block_size",
    "swap_space",
    "kv_offloading_size",
    "mem_fraction_static",
    "max_total_tokens",
    "max_running_requests",
    "chunked_prefill_size",
    "page_size",
    "schedule_conservativeness",
    "hicache_size",
    "replicas",
]
"""The server's own options, and the number of its replicas. First vLLM's, which are ours as well,
then SGLang's."""
OPTIONS: tuple[Option, ...] = get_args(Option)
Confidence = Literal["high", "medium", "low"]
Bound = Literal["about", "at most", "at least"]
"""The kind of a predicted number; none is exact, since another setting changes who runs when."""
Standing = Literal["not needed", "not known", "blocked"]
"""not known: it could not be judged. blocked: it would bring something, but a fact or room that it
needs is missing."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a proposal; negative values are given back. None: not known."""

    pool_blocks: int = 0
    """Blocks by which the pool grows."""
    memory_bytes: int | None = None
    """Additional bytes on the device or host with the least room."""
    room: str = ""
    """Name of that device or host: `GPU 0`, or `host`; empty: not known."""
    headroom_left_bytes: int | None = None
    """Bytes left there beyond the largest step afterwards."""
    text: str = ""
    """Other costs; a sentence, or empty."""


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Benefit under the same load; None: not affected, or not known."""

    hit_ratio_from: float | None = None
    """Blocks hit / full blocks looked up, over the observed window."""
    hit_ratio_to: float | None = None
    saved_tokens_per_second: float = 0.0
    """Prompt tokens that are no longer computed: more hits, less recomputing."""
    saved_is: Bound = "about"
    """The kind of number that the predicted hits and saved tokens are."""
    recomputed_tokens_per_second_from: float | None = None
    """Tokens recomputed after preemptions of the kind that it prevents."""
    recomputed_tokens_per_second_to: float | None = None
    errors_per_second_from: float | None = None
    """Steps that run out of device memory."""
    errors_per_second_to: float | None = None
    waiting_sequences_from: float | None = None
    """Mean number of waiting sequences; how many fewer there will be is not known."""
    freed_bytes: int | None = None
    """Device or host memory that the pool gives back."""
    step_bytes_to: int | None = None
    """Activations of the largest step."""
    step_seconds_from: float | None = None
    """Duration of a step whose tokens are used up."""
    step_seconds_to: float | None = None


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    option: Option
    flag: str
    """The flag as the server spells it; empty for `replicas`."""
    current: float | None
    """None: not set, or not known; the proposed value is known in any case."""
    proposed: float
    text: str
    """The whole proposal in one line."""
    why: str
    """The observation that calls for it; one sentence."""
    price: Price
    gain: Gain
    confidence: Confidence
    because: str
    """The reason for the confidence; one sentence."""
    assumes: list[str]
    """Assumptions, as sentences; if one is wrong, so are the numbers."""


@dataclass(frozen=True, slots=True)
class DeclinedProposal:
    """A kind of proposal that is not made."""

    reason: str
    """One sentence for people."""
    standing: Standing = "not needed"


Verdict = Proposal | DeclinedProposal
