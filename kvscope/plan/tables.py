"""A plan on a terminal: five tables, every figure in binary units."""

from collections.abc import Iterator

from rich.table import Table

from engine.sizing import format_bytes
from kvscope.plan.plan import Budget, Plan
from kvscope.plan.report import PREFILLS, batches, contexts, grid, reservations

UNKNOWN = "unknown"
_NO_FIT = "✗"

Titled = tuple[str, Table]


def tables(plan: Plan) -> Iterator[Titled]:
    """Titles and tables in reading order: sizes, their share of the GPU, capacity."""
    yield _sizes(plan)
    yield _division(plan)
    if plan.pool_bytes() is not None:
        yield _capacity(plan)
    yield _grid(plan)
    if reservations(plan):
        yield _paging(plan)


def _sizes(plan: Plan) -> Titled:
    settings = plan.settings
    length, many = settings.max_model_len, settings.concurrency
    table = _table("KV cache", settings.kv_dtype)
    per_sequence = plan.sequence_bytes(length)
    table.add_row("one token", format_bytes(plan.bytes_per_token))
    table.add_row(f"one block of {settings.block_size} tokens", format_bytes(plan.bytes_per_block))
    if plan.state_bytes:
        table.add_row("state of one sequence, any length", format_bytes(plan.state_bytes))
    table.add_row(f"one sequence of {length:,} tokens", format_bytes(per_sequence))
    table.add_row(f"{many:,} sequences of {length:,} tokens", format_bytes(many * per_sequence))
    return f"{plan.shape.name}: {plan.shape.attention}", table


def _division(plan: Plan) -> Titled:
    """Weights, activations and KV, for both ways to prefill."""
    settings, parameters = plan.settings, plan.shape.parameters
    chunk, whole = settings.max_num_batched_tokens, settings.max_model_len
    title = "Where the memory goes"
    table = _table(
        "",
        f"chunked prefill ({chunk:,} tokens)",
        f"whole prompts ({max(chunk, whole):,} tokens)",
    )
    weights = plan.weight_bytes
    count = ""
    if parameters is not None:
        count = f" ({parameters.total / 1e9:,.2f}e9, {settings.weight_dtype})"
        if parameters.idle:
            count = f"{count[:-1]}, {parameters.active / 1e9:,.2f}e9 for a token)"
    table.add_row(f"weights{count}", *2 * [_or_unknown(weights)])
    how = "estimated" if settings.activations is None else "given"
    table.add_row(f"activations, {how}", *[_or_unknown(plan.activation_bytes(p)) for p in PREFILLS])
    budgets = [plan.budget(prefill) for prefill in PREFILLS]
    chunked, at_once = budgets
    if chunked is None or at_once is None:
        return title, table
    both = (chunked, at_once)
    table.add_row("other (context, libraries)", *[format_bytes(b.other) for b in both])
    table.add_row("KV pool", *[_pool(b) for b in both])
    table.add_row("outside the budget", *[format_bytes(b.outside) for b in both])
    table.add_row("total of the GPU", *[format_bytes(b.total) for b in both])
    share = f"budget ({plan.memory.utilization:g} of the total)"
    table.add_row(share, *[format_bytes(b.requested) for b in both])
    return title, table


def _capacity(plan: Plan) -> Titled:
    length, size = plan.settings.max_model_len, plan.bytes_per_block
    table = _table("", "chunked prefill", "whole prompts")
    pools = [plan.pool_bytes(prefill) or 0 for prefill in PREFILLS]
    tokens = plan.settings.block_size
    table.add_row("blocks", *[f"{pool // size:,}" for pool in pools])
    table.add_row("tokens", *[f"{pool // size * tokens:,}" for pool in pools])
    table.add_row(
        f"sequences of {length:,} tokens",
        *[f"{pool / plan.sequence_bytes(length):,.2f}" for pool in pools],
    )
    return "What the pool holds", table


def _grid(plan: Plan) -> Titled:
    known = plan.pool_bytes() is not None
    title = "KV of sequences at once" + (f"; {_NO_FIT} does not fit" if known else "")
    table = _table("tokens each", *[f"{batch:,}" for batch in batches(plan)])
    cells = iter(grid(plan))
    for context in contexts(plan):
        row = []
        for _ in batches(plan):
            cell = next(cells)
            text = format_bytes(cell.nbytes)
            row.append(f"[red]{text} {_NO_FIT}[/red]" if cell.fits is False else text)
        table.add_row(f"{context:,}", *row)
    return title, table


def _paging(plan: Plan) -> Titled:
    length = plan.settings.max_model_len
    table = _table("mean length", "reserved", "paged", "times")
    for row in reservations(plan):
        ratio = f"{row.paged / row.naive:.1f}" if row.naive else ""
        table.add_row(f"{row.tokens:,}", f"{row.naive:,}", f"{row.paged:,}", ratio)
    return f"Sequences at once: {length:,} tokens reserved for each, or pages", table


def _table(first: str, *others: str) -> Table:
    table = Table()
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _pool(budget: Budget) -> str:
    if budget.missing:
        return f"[red]none: {format_bytes(budget.missing)} short[/red]"
    return format_bytes(budget.kv_pool)


def _or_unknown(amount: int | None) -> str:
    return UNKNOWN if amount is None else format_bytes(amount)
