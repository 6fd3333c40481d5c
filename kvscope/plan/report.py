"""A plan as rows and as a document, shared by tables, JSON and plots."""

from dataclasses import asdict
from typing import NamedTuple

from kvscope.plan.plan import Plan, Prefill

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
    """Every context with every batch, row by row."""
    pool = plan.pool_bytes()
    cells = []
    for context in contexts(plan):
        for batch in batches(plan):
            nbytes = batch * plan.sequence_bytes(context)
            cells.append(Cell(context, batch, nbytes, None if pool is None else nbytes <= pool))
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
    if plan.memory.total is not None and plan.weight_bytes is None:
        found.append("the number of weights is not known, so no pool is sized: give --params")
    elif plan.memory.total is not None and plan.activation_bytes("chunked") is None:
        found.append("activations are not known and counted as 0: give --activation-memory")
    return found


def document(plan: Plan) -> dict[str, object]:
    """The whole plan, for JSON. Bytes everywhere; null is unknown."""
    shape, settings = plan.shape, plan.settings
    parameters = shape.parameters
    length = settings.max_model_len
    activations: dict[str, int | None] = {p: plan.activation_bytes(p) for p in PREFILLS}
    return {
        "model": {
            "name": shape.name,
            "attention": shape.attention,
            "layers": len(shape.layers),
            "parameters": None if parameters is None else parameters.total,
            "active_parameters": None if parameters is None else parameters.active,
        },
        "notes": notes(plan),
        "settings": asdict(settings),
        "memory": asdict(plan.memory),
        "bytes": {
            "weights": plan.weight_bytes,
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
        "table": [cell._asdict() for cell in grid(plan)],
        "reservation": [row._asdict() for row in reservations(plan)],
    }


def _pool(plan: Plan) -> dict[str, object] | None:
    size = plan.pool_bytes()
    if size is None:
        return None
    blocks = size // plan.bytes_per_block
    return {
        "bytes": size,
        "blocks": blocks,
        "tokens": blocks * plan.settings.block_size,
        "full_sequences": size / plan.sequence_bytes(plan.settings.max_model_len),
    }


def _budget(plan: Plan, prefill: Prefill) -> dict[str, object] | None:
    budget = plan.budget(prefill)
    return None if budget is None else {**asdict(budget), "outside": budget.outside}
