"""A plan as rows and as a document, shared by tables, JSON and plots."""

from dataclasses import asdict
from typing import NamedTuple

from kvscope.plan.plan import Plan, Prefill
from kvscope.plan.verdict import Verdict

PREFILLS: tuple[Prefill, ...] = ("chunked", "whole")
_MAX_COLUMNS = 7
_MAX_ROWS = 7


class Cell(NamedTuple):
    """The bytes of a batch: `batch` sequences of `context` tokens."""

    context: int
    batch: int
    nbytes: int
    fits: bool | None
    """None: the size of the pool is not known."""


class Reservation(NamedTuple):
    """Sequences in the pool if each holds `tokens` on average."""

    tokens: int
    naive: int
    """With room for max_model_len reserved for each."""
    paged: int
    """With blocks only for the tokens that they hold."""


def contexts(plan: Plan) -> list[int]:
    """max_model_len and its halves, the shortest first."""
    length = plan.settings.max_model_len
    return sorted({max(1, length >> shift) for shift in range(_MAX_ROWS)})


def batches(plan: Plan) -> list[int]:
    """Powers of two up to the concurrency, thinned out where there are many."""
    most = plan.settings.concurrency
    powers = [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent < most]
    step = -(-len(powers) // (_MAX_COLUMNS - 1)) or 1
    return [*powers[::step], most]


def grid(plan: Plan) -> list[Cell]:
    """Every context with every batch, row by row; the bytes are those of one replica's GPU."""
    blocks, replicas = plan.num_blocks(), plan.settings.parallel.data
    cells = []
    for context in contexts(plan):
        for batch in batches(plan):
            own = -(-batch // replicas)
            fits = None if blocks is None else own * plan.blocks(context) <= blocks
            cells.append(Cell(context, batch, own * plan.sequence_bytes(context), fits))
    return cells


def reservations(plan: Plan) -> list[Reservation]:
    """One row each for an eighth, a quarter, half and all of max_model_len; none without a pool."""
    length = plan.settings.max_model_len
    naive = plan.sequences(length)
    if naive is None:
        return []
    rows = []
    for share in (8, 4, 2, 1):
        tokens = max(1, length // share)
        paged = plan.sequences(tokens)
        assert paged is not None, "the pool's size is known for one length and not for another"
        rows.append(Reservation(tokens, naive, paged))
    return rows


def notes(plan: Plan) -> list[str]:
    """Caveats about the figures."""
    found = list(plan.shape.notes)
    length, most = plan.settings.max_model_len, plan.shape.max_positions
    if most is not None and length > most:
        found.append(f"{length:,} tokens are more than the model's own limit of {most:,}")
    if plan.memory.total is not None and plan.weight_bytes is None:
        found.append("the number of weights is not known, so no pool is sized: give --params")
    elif plan.memory.total is not None and plan.activation_bytes("chunked") is None:
        found.append("activations are not known and counted as 0: give --activation-memory")
    return found


def document(plan: Plan, answer: Verdict | None = None) -> dict[str, object]:
    """The whole plan, for JSON. Bytes everywhere, those of one GPU; null is unknown."""
    shape, settings = plan.shape, plan.settings
    weights = shape.counted or shape.weights
    length = settings.max_model_len
    activations: dict[str, int | None] = {p: plan.activation_bytes(p) for p in PREFILLS}
    return {
        "verdict": None if answer is None else {"text": answer.text, "fits": answer.fits},
        "model": {
            "name": shape.name,
            "attention": shape.attention,
            "layers": shape.num_layers,
            "parameters": None if weights is None else weights.total,
            "active_parameters": None if weights is None or weights.given else weights.active,
        },
        "exact": shape.exact,
        "unread_fields": list(shape.unread),
        "notes": notes(plan),
        "settings": _settings(plan),
        "memory": asdict(plan.memory),
        "groups": [
            {
                "kind": group.page.kind,
                "layers": len(group.pages),
                "block_size": group.page.block_size,
                "window": group.page.window,
                "blocks_per_sequence": group.page.blocks(length, plan.rules),
            }
            for group in plan.groups
        ],
        "bytes": {
            "checkpoint": plan.weight_bytes,
            "weights": None if plan.stage_weights is None else max(plan.stage_weights),
            "per_token": plan.bytes_per_token,
            "per_block": plan.bytes_per_block,
            "per_sequence": plan.sequence_bytes(length),
            "per_batch": settings.concurrency * plan.sequence_bytes(length),
            "state_per_sequence": plan.state_bytes,
        },
        "activations": {
            "source": "estimated" if settings.activations is None else "configured",
            **activations,
        },
        "budget": {prefill: _budget(plan, prefill) for prefill in PREFILLS},
        "pool": _pool(plan),
        "tier": {"bytes": plan.memory.tier, "full_sequences": plan.tier_sequences}
        if plan.memory.tier
        else None,
        "table": [cell._asdict() for cell in grid(plan)],
        "reservation": [row._asdict() for row in reservations(plan)],
    }


def _settings(plan: Plan) -> dict[str, object]:
    settings, parallel = plan.settings, plan.settings.parallel
    draft = settings.speculation.draft
    return {
        "weights": settings.storage.text,
        "kv_dtype": settings.kv_dtype,
        "state_dtype": plan.rules.state_dtype,
        "block_size": settings.block_size,
        "max_model_len": settings.max_model_len,
        "concurrency": settings.concurrency,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "gpus": parallel.gpus,
        "tensor_parallel_size": parallel.tensor,
        "pipeline_parallel_size": parallel.pipeline,
        "data_parallel_size": parallel.data,
        "decode_context_parallel_size": parallel.context,
        "enable_expert_parallel": parallel.experts,
        "hybrid_kv_cache_manager": settings.windows,
        "prefix_caching": settings.prefix_caching,
        "draft_model": None if draft is None else draft.name,
        "speculative_tokens": settings.speculation.tokens,
        "max_loras": settings.adapters.slots,
        "activations": settings.activations,
    }


def _pool(plan: Plan) -> dict[str, object] | None:
    """The pool of one replica, but `full_sequences` of all; tokens as in vLLM's log line."""
    blocks, length = plan.num_blocks(), plan.settings.max_model_len
    if blocks is None:
        return None
    return {
        "bytes": plan.pool_bytes(),
        "blocks": blocks,
        "tokens": int(blocks / plan.blocks(length) * length),
        "full_sequences": plan.concurrent(length),
    }


def _budget(plan: Plan, prefill: Prefill) -> dict[str, object] | None:
    budget = plan.budget(prefill)
    return None if budget is None else {**asdict(budget), "outside": budget.outside}
